"""Saving of the actor, spread over the steps from one checkpoint to the next."""

from __future__ import annotations

from predict.interval import Interval
from predict.rank.share import weight_bytes
from predict.rl.phase import STORAGE, Phase
from predict.rl.run.config import RlRun
from sampling.units import SECOND_US

OPTIMIZER_BYTES = 12
"""Bytes per parameter of the master copy and of Adam's two moments, in fp32."""


def checkpoint_phase(rl: RlRun) -> Phase | None:
    """A step's share of a checkpoint, which every rank waits for; None where none is saved."""
    saved, base = rl.section.checkpoint, rl.base
    if not saved.every:
        return None
    size_bytes = base.model.parameters * (weight_bytes(base) + OPTIMIZER_BYTES)
    time_us = SECOND_US * size_bytes / (saved.gb_per_s * 1e9) / saved.every
    gpus = base.cluster.world_size
    return Phase(
        name="checkpoint", time=Interval.exactly(time_us), gpus=gpus, bound_by="storage", parts={STORAGE: time_us}
    )
