"""Weight sync: the transfer of the trainer's new weights to the engines."""

from __future__ import annotations

from collections import Counter

from predict.interval import Interval, sum_of_phases
from predict.model.spec import ModelSpec
from predict.rank.share import held_dtype
from predict.rl.phase import TENSORS, TRANSFER, WAKE, Phase, plus
from predict.rl.run.config import RlRun
from predict.rl.terms import TERMS, RlTerm
from sampling.hardware.cluster import DTYPE_BYTES, Link
from sampling.units import SECOND_US

TENSORS_PER_LAYER = 9
"""Tensors of a layer apart from its experts' in a checkpoint: four of attention, three of the MLP, two norms."""
MATRICES_PER_EXPERT = 3


def update_weights(rl: RlRun) -> Phase:
    """The phase: the transfer of the weights, and the engines' waking up."""
    sync, base = rl.section.weight_sync, rl.base
    times = sync_parts(base.model, link_of(rl), sent_dtype(rl), sync.method) | {
        WAKE: Interval.exactly(SECOND_US * sync.wake_s)
    }
    parts = plus({name: time.median_us for name, time in times.items()}, {})
    return Phase(name="update_weights", time=sum_of_phases(times.values()), gpus=rl.gpus, bound_by="sync", parts=parts)


def sent_dtype(rl: RlRun) -> str:
    """The dtype of the weights in transfer: as the trainer holds them, since engines quantise what they receive (NeMo-RL,
    models/generation/fp8.py, `load_weights`); from the host's memory, as the engines hold them, a checkpoint of their own."""
    rollout = rl.section.rollout
    return rollout.precision if rl.section.weight_sync.method == "host" else held_dtype(rl.base)


def sync_time(model: ModelSpec, link: Link, precision: str, method: str) -> Interval:
    """The time of a transfer by a method of `rl.weight_sync`."""
    return sum_of_phases(sync_parts(model, link, precision, method).values())


def sync_parts(model: ModelSpec, link: Link, precision: str, method: str) -> dict[str, Interval]:
    """Heading → its time, of a transfer by a method of `rl.weight_sync`.

    `tensors`: the whole model crosses the slowest link once, and each tensor is gathered, resharded and loaded; `buckets`: each is only
    gathered; `host`: weights that lie gathered in the host's memory are loaded at a rate.
    """
    if method == "host":
        return {TRANSFER: _at_rate(model.parameters * DTYPE_BYTES[precision], TERMS["bucket_gb_per_s"])}
    of_tensor = TERMS["tensor_s" if method == "tensors" else "gather_s"]
    handling = of_tensor.times(SECOND_US * tensor_count(model))
    return {TRANSFER: Interval.exactly(transfer_us(model, link, precision)), TENSORS: handling}


def _at_rate(size_bytes: float, gb_per_s: RlTerm) -> Interval:
    return gb_per_s.times(1e3).dividing(size_bytes)


def link_of(rl: RlRun) -> Link:
    """The slowest link that weights cross: within a node where trainer and engines fit into one."""
    cluster = rl.base.cluster
    return cluster.link(rl.gpus, cluster.gpus_per_node)


def transfer_us(model: ModelSpec, link: Link, precision: str) -> float:
    """The bytes of the model over the bandwidth of a link."""
    return model.parameters * DTYPE_BYTES[precision] / (link.gb_per_s * 1e3)


def tensor_count(model: ModelSpec) -> int:
    """Tensors of the model's checkpoint: three per expert, as many as a dense layer has, embedding, head and last norm."""
    sparse = Counter(kind.sparse for kind in model.kinds())[True]
    experts = model.experts.count if model.experts else 0
    return model.layers * TENSORS_PER_LAYER + sparse * experts * MATRICES_PER_EXPERT + 3
