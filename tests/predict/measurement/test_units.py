"""Checks, noise and the plain form of runs and measurements; no process is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from predict.layers.run_json import dump_run, load_run
from predict.measurement import requirements
from predict.measurement.measurement import Measurement, pool
from predict.measurement.real_step import summarize
from predict.measurement.system_noise import OTHERS, SPREAD, StepUsage, others_shares, quiet_steps
from predict.reports.measurement import measurement_text
from predict.run.plan import Plan
from sampling.errors import UserError
from sampling.hardware.readings import busy_seconds
from tests.predict.measurement.train_variants import GPT, LLAMA, run_of

QUIET = StepUsage(wall_s=1.0, machine_s=1.9, ranks_s=1.85)
NOISY = StepUsage(wall_s=1.0, machine_s=2.0, ranks_s=1.5)


def measurement(times: tuple[float, ...], shares: tuple[float, ...]) -> Measurement:
    return Measurement(
        run="a",
        implementation="torch",
        step_times_us=times,
        others_shares=shares,
        losses=(4.0, 3.0),
        tokens_per_step=1000,
        parameters_per_rank=(7,),
        threads=2,
        versions={"torch": "2"},
    )


def test_runs_survive_the_way_to_the_ranks() -> None:
    run = run_of(Plan(tp=2, sp=True, recompute="full"), GPT)
    assert load_run(dump_run(run)) == run


@pytest.mark.parametrize(
    ("plan", "changes", "fault"),
    [
        (Plan(tp=2, dp=2), {}, r"plan\.tp: 2 with plan\.dp: 2"),
        (Plan(cp=2), {}, r"plan\.cp: 2"),
        (Plan(sp=True), {}, r"plan\.sp: true needs plan\.tp"),
        (Plan(dp=2, zero=3), {}, r"plan\.zero: 3"),
        (Plan(recompute="selective"), {}, r"plan\.recompute: 'selective'"),
        (Plan(pp=2, schedule="best"), {}, r"plan\.schedule: 'best' is not a schedule to run"),
        (Plan(pp=2, schedule="zb-auto"), {}, r"plan\.schedule: 'zb-auto' is solved for predicted times"),
        (Plan(pp=2, vpp=2, schedule="dualpipe"), {}, r"plan\.schedule: 'dualpipe' runs two copies"),
        (Plan(pp=2, dp=2, schedule="zb-h1"), {}, r"plan\.schedule: 'zb-h1' with plan\.dp: 2"),
        (Plan(pp=2, vpp=2, schedule="zbv"), {"layers": 3}, r"plan\.pp: 4 stages for 3 layers"),
        (Plan(pp=3, schedule="afab"), {"layers": 2}, r"plan\.pp: 3 stages for 2 layers"),
        (Plan(pp=2), {"tied": True}, r"plan\.pp: 2 with a tied head"),
        (Plan(tp=4), {}, r"model\.kv_heads: 2 is not a multiple of plan\.tp = 4"),
        (Plan(dp=3), {}, r"batch\.global: 8 is not a multiple of micro · dp = 2 · 3"),
        (Plan(), {"rope": False, "max_positions": 8}, r"batch\.seq_len: 16 is beyond the model's 8"),
    ],
)
def test_what_cannot_be_measured_is_named(plan: Plan, changes: Mapping[str, Any], fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        requirements.require_measurable(run_of(plan, replace(LLAMA, **changes)), "torch")


def test_all_faults_come_at_once() -> None:
    with pytest.raises(UserError) as raised:
        one_rank = run_of(Plan()).cluster
        subject = replace(run_of(Plan(cp=2, ep=2)), precision="fp8", cluster=one_rank)
        requirements.require_measurable(subject, "transformers")
    for fault in ("plan.cp", "plan.ep", "precision: fp8", "cluster of 1"):
        assert fault in str(raised.value)


def test_a_pipeline_needs_its_microbatches() -> None:
    run = run_of(Plan(pp=3))
    requirements.require_measurable(run, "torch")
    few = replace(run, batch=replace(run.batch, micro=4))
    with pytest.raises(UserError, match=r"1f1b needs at least plan\.pp = 3 microbatches; this run has 2"):
        requirements.require_measurable(few, "torch")


def test_a_missing_library_is_named_with_its_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'steptime\[transformers\]'"):
        requirements.require_measurable(run_of(Plan()), "transformers")
    requirements.require_measurable(run_of(Plan()), "torch")


def test_busy_time_leaves_out_idle_and_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    assert busy_seconds("cpu  1 2 4 8000 9000 16 32 64 500 600\ncpu0 0 0") == pytest.approx(1.19)


def test_a_long_step_is_judged_alone() -> None:
    shares = others_shares([QUIET, NOISY, QUIET], cores=2, tick_s=0.01)
    assert shares == pytest.approx([0.015, 0.24, 0.015])


def test_short_steps_are_judged_with_their_neighbours() -> None:
    quiet = StepUsage(wall_s=0.1, machine_s=0.2, ranks_s=0.2)
    burst = StepUsage(wall_s=0.1, machine_s=0.35, ranks_s=0.2)
    shares = others_shares([quiet, quiet, burst, quiet, quiet, quiet], cores=2, tick_s=0.01)
    expected = (0.15 - 0.02) / (2 * 0.3)
    assert shares == pytest.approx([expected, expected, expected, expected, 0, 0])


def test_no_share_is_below_zero() -> None:
    assert others_shares([StepUsage(wall_s=1.0, machine_s=1.0, ranks_s=1.1)], cores=2, tick_s=0.01) == [0.0]


def test_noisy_steps_are_left_out_unless_most_are() -> None:
    assert quiet_steps([0.0, 0.5, 0.02, 0.11]) == ([0, 2], False)
    assert quiet_steps([0.0, 0.5, 0.5]) == ([0, 1, 2], True)


def test_the_median_is_of_the_quiet_steps() -> None:
    result = measurement((190.0, 900.0, 210.0), (0.0, 0.4, 0.0))
    assert (result.median_us, result.dropped_steps, result.noise) == (200.0, 1, "")
    assert result.tokens_per_s == pytest.approx(5e6)
    shown = result.to_json()
    assert shown["step_time_us"] == {"median": 200.0, "p10": 192.0, "p90": 208.0, "all": [190.0, 900.0, 210.0]}
    assert shown["loss"] == {"first": 4.0, "last": 3.0}
    assert shown["dropped_steps"] == 1


@pytest.mark.parametrize(
    ("times", "share", "noise", "told"),
    [
        ((716.0, 780.0, 1020.0, 1340.0, 1650.0, 1967.0), 0.0, SPREAD, "the steps differ widely"),
        ((716.0, 780.0, 1020.0, 1340.0, 1650.0, 1967.0), 0.5, OTHERS, "other processes disturbed most steps;"),
        ((880.0, 900.0, 940.0, 1000.0, 1010.0, 1080.0, 1150.0, 1190.0), 0.0, "", "loss"),  # an ordinary machine
        ((*(1000.0, 1010.0, 990.0) * 3, 3000.0), 0.0, "", "loss"),  # one slow step of ten
    ],
)
def test_steps_that_differ_widely_are_noisy_beside_quiet_processes(
    times: tuple[float, ...], share: float, noise: str, told: str
) -> None:
    result = measurement(times, (share,) * len(times))
    assert result.noise == noise
    assert (result.to_json()["noisy"], result.to_json()["noise"]) == (bool(noise), noise)
    assert told in measurement_text(result).split("\n")[-1]


def test_rounds_are_pooled_step_by_step() -> None:
    both = pool([measurement((100.0, 120.0), (0.0, 0.0)), measurement((500.0, 140.0), (0.3, 0.0))])
    assert both.step_times_us == (100.0, 120.0, 500.0, 140.0)
    assert both.median_us == 120.0
    assert both.losses == (4.0, 3.0, 4.0, 3.0)


def test_a_summary_takes_the_first_ranks_clock_and_everyones_cpu_time() -> None:
    unknown = float("nan")
    ranks = [
        {
            "parameters": 10,
            "wall_s": [9.0, 1.0],
            "machine_s": [9.0, 1.5],
            "own_s": [1.0, 0.7],
            "losses": [unknown, unknown],
        },
        {"parameters": 20, "wall_s": [8.0, 0.9], "machine_s": [9.0, 1.4], "own_s": [1.0, 0.8], "losses": [4.0, 3.0]},
    ]
    result = summarize(
        run_of(Plan(pp=2)),
        "torch",
        {"ranks": ranks, "versions": {"torch": "2"}, "reference_us": {"compute": 500.0}},
        warmup=1,
    )
    assert result.step_times_us == (1e6,)
    assert result.others_shares == (0.0,)
    assert result.losses == (4.0, 3.0)
    assert result.parameters_per_rank == (10, 20)
    assert result.references_us == ({"compute": 500.0},)
