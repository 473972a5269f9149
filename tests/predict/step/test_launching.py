"""The host's launch floor of a layer: the run's setting, the sampled one of dense layers, and a mixture's own launches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from predict.prices.open import SpeedOfLight
from predict.prices.price_list import PriceList
from predict.rank.blocks import single
from predict.rank.share import RankShare
from predict.run.training_run import TrainingRun
from predict.step.interval import FLOOR, cases_of_block
from predict.step.priced_block import PricedBlock, block_prices
from predict.workload.layer import layer_blocks
from regressors.bank.times import Times
from sampling.call import Phase
from tests.predict.workload.parallel_runs import made


def floor_of(time_us: float) -> Times:
    return Times(median_us=time_us, low_us=0.9 * time_us, high_us=1.2 * time_us, source="measured")


SAMPLED: Mapping[Phase, Times] = {"forward": floor_of(260.0), "backward": floor_of(700.0)}


def mixture_run(**settings: Any) -> TrainingRun:
    launches = {"execution__expert_launch_us": 3000, "execution__launch_floor_us": 250}
    return made("deepseek-v3", plan__dp=8, plan__ep=8, **(launches | settings))


def priced(run: TrainingRun, phase: str, *, sparse: bool, sampled: Mapping[Phase, Times] = SAMPLED) -> PricedBlock:
    rank = RankShare(run=run)
    kind = next(kind for kind in rank.model.kinds() if kind.sparse == sparse)
    prices = PriceList([SpeedOfLight()], run.cluster, profile_error=None, launch_floors=sampled)
    block = getattr(layer_blocks(rank, kind), phase)
    return block_prices(run, prices).bucket(single(block)).blocks[0].priced


def floor_us(block: PricedBlock) -> float:
    return block.floor.median_us if block.floor else 0.0


@pytest.mark.parametrize(
    ("phase", "stated_us", "sampled_us"),
    [("forward", 250 + 3000, 260 + 3000), ("again", 3250, 3260), ("backward", 250 + 6000, 700 + 6000)],
)
def test_a_sampled_floor_leaves_the_launches_of_a_mixture(phase: str, stated_us: float, sampled_us: float) -> None:
    run = mixture_run()
    assert floor_us(priced(run, phase, sparse=True, sampled={})) == stated_us
    found = priced(run, phase, sparse=True)
    assert floor_us(found) == sampled_us
    assert found.by_source_us.get("measured", 0.0) == 0.0


def test_a_dense_layers_sampled_floor_counts_as_measured() -> None:
    found = priced(
        mixture_run(execution__launch_floor_us=1e5), "forward", sparse=False, sampled={"forward": floor_of(1e5)}
    )
    assert floor_us(found) == 1e5
    assert found.by_source_us["measured"] > 0


def test_a_floor_is_as_uncertain_as_its_parts() -> None:
    run = mixture_run(execution__launch_floor_us=1e5, execution__expert_launch_us=1e5)
    bounds = [
        (block.floor.low_us / block.floor.median_us, block.floor.high_us / block.floor.median_us)
        for block in (
            priced(run, "forward", sparse=sparse, sampled=sampled)
            for sparse in (False, True)
            for sampled in ({}, {"forward": floor_of(1e5)})
        )
        if block.floor
    ]
    stated, sampled, mixture = (0.85, 1.15), (0.9, 1.2), (0.875, 1.175)
    assert bounds == [pytest.approx(each) for each in (stated, sampled, stated, mixture)]
    alone = priced(run, "forward", sparse=False, sampled={"forward": floor_of(1e5)})
    spread = cases_of_block(alone)
    at = 1 + spread.kinds.index(FLOOR)
    assert spread.values[at] / spread.values[0] == pytest.approx(1.2, rel=0.01)
    assert spread.values[at + len(spread.kinds)] / spread.values[0] == pytest.approx(0.9, rel=0.01)


@pytest.mark.parametrize("sampled", [{}, SAMPLED], ids=["stated", "sampled"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "mixture"])
def test_the_halves_of_a_split_backward_share_its_floor(sparse: bool, sampled: Mapping[Phase, Times]) -> None:
    run = mixture_run()
    whole, *halves = (
        floor_us(priced(run, phase, sparse=sparse, sampled=sampled))
        for phase in ("backward", "backward_input", "backward_weight")
    )
    assert halves == [whole / 2, whole / 2]


def test_a_graph_of_the_whole_step_leaves_the_host_nothing() -> None:
    run = mixture_run(execution__cuda_graphs="full")
    assert floor_us(priced(run, "forward", sparse=True)) == 0.0
