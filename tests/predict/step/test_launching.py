"""The host's launch floor of a layer: the run's setting, the sampled one of dense layers, and a mixture's own launches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from predict.prices.analytic import SpeedOfLight
from predict.prices.price_list import PriceList
from predict.run.training_run import TrainingRun
from predict.step.priced_block import PricedBlock, block_prices
from predict.workload.layers.layer import layer_blocks
from predict.workload.rank.blocks import single
from predict.workload.rank.share import RankShare
from sampling.call import Phase
from tests.predict.workload.parallel_runs import made

SAMPLED: Mapping[Phase, float] = {"forward": 260.0, "backward": 700.0}


def mixture_run(**settings: Any) -> TrainingRun:
    launches = {"execution__expert_launch_us": 3000, "execution__launch_floor_us": 250}
    return made("deepseek-v3", plan__dp=8, plan__ep=8, **(launches | settings))


def priced(run: TrainingRun, phase: str, *, sparse: bool, sampled: Mapping[Phase, float] = SAMPLED) -> PricedBlock:
    rank = RankShare(run=run)
    kind = next(kind for kind in rank.model.kinds() if kind.sparse == sparse)
    prices = PriceList([SpeedOfLight()], run.cluster, profile_error=None, launch_floors_us=sampled)
    block = getattr(layer_blocks(rank, kind), phase)
    return block_prices(run, prices).bucket(single(block)).blocks[0].priced


@pytest.mark.parametrize(
    ("phase", "stated_us", "sampled_us"),
    [("forward", 250 + 3000, 260 + 3000), ("again", 3250, 3260), ("backward", 250 + 6000, 700 + 6000)],
)
def test_a_sampled_floor_leaves_the_launches_of_a_mixture(phase: str, stated_us: float, sampled_us: float) -> None:
    run = mixture_run()
    assert priced(run, phase, sparse=True, sampled={}).floor_us == stated_us
    found = priced(run, phase, sparse=True)
    assert found.floor_us == sampled_us
    assert found.by_source_us.get("measured", 0.0) == 0.0


def test_a_dense_layers_sampled_floor_counts_as_measured() -> None:
    found = priced(mixture_run(execution__launch_floor_us=1e5), "forward", sparse=False, sampled={"forward": 1e5})
    assert found.floor_us == 1e5
    assert found.by_source_us["measured"] > 0


@pytest.mark.parametrize("sampled", [{}, SAMPLED], ids=["stated", "sampled"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "mixture"])
def test_the_halves_of_a_split_backward_share_its_floor(sparse: bool, sampled: Mapping[Phase, float]) -> None:
    run = mixture_run()
    whole, *halves = (
        priced(run, phase, sparse=sparse, sampled=sampled).floor_us
        for phase in ("backward", "backward_input", "backward_weight")
    )
    assert halves == [whole / 2, whole / 2]


def test_a_graph_of_the_whole_step_leaves_the_host_nothing() -> None:
    run = mixture_run(execution__cuda_graphs="full")
    assert priced(run, "forward", sparse=True).floor_us == 0.0
