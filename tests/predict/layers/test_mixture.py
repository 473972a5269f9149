"""The kernels of a mixture as its framework runs them: which products, which passes beside them, and the buffers of its exchange."""

from dataclasses import replace
from itertools import combinations
from random import Random
from statistics import fmean, mean

import pytest

from predict.layers.layer import saved_by_layer
from predict.layers.mixture import Mixture
from predict.layers.routing import (
    BUSIEST_EXPERT,
    EXPERTS_THERE,
    UNTOUCHED_MOST,
    busiest_rank,
    distribution_on_rank,
    expected_places,
)
from predict.layers.saved_tensors import Sizes
from predict.memory.buffers import exchange_buffer
from predict.rank.share import RankShare
from predict.run.frameworks import memory_profile_of
from predict.validation.published_row import PublishedRow
from predict.validation.published_software import is_routed_naturally
from predict.workload.decompose import decompose, requests_of_runs
from sampling.call import Call
from sampling.collectives.kinds import TokenExchange
from sampling.operators.experts import IN_GRAPH, PER_EXPERT, GroupedGemm
from sampling.operators.memory_bound import Stream
from sampling.operators.routing import Permute, Router
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
    passes = {34 * row_elements, 23 * row_elements, 3 * row_elements}
    streams = {call.size_bytes for call in calls("gpt-oss-120b", 8) if isinstance(call, Stream)}
    assert passes <= streams
    graphed = {
        call.size_bytes for call in calls("gpt-oss-120b", 8, execution__cuda_graphs="full") if isinstance(call, Stream)
    }
    assert not passes & graphed
    assert row_elements in graphed, "one kernel reads the rows for the gradients of biases and routing weights"


def test_the_gradient_of_routing_weights_is_a_pass_where_the_activation_weighs_its_rows() -> None:
    read = 3 * 768 * 4096 * 8

    def reads_again(**settings: str) -> bool:
        return read in {call.size_bytes for call in calls("qwen3-30b-a3b", 8, **settings) if isinstance(call, Stream)}

    assert reads_again(execution__framework="megatron-core")
    assert not reads_again(execution__framework="megatron-core", execution__cuda_graphs="full")
    assert not reads_again(execution__framework="torchtitan")


def test_a_graph_of_the_whole_step_copies_what_experts_keep_to_pages_and_back() -> None:
    rows, width, hidden = 4096 * 8, 768, 2048
    fp8, mxfp8 = (rows * 2 * (item * (hidden + width) + 2 * 2 * width) for item in (1, 33 / 32))

    def streams(**settings: str) -> set[int]:
        found = calls("qwen3-30b-a3b", 8, execution__framework="megatron-core", **settings)
        return {call.size_bytes for call in found if isinstance(call, Stream)}

    graphed = {"execution__cuda_graphs": "full", "precision": "fp8"}
    assert fp8 in streams(**graphed)
    assert mxfp8 in streams(**graphed, execution__fp8_recipe="mxfp8")
    assert fp8 not in streams(precision="fp8")
    assert fp8 not in streams(**graphed, plan__recompute="full")


def test_outputs_that_torch_weighs_in_fp32_stay_so_for_the_backward() -> None:
    run = made("qwen3-30b-a3b", execution__framework="prime-rl", plan__recompute="full")
    profile, kind = memory_profile_of(run), run.model.kinds()[0]
    kept = [
        sum(step.kept for step in saved_by_layer(Sizes(rank=RankShare(run=run), profile=each), kind))
        for each in (profile, replace(profile, weighs_in_fp32=False))
    ]
    assert run.model.experts is not None
    rows = run.batch.micro * run.batch.seq_len * run.model.experts.topk
    assert kept[0] - kept[1] == (4 - 2) * rows * (run.model.hidden + 1)  # each row, and its weight


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

    assert gb("alltoall") == gb("allgather") == gb("deepep", 1) == 0
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


# Expected copies of a token against counting all choices, and the bytes of an exchange by copies per node.


def counted(experts: Mixture, places: int) -> float:
    """The mean over every choice of groups, and of experts within them."""
    size, own = experts.count // experts.groups, experts.count // places
    choices = [
        chosen
        for groups in combinations(range(experts.groups), experts.topk_groups)
        for chosen in combinations(
            [expert for group in groups for expert in range(group * size, (group + 1) * size)], experts.topk
        )
    ]
    return mean(len({expert // own for expert in chosen}) for chosen in choices)


@pytest.mark.parametrize("places", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize(("topk", "groups", "topk_groups"), [(1, 1, 1), (3, 1, 1), (3, 4, 2), (2, 6, 3), (4, 2, 1)])
def test_expected_places_are_the_mean_over_all_choices(topk: int, groups: int, topk_groups: int, places: int) -> None:
    experts = Mixture(count=12, topk=topk, ffn=8, groups=groups, topk_groups=topk_groups)
    places_cut_groups = max(places, groups) % min(places, groups) != 0
    expected = counted(experts, places)
    found = expected_places(experts, places)
    assert found >= expected - 1e-9 if places_cut_groups else found == pytest.approx(expected)


def exchange(ep: int, **settings: object) -> TokenExchange:
    subject = made("deepseek-v3", plan__dp=ep, plan__ep=ep, execution__dispatch="deepep", batch__global=ep, **settings)
    calls = {counted.call for rank in decompose(subject) for counted in rank.all_calls()}
    (found,) = [call for call in calls if isinstance(call, TokenExchange)]
    return found


def test_groups_of_experts_bound_the_nodes_that_a_token_goes_to() -> None:
    """DeepSeek-V3 on 8 nodes: a token's experts lie on at most 4, so on fewer than the 5.3 that a free choice reaches."""
    call = exchange(64)
    row_bytes = 2 * 7168 * 4096
    nodes = call.away_bytes / row_bytes * 8 / 7
    assert 3.5 < nodes < 4
    assert call.size_bytes / row_bytes == pytest.approx(expected_places(EXPERTS_OF_V3, 64) * 7 / 8, rel=1e-6)


EXPERTS_OF_V3 = Mixture(count=256, topk=8, ffn=2048, groups=8, topk_groups=4)


def test_nothing_leaves_a_domain_that_holds_the_whole_group() -> None:
    assert exchange(8).away_bytes == 0


def test_the_sampler_is_not_asked_for_a_library_it_does_not_have() -> None:
    subject = made("deepseek-v3", plan__dp=8, plan__ep=8, execution__dispatch="hybridep", batch__global=8)
    requests = requests_of_runs([subject])
    assert not [one for of_ranks in requests.values() for one in of_ranks if isinstance(one.call, TokenExchange)]


# The load of the busiest rank of a mixture's experts.

EXPERTS = Mixture(count=EXPERTS_THERE, topk=8, ffn=1024)


def test_natural_routing_has_the_published_excess_where_each_rank_holds_one_expert() -> None:
    assert busiest_rank("natural", EXPERTS, EXPERTS_THERE) == pytest.approx(1 + BUSIEST_EXPERT)


def test_ranks_with_many_experts_even_natural_routing_out() -> None:
    loads = [busiest_rank("natural", EXPERTS, ep) for ep in (1, 2, 8, 64)]
    assert loads[0] == 1
    assert loads == sorted(loads)
    assert busiest_rank("natural", replace(EXPERTS, count=256), 8) < loads[2]


@pytest.mark.parametrize("ep", [4, 16])
def test_the_expected_busiest_rank_is_that_of_drawn_loads(ep: int) -> None:
    random, own = Random(1), EXPERTS_THERE // ep
    spread = BUSIEST_EXPERT / 2.34  # the highest of 64 normal numbers
    draws = [max(fmean(random.gauss(1, spread) for _ in range(own)) for _ in range(ep)) for _ in range(1500)]
    assert busiest_rank("natural", EXPERTS, ep) == pytest.approx(fmean(draws), abs=0.01)


def test_a_row_that_says_so_is_routed_naturally() -> None:
    rows = ({"routing": "natural"}, {"notes": "natural routing, real data"}, {"notes": "forced balance"}, {})
    assert [is_routed_naturally(PublishedRow(cells=cells)) for cells in rows] == [True, True, False, False]


@pytest.mark.parametrize(("load", "ep", "busiest"), [("1.4", 8, 1.4), ("1", 8, 1.0), ("9", 8, 8.0)])
def test_a_measured_load_is_that_of_the_busiest_rank_and_no_more_than_all(load: str, ep: int, busiest: float) -> None:
    assert busiest_rank(load, EXPERTS, ep) == busiest
    assert distribution_on_rank(load) == "balanced"


def test_a_router_that_nothing_balances_is_between_those_that_were_published() -> None:
    assert 1 < busiest_rank("untouched", EXPERTS, 8) < UNTOUCHED_MOST
