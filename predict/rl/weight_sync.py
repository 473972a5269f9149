"""Weight sync: the trainer's new weights on their way to the engines."""

from __future__ import annotations

from collections import Counter

from predict.model.spec import ModelSpec
from predict.rl.phase import Phase, exactly, independent
from predict.rl.run.config import RlRun
from predict.rl.terms import TERMS
from predict.step.interval import Interval
from sampling.hardware.cluster import DTYPE_BYTES, Link

SECOND_US = 1e6
TENSORS_PER_LAYER = 9
"""Tensors of a layer apart from its experts' in a checkpoint: four of attention, three of the MLP, two norms."""
MATRICES_PER_EXPERT = 3


def update_weights(rl: RlRun) -> Phase:
    """The phase. Every GPU of an engine receives its slice; the whole model crosses the slowest link between trainer and engine once.

    `tensors` adds a time per tensor, `buckets` takes a share of the link's bandwidth instead.
    """
    sync, method = rl.section.weight_sync, rl.section.weight_sync.method
    model = rl.base.model
    link_us = transfer_us(model, link_of(rl), rl.base.precision)
    if method == "tensors":
        handling = TERMS["tensor_s"].times(SECOND_US * tensor_count(model))
        time = independent([exactly(link_us), handling])
    else:
        term = TERMS["bucket_share"]
        time = Interval(median_us=link_us / term.value, low_us=link_us / term.high, high_us=link_us / term.low)
    woken = exactly(SECOND_US * sync.wake_s)
    return Phase(name="update_weights", time=independent([time, woken]), gpus=rl.gpus, bound_by="sync")


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
