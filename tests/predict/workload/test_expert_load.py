"""The load of the busiest rank of a mixture's experts."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from predict.layers.mixture import Mixture
from predict.layers.routing import BUSIEST_EXPERT, EXPERTS_THERE, busiest_rank
from predict.validation.published_row import PublishedRow
from predict.validation.published_software import is_routed_naturally

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
