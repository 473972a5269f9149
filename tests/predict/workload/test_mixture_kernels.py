"""The kernels of a mixture as its framework runs them: which products, which passes beside them, and the buffers of its exchange."""

from __future__ import annotations

from dataclasses import replace

import pytest

from predict.memory.buffers import exchange_buffer
from predict.workload.decompose import decompose
from sampling.call import Call
from sampling.operators.experts import IN_GRAPH, PER_EXPERT, GroupedGemm
from sampling.operators.routing import Permute, Router
from sampling.operators.streaming import Stream
from tests.predict.workload.parallel_runs import made


def calls(model: str, ep: int, **settings: object) -> list[Call]:
    subject = made(model, 4, plan__dp=ep, plan__ep=ep, batch__global=ep, **settings)
    return list({counted.call for rank in decompose(subject) for counted in rank.all_calls()})


def test_one_expert_on_a_rank_is_a_plain_product() -> None:
    assert [call for call in calls("qwen3-30b-a3b", 64) if isinstance(call, GroupedGemm)]
    assert not [call for call in calls("qwen3-30b-a3b", 128) if isinstance(call, GroupedGemm)]


@pytest.mark.parametrize(("graphs", "kernel"), [("none", PER_EXPERT), ("layers", PER_EXPERT), ("full", IN_GRAPH)])
def test_megatron_runs_a_product_per_expert_and_a_tf32_router(graphs: str, kernel: str) -> None:
    found = calls("qwen3-30b-a3b", 8, execution__framework="megatron-core", execution__cuda_graphs=graphs)
    assert {call.kernel for call in found if isinstance(call, GroupedGemm)} == {kernel}
    assert {call.product for call in found if isinstance(call, Router)} == {"tf32"}


def test_biases_and_clamps_are_passes_unless_the_step_is_a_graph() -> None:
    row_elements = 2880 * 4096 * 4
    streams = {call.size_bytes for call in calls("gpt-oss-120b", 8) if isinstance(call, Stream)}
    assert {32 * row_elements, 4 * 2 * 2 * row_elements} <= streams
    graphed = calls("gpt-oss-120b", 8, execution__cuda_graphs="full")
    assert not {32 * row_elements, 16 * row_elements} & {
        call.size_bytes for call in graphed if isinstance(call, Stream)
    }


def test_rows_from_nccl_are_sorted_once_more() -> None:
    many, few = (
        [call for call in calls("qwen3-30b-a3b", 8, execution__dispatch=kind) if isinstance(call, Permute)]
        for kind in ("alltoall", "deepep")
    )
    assert len(many) == len(few) + 1


def test_the_exchange_keeps_buffers_of_its_own() -> None:
    def gb(dispatch: str, ep: int = 64) -> float:
        subject = made("deepseek-v3", plan__dp=ep, plan__ep=ep, execution__dispatch=dispatch, batch__global=ep)
        return exchange_buffer(subject).size_bytes / 1e9

    assert gb("alltoall") == gb("allgather") == 0
    assert gb("deepep", 8) == pytest.approx(10 * 8 * 288 * 7168 * 2 / 1e9)
    assert gb("deepep") == pytest.approx(gb("deepep", 8) + 10 * 2 * 8 * 128 * 7168 * 2 / 1e9)
    assert gb("hybridep") == pytest.approx(2 * 64 * 4096 * 7168 * 2 / 1e9)


@pytest.mark.parametrize(("elementwise", "passes"), [("fused", True), ("eager", False)])
def test_a_scaled_rotary_embedding_is_torchs_own_operators_where_others_are_fused(
    elementwise: str, passes: bool
) -> None:
    sizes = []
    for scaled in (True, False):
        subject = made("gpt-oss-20b", 4, execution__framework="megatron-core", execution__elementwise=elementwise)
        subject = replace(subject, model=replace(subject.model, scaled_rope=scaled))
        found = {counted.call for rank in decompose(subject) for counted in rank.all_calls()}
        sizes.append({call.size_bytes for call in found if isinstance(call, Stream)})
    assert (sizes[0] > sizes[1]) == passes
