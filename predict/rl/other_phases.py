"""Phases that are neither generation nor passes of the trainer: the driver, which starts the phases and sends the samples, as they are
padded, to the trainer's workers; scoring outside the GPUs; and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from predict.interval import Interval, sum_of_phases
from predict.rank.share import weight_bytes
from predict.rl.phase import DRIVER, SCORING, STORAGE, Phase, plus
from predict.rl.run.config import RlRun
from predict.rl.terms import TERMS
from predict.serving.batch import Floats
from sampling.units import SECOND_US


def adv_phase(rl: RlRun) -> Phase:
    """Advantages, and what the driver does between phases."""
    time = TERMS["dispatch_s"].times(SECOND_US)
    gpus, parts = rl.base.cluster.world_size, {DRIVER: time.median_us}
    return Phase(name="adv", time=time, gpus=gpus, bound_by="host", parts=parts)


def moved_in(rl: RlRun) -> str:
    """The phase in which the driver's moving of samples is timed: the first on the trainer's GPUs that all samples go to."""
    return "old_log_prob" if rl.section.old_log_prob else "update_actor"


def moving_time(rl: RlRun) -> Interval:
    """The time in which all samples, padded, reach the workers."""
    return TERMS["padded_token_us"].times(rl.section.samples * rl.section.longest)


def with_moving(rl: RlRun, phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """The phases with the moving of samples in the one that waits for it."""
    waits, moving = moved_in(rl), moving_time(rl)
    return tuple(_longer(phase, moving) if phase.name == waits else phase for phase in phases)


def _longer(phase: Phase, moving: Interval) -> Phase:
    bound_by = "host" if moving.median_us > phase.time.median_us else phase.bound_by
    parts = plus(phase.parts, {DRIVER: moving.median_us})
    return replace(phase, time=sum_of_phases([phase.time, moving]), bound_by=bound_by, parts=parts)


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


def reward_us(rl: RlRun, gen_us: Floats | float) -> Floats:
    """The time that scoring adds to a generation of this time: all of it; where it overlaps, what is left to score when generation ends."""
    reward, samples = rl.section.reward, rl.section.samples
    last = SECOND_US * reward.latency_s
    in_all = last * -(-samples // reward.workers)
    ended = np.asarray(gen_us, dtype=np.float64)
    return np.maximum(last, in_all - ended) if reward.overlaps else np.full_like(ended, in_all)


def reward_phase(rl: RlRun, phases: Iterable[Phase]) -> list[Phase]:
    """The phase after a generation that is among these phases; none for a reward without latency."""
    if not rl.section.reward.latency_s:
        return []
    (gen,) = (phase for phase in phases if phase.name == "gen")
    time = Interval.exactly(float(reward_us(rl, gen.time.median_us)))
    return [Phase(name="reward", time=time, gpus=gen.gpus, bound_by="reward", parts={SCORING: time.median_us})]
