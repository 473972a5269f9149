"""Expected copies of a token against counting all choices, and the bytes of an exchange by copies per node."""

from __future__ import annotations

from itertools import combinations
from statistics import mean

import pytest

from predict.layers.mixture import Mixture
from predict.layers.routing import expected_places
from predict.workload.decompose import decompose, requests_of_runs
from sampling.collectives.kinds import TokenExchange
from tests.predict.workload.parallel_runs import made


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
