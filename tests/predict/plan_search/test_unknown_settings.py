"""Runs that are partly unknown: the runs that they may be, and one answer for all of them."""

from typing import Any

import pytest

from predict import ConfigError, likely_steps, load
from predict.config.load import load_partly_unknown
from predict.plan_search.unknown_settings import likely_runs, stated
from sampling.files.places import CONFIGS

LLAMA = CONFIGS / "runs" / "llama3-70b-64xh100.yml"
"""80 layers over 4 pipeline ranks, interleaved; 64 sequences per replica."""
DEEPSEEK = CONFIGS / "runs" / "deepseek-v3-1024xh100.yml"
SMALL = ["model=../models/qwen3-30b-a3b.json", "plan={tp: 1, dp: 32, ep: unknown, zero: 1}", "cluster.nodes=4"]


def _values(config: Any, overrides: list[str]) -> dict[str, list[Any]]:
    base, unknown = load_partly_unknown(config, overrides)
    runs = likely_runs(base, unknown)
    return {path: sorted({stated(run, path) for run in runs}) for path in unknown if path != "plan.schedule"}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["plan.vpp=unknown"], {"plan.vpp": [5, 10, 20]}),
        # not known to be interleaved: one chunk too
        (["plan.vpp=unknown", "plan.schedule=1f1b", "execution.framework=megatron-core"], {"plan.vpp": [1, 5, 10, 20]}),
        (["plan.recompute=unknown"], {"plan.recompute": ["none", "selective"]}),
        # 64 sequences of a replica fill 4 ranks even 8 at a time, but 2 do not fit in memory
        (["batch.micro=unknown"], {"batch.micro": [1]}),
        # 8 sequences of a replica: at most 2 at a time leave 4 microbatches
        (["batch.micro=unknown", "batch.global=16", "batch.seq_len=1024"], {"batch.micro": [1, 2]}),
    ],
)
def test_unknown_keys_have_the_usual_values_that_fit(overrides: list[str], expected: dict[str, list[Any]]) -> None:
    assert _values(LLAMA, overrides) == expected


def test_experts_spread_as_far_as_memory_needs() -> None:
    assert _values(DEEPSEEK, ["plan.ep=unknown"]) == {"plan.ep": [16]}
    within_a_node = _values(DEEPSEEK, [*SMALL, "batch={global: 64, micro: 1, seq_len: 4096}"])["plan.ep"]
    assert within_a_node and max(within_a_node) <= 8


def test_the_interval_holds_every_run_and_names_the_key() -> None:
    likely = likely_steps(LLAMA, ["plan.vpp=unknown", "plan.recompute=unknown"])
    step = likely.step_time
    assert len(likely.predictions) == 6
    assert step.low_us == min(one.step_time.low_us for one in likely.predictions)
    assert step.high_us == max(one.step_time.high_us for one in likely.predictions)
    assert likely.unknowns["recompute unknown (none or selective)"] > likely.unknowns["vpp unknown (5, 10 or 20)"] > 0


def test_a_value_that_is_known_is_as_if_nothing_were_unknown() -> None:
    alone = likely_steps(LLAMA)
    assert [one.run for one in alone.predictions] == [load(LLAMA)]
    assert alone.step_time.median_us == pytest.approx(alone.middle.median_us)


def test_other_faults_are_reported_as_if_the_key_were_known() -> None:
    with pytest.raises(ConfigError) as raised:
        likely_steps(LLAMA, ["plan.recompute=unknown", "batch.global=127"])
    assert "unknown" not in str(raised.value)


def test_the_best_schedule_is_chosen_for_each() -> None:
    likely = likely_steps(LLAMA, ["plan.recompute=unknown", "plan.schedule=best", "plan.vpp=1"])
    assert len(likely.predictions) == 2
    assert "best" not in {one.run.plan.schedule for one in likely.predictions}


def test_elsewhere_an_unknown_key_is_a_fault_among_the_others() -> None:
    with pytest.raises(ConfigError) as raised:
        load(LLAMA, ["plan.vpp=unknown", "batch.global=127"])
    assert "plan.vpp: unknown: only `predict one-batch CONFIG`" in str(raised.value)
    assert "batch.global: 127" in str(raised.value)
    with pytest.raises(ConfigError, match=r"plan\.tp: 'unknown'"):
        load(LLAMA, ["plan.tp=unknown"])
