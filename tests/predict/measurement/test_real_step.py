"""A real measurement from launch to result."""

from pathlib import Path

import pytest

from predict.measurement.real_step import measure, measure_interleaved, summarize
from predict.measurement.requirements import require_no_other_traces, trace_name
from predict.run.plan import Plan
from sampling.errors import UserError
from sampling.store.pace_log import References
from tests.predict.measurement.train_variants import run_of

REFERENCES = {"time_us": {"compute": 500.0}, "disturbance": {"compute": 1.1}}


@pytest.mark.usefixtures("starts_warm")
def test_measures_in_rounds_and_tells_of_them() -> None:
    reported: list[str] = []
    (result,) = measure_interleaved(
        [(run_of(Plan(pp=2)), "torch")], rounds=1, steps_per_round=4, progress=reported.append
    )
    assert len(reported) == 1
    assert reported[0].startswith("measured 1 of 1: tiny llama-like ")
    assert len(result.step_times_us) == 4
    assert len(result.losses) == 7
    assert result.losses[-1] < result.losses[0] - 0.05
    assert result.p10_us <= result.median_us <= result.p90_us
    assert result.threads == 1
    assert len(result.parameters_per_rank) == 2
    assert result.tokens_per_s == pytest.approx(8 * 16 / (result.median_us / 1e6))


def test_a_run_that_cannot_be_measured_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("launched")

    monkeypatch.setattr("predict.measurement.real_step.run_in_processes", refuse)
    with pytest.raises(UserError, match=r"plan\.cp: 2 is not measured"):
        measure(run_of(Plan(cp=2)))


def test_traces_of_an_earlier_run_with_more_ranks_are_left_alone_and_named(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / trace_name(rank)).touch()
    require_no_other_traces(tmp_path, 3)
    with pytest.raises(UserError, match=r"^--trace: .* holds rank2\.json\.gz of an earlier run"):
        measure(run_of(plan=Plan(dp=2)), trace=tmp_path)


def test_a_summary_takes_the_first_ranks_clock_and_everyones_cpu_time() -> None:
    unknown = float("nan")
    ranks = [
        {
            "parameters": 10,
            "wall_s": [9.0, 1.0],
            "machine_s": [9.0, 1.5],
            "own_s": [1.0, 0.7],
            "waited_s": [0.0, 0.1],
            "losses": [unknown, unknown],
        },
        {
            "parameters": 20,
            "wall_s": [8.0, 0.9],
            "machine_s": [9.0, 1.4],
            "own_s": [1.0, 0.8],
            "waited_s": [0.0, 0.3],
            "losses": [4.0, 3.0],
        },
    ]
    result = summarize(
        run_of(Plan(pp=2)),
        "torch",
        {"ranks": ranks, "versions": {"torch": "2"}, "references": REFERENCES},
        warmup=1,
    )
    assert result.step_times_us == (1e6,)
    assert result.others_shares == (0.0,)
    assert result.losses == (4.0, 3.0)
    assert result.parameters_per_rank == (10, 20)
    assert result.references == (References(**REFERENCES),)
