"""`predict record` and `predict history`: runs kept, the error over time, drift and the term that explains it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from predict import estimate, load
from predict.measured_runs.history import changes, explanations
from predict.measured_runs.measured_step import MeasuredStep
from predict.measured_runs.records import keep, record_of, records
from predict.run.calibration_file import scaled
from predict.run.calibration_terms import TERMS, Calibration
from tests.predict.command import Command

CONFIG = "configs/runs/llama3-70b-64xh100.yml"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPTIME_DATA", str(tmp_path))
    return tmp_path


def test_a_run_is_recorded_once_and_shown(command: Command, data: Path) -> None:
    record = ["record", CONFIG, "--log", "14.9s", "--date", "2026-03-12", "--cluster", "pod-a"]
    first, again = command.json(*record), command.json(*record)
    assert (first["new"], again["new"], first["file"]) == (True, False, again["file"])
    assert first["measured"]["step_us"] == 14.9e6
    command.json("record", CONFIG, "--set", "batch.global=256", "--log", "29s", "--cluster", "pod-a")
    assert len([*(data / "runs/pod-a").iterdir()]) == 2
    assert f"the same step already ({Path(first['file']).stem[-12:-5]})" in command.notes(
        *record, "--date", "2026-03-13"
    )
    (cluster,) = command.json("history")["clusters"]
    assert cluster["runs"][0]["date"][:10] == "2026-03-12"
    assert cluster["runs"][0]["predicted_now_us"] == pytest.approx(estimate(load(CONFIG)).median_us)


def test_runs_since_a_day_and_the_last_ones_are_shown_and_one_is_removed(command: Command, data: Path) -> None:
    new = data / "new"
    for date in ("2026-03-12T23:30:00+00:00", "2026-03-14", "2026-03-13T10:00"):
        command.json("record", CONFIG, "--log", "14.9s", "--date", date, "--cluster", "pod-a", "--data", str(new))
    (cluster,) = command.json("history")["clusters"]
    runs = cluster["runs"]
    assert [each["date"][:10] for each in runs][1:] == ["2026-03-13", "2026-03-14"]
    assert not any("+" in each["date"] for each in runs)
    (cluster,) = command.json("history", "--since", "2026-03-13", "--last", "1")["clusters"]
    assert (cluster["runs"], cluster["earlier_runs"]) == (runs[2:], 2)
    assert "its last is from 2026-03-14" in command.refused("history", "pod-a", "--since", "2026-03-15")
    removed = command.json("record", "--remove", runs[1]["id"])["removed"]
    assert not Path(removed).exists()
    (cluster,) = command.json("history", "pod-a")["clusters"]
    assert cluster["runs"] == [runs[0], runs[2]]


def test_a_cluster_with_only_jobs_has_no_history_and_its_job_is_removed(command: Command) -> None:
    kept = command.json("record", CONFIG, "--job", "hours=900", "--job", "failures=4", "--cluster", "pod-b")["file"]
    assert "no run is recorded" in command.refused("history", code=3)
    command.json("record", CONFIG, "--log", "14.9s", "--cluster", "pod-a")
    assert [each["cluster"] for each in command.json("history")["clusters"]] == ["pod-a"]
    command.json("record", "--remove", Path(kept).stem[-12:])
    assert not Path(kept).exists()


def test_a_run_that_calibrate_refuses_is_kept_but_not_counted_until_another_bears_it_out(command: Command) -> None:
    def record(step: str, day: int) -> str:
        return command.notes("record", CONFIG, "--log", step, "--cluster", "pod-a", "--date", f"2026-03-{day:02d}")

    assert "further off than the terms" not in record("14.9s", 1)
    assert "further off than the terms" in (warning := record("90s", 2))
    assert "does not count it until another run of this config takes about as long" in warning
    (cluster,) = command.json("history", "pod-a")["clusters"]
    assert [bool(each["doubt"]) for each in cluster["runs"]] == [False, True]
    assert (cluster["mean_error"], cluster["bias"]) == (abs(cluster["runs"][0]["error"]), cluster["runs"][0]["error"])
    (alone,) = command.json("history", "pod-a", "--last", "1")["clusters"]
    assert alone["mean_error"] is None
    assert "2 runs, of which 1 counts: mean error" in command.text("history", "pod-a")
    assert "counts it all the same" in record("95s", 3)
    (cluster,) = command.json("history", "pod-a")["clusters"]
    assert not any(each["doubt"] for each in cluster["runs"])
    assert cluster["mean_error"] > 0.5
    assert all("further off than the terms" in record(step, 4) for step in ("40s", "300s"))
    assert command.text("history", "pod-a").count("further off than the terms") == 1


def test_two_writers_do_not_meet_and_a_damaged_file_stops_no_other(data: Path, command: Command) -> None:
    run = load(CONFIG)
    prediction = estimate(run)

    def written(second: int) -> bool:
        step = MeasuredStep(step_us=14e6 + second % 20, p10_us=14e6, p90_us=14e6, source="a", date="2026-03-12")
        return keep(record_of(run, "pod-a", step, prediction, ""))[1]

    with ThreadPoolExecutor(8) as pool:
        assert sum(list(pool.map(written, range(40)))) >= 20
    assert len(records("pod-a", print)) == 20
    (damaged, *_) = (data / "runs/pod-a").iterdir()
    damaged.write_text(damaged.read_text()[:100])
    (cluster,) = command.json("history")["clusters"]
    assert len(cluster["runs"]) == 19
    for place in (data / "runs/pod-a").iterdir():
        place.write_text("{")
    assert "remove the file, or record the run anew" in command.refused("history", code=3)


def test_a_slower_network_since_march_is_reported_and_explained(command: Command) -> None:
    """Three plans that depend on the network by different amounts, the last half on one that takes twice as long."""
    for setting in ("batch.global=128", "batch.global=16", "plan.dp=16"):
        more = ["plan.tp=4", "plan.pp=1", "plan.cp=1"] if setting == "plan.dp=16" else []
        run = load(CONFIG, ["plan.schedule=1f1b", "plan.vpp=1", "execution.gradient_dtype=fp32", setting, *more])
        prediction = estimate(run, require_fit=False)
        slower = estimate(scaled(run, Calibration(between_nodes=2.0)), require_fit=False).median_us
        for day in range(1, 9):
            step_us = (slower if day > 4 else prediction.median_us) * (1 + 0.004 * (day % 3 - 1))
            step = MeasuredStep(
                step_us=step_us, p10_us=step_us, p90_us=step_us, source="a", date=f"2026-03-{day + 7:02d}"
            )
            keep(record_of(replace(run, calibration=None), "pod-a", step, prediction, ""))
    (cluster,) = command.json("history", "pod-a")["clusters"]
    (drift,) = cluster["drifts"]
    assert (drift["since"][:10], drift["before"], drift["after"]) == ("2026-03-12", 12, 12)
    assert drift["factor"] > 1.01
    assert drift["explained_by"][0]["term"] == "between_nodes"
    assert drift["explained_by"][0]["factor"] == pytest.approx(2.0, rel=0.1)
    assert drift["explained_by"][0]["share"] > 0.9
    shown = command.text("history", "pod-a", "--since", "2026-03-14")  # it is in force, though it came before
    assert "since 2026-03-12 (before the runs shown) steps are" in shown


# Changes in recorded steps: found where they are, seldom where there are none.

NOISE = 0.02


def series(random: np.random.Generator, runs: int, configurations: int) -> tuple[list[float], list[int]]:
    """Runs of configurations that are each off by something of their own."""
    of = random.integers(0, configurations, runs)
    return list(random.normal(0, 0.1, configurations)[of] + random.normal(0, NOISE, runs)), of.tolist()


def test_histories_without_a_change_seldom_look_changed() -> None:
    random = np.random.default_rng(0)
    alarms = sum(bool(changes(*series(random, 12, 2))) for _ in range(60))
    assert alarms <= 3  # of 0.6 expected; more in 1 of 300 such tests


@pytest.mark.parametrize("shift", [0.06, -0.06])
def test_a_change_is_found_where_it_is(shift: float) -> None:
    random = np.random.default_rng(2)
    near, shifts = 0, []
    for _ in range(10):
        logs, of = series(random, 25, 2)
        found = changes([log + shift * (run >= 15) for run, log in enumerate(logs)], of)
        shifts += [each.shift for each in found]
        near += any(abs(each.place - 15) <= 1 and each.chance <= 0.01 for each in found)
    assert near >= 7  # 9 of 10 expected
    assert np.median(shifts) == pytest.approx(shift, abs=0.01)


def test_a_change_too_small_to_matter_is_not_reported() -> None:
    assert changes([0.001 * (run >= 15) for run in range(25)], [0] * 25) == []


def test_two_changes_are_both_found() -> None:
    logs, of = series(np.random.default_rng(1), 40, 1)
    found = changes([log + 0.1 * (12 <= run < 26) for run, log in enumerate(logs)], of)
    assert [(each.place, round(each.shift, 1)) for each in found] == [(12, 0.1), (26, -0.1)]


def test_other_configurations_are_not_a_change() -> None:
    """Runs before and after that have no configuration in common tell nothing of the cluster."""
    random = np.random.default_rng(3)
    logs = [*random.normal(0, NOISE, 10), *random.normal(0.2, NOISE, 10)]
    assert changes(logs, ["a"] * 10 + ["b"] * 10) == []
    assert changes(logs, list(range(20))) == changes(logs[:2], ["a", "a"]) == changes([], []) == []


def test_the_term_that_the_moved_steps_depend_on_explains_a_change() -> None:
    slopes = np.zeros((3, len(TERMS)))
    slopes[:, TERMS.index("products")] = [0.8, 0.7, 0.5]
    slopes[:, TERMS.index("between_nodes")] = [0.05, 0.15, 0.4]

    def respond(term: str, log: float) -> NDArray[np.float64]:
        moved: NDArray[np.float64] = slopes[:, TERMS.index(term)] * log
        return moved

    def explained(shifts: list[float]) -> list[str]:
        found = explanations(np.array(shifts), np.full(3, 4.0), respond, NOISE)
        return [each.term for each in found]

    assert explained([0.02, 0.06, 0.16]) == ["between_nodes"]
    assert explained([0.064, 0.056, 0.04])[0] == "products"
    assert explained([-2.0, -2.0, -2.0]) == []  # beyond every bound
