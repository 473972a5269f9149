"""Limits of an engine's steps: the host's launches, and links between nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from predict.serving.batch import Chunk, StepBatch, sums_of
from predict.serving.kernels.eager import LAYER_US
from predict.serving.stepper import stepper
from tests.predict.serving.servers import engine, server


def test_an_eager_engine_waits_for_its_launches() -> None:
    """A step takes the longer of its kernels and of the host's launches, whatever the context."""
    graphs = server("llama3-8b", settings=engine(max_num_seqs=64, max_num_batched_tokens=4096))
    eager = replace(graphs, engine=replace(graphs.engine, enforce_eager=True))
    small, large = StepBatch(decodes=(128,)), StepBatch(chunks=(Chunk(tokens=4096),))
    requests = stepper(eager).table.request_us
    assert stepper(eager).step_times([small])[0].median_us == pytest.approx(32 * LAYER_US + requests, rel=1e-9)
    assert stepper(eager).step_times([large]) == stepper(graphs).step_times([large])
    long = sums_of([StepBatch(decodes=(200_000,) * 64)], 0)
    assert stepper(eager).table.times_us(long) == pytest.approx(stepper(graphs).table.times_us(long), rel=1e-9)


def test_all_reduces_between_nodes_are_those_of_the_network() -> None:
    """An engine over two nodes waits for the slower links, where its own kernel would take the GPUs for those of one."""
    one = server("qwen3-235b-a22b", tp=16)
    two_nodes = replace(one, cluster=replace(one.cluster, nodes=2, gpus_per_node=8))
    batch = StepBatch(decodes=(1000,) * 16)
    assert stepper(two_nodes).step_times([batch])[0].median_us > 1.2 * stepper(one).step_times([batch])[0].median_us


@pytest.mark.parametrize("eager", [False, True])
def test_the_terms_of_a_step_add_up_to_it(eager: bool) -> None:
    one = stepper(server(settings=engine(max_num_seqs=64, max_num_batched_tokens=4096, enforce_eager=eager)))
    for batch in (StepBatch(decodes=(512,) * 64), StepBatch(chunks=(Chunk(tokens=512),), decodes=(512,))):
        assert sum(one.ledger_us(batch).values()) == pytest.approx(one.step_times([batch])[0].median_us, rel=0.01)
