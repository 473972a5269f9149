"""Every framework of configs/frameworks keeps the laws of a step; a file dropped in is held to them by itself."""

from functools import cache

import pytest

from predict import estimate, load
from predict.run.frameworks import framework_names
from predict.step.prediction import Prediction
from sampling.files.places import CONFIGS

CONFIG = CONFIGS / "runs" / "llama3-70b-64xh100.yml"
PLAIN = ("plan.schedule=1f1b", "plan.vpp=1", "plan.cp=1", "plan.dp=4")
"""A plan that every framework runs."""


@cache
def step(framework: str, *settings: str) -> Prediction:
    return estimate(load(CONFIG, [f"execution.framework={framework}", *PLAIN, *settings]), require_fit=False)


@pytest.fixture(params=framework_names())
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_ledger_adds_up(framework: str) -> None:
    found = step(framework)
    assert sum(found.breakdown_us.values()) == pytest.approx(found.median_us)
    assert min(found.breakdown_us.values()) >= -1e-9 * found.median_us


def test_the_interval_holds_its_median(framework: str) -> None:
    interval = step(framework).step_time
    assert 0 < interval.low_us < interval.median_us < interval.high_us


def test_sources_are_shares(framework: str) -> None:
    found = step(framework)
    assert sum(found.sources.values()) == pytest.approx(1)
    assert 0 < found.mfu < 1


def test_twice_the_batch_takes_twice_as_long(framework: str) -> None:
    assert 1.5 < step(framework, "batch.global=256").median_us / step(framework).median_us < 2.1


def test_full_recomputation_trades_time_for_memory(framework: str) -> None:
    kept, recomputed = step(framework, "plan.recompute=none"), step(framework, "plan.recompute=full")
    assert recomputed.median_us > kept.median_us
    assert recomputed.memory.point_bytes < kept.memory.point_bytes


def test_memory_is_counted_on_every_pipeline_rank_and_each_buffer_has_a_source(framework: str) -> None:
    memory = step(framework).memory
    assert len(memory.ranks) == 4
    assert all(rank.peak > 0 for rank in memory.ranks)
    assert memory.buffers
    assert all(buffer.source and buffer.size_bytes > 0 and buffer.width_bytes >= 0 for buffer in memory.buffers)
