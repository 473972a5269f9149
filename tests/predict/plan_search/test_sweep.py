"""Sweeps: each row is the run's own prediction, a combination that cannot run keeps its reason, and the long table adds up."""

import csv
import io
from pathlib import Path

import pytest

import predict
from predict.plan_search.long_table import as_csv, columns, long_table, write_table
from predict.plan_search.sweep import Sweep
from predict.plan_search.training import OURS, SHARED, calibration_note
from predict.reports.sweep import count_text
from predict.run.calibration_terms import CalibratedRun, Calibration, Posterior
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS

RUN = CONFIGS / "runs" / "llama3-70b-64xh100.yml"


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return predict.sweep(RUN, ["plan.tp=1,4,8", "batch.seq_len=4k..8k"])


def test_rows_are_the_runs_own_predictions(sweep: Sweep) -> None:
    run = next(row for row in sweep.rows if row.settings == {"plan.tp": 8, "batch.seq_len": 4096})
    alone = predict.one_batch(RUN, ["plan.tp=8", "plan.dp=1", "batch.seq_len=4096"])
    assert run.prediction is not None
    assert run.prediction.median_us == alone.median_us
    assert run.prediction.run.plan.dp == 1, "dp takes the ranks that are left"


def test_a_combination_that_cannot_run_keeps_its_reason(sweep: Sweep) -> None:
    alone = [row for row in sweep.rows if row.settings["plan.tp"] == 1]
    assert len(alone) == 2
    assert all(row.prediction is None and "plan.sp: true needs plan.tp above 1" in row.reason for row in alone)
    assert all("with --vary plan.tp=1: " in row.reason and "--set" not in row.reason for row in alone)
    rows = long_table(sweep, commit="here")
    assert [row["reason"] != "" for row in rows] == [True, True, False, False, False, False]
    assert rows[0]["t_step"] is None


def test_nothing_that_can_run_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"plan\.sp: true needs"):
        predict.sweep(RUN, ["plan.tp=1"])


def test_the_long_table_adds_up(sweep: Sweep) -> None:
    names = columns(sweep)
    assert names[:27] == SHARED.split()
    assert len(names) == 27 + len(OURS.split()) + 2
    for row, swept in zip(long_table(sweep, commit="here"), sweep.rows, strict=True):
        if swept.prediction is None:
            continue
        assert list(row) == names
        memory = ("param_gb", "gradient_gb", "optim_gb", "activation_gb", "kv_gb", "buffer_gb")
        assert sum(row[name] for name in memory) == pytest.approx(row["peak_gb"])
        assert row["peak_gb"] == pytest.approx(swept.prediction.memory.point_bytes / 1e9)
        times = ("t_compute", "t_memory", "t_comm", "t_idle")
        assert sum(row[name] for name in times) == pytest.approx(row["t_step"])
        assert all(row[name] > 0 for name in times)
        assert row["t_step_low"] < row["t_step"] < row["t_step_high"]
        assert row["mfu"] == pytest.approx(row["flops_required"] / row["t_step"] / (989e12 * row["n_cards"]))
        assert (row["sp"], row["commit"]) == (row["tp"], "here")
        assert row["calibration_note"] == "100% analytic; no calibration"


def test_csv_and_parquet_hold_the_same(sweep: Sweep, tmp_path: Path) -> None:
    rows, names = long_table(sweep, commit="here"), columns(sweep)
    read = list(csv.DictReader(io.StringIO(as_csv(rows, names))))
    assert [row["batch.seq_len"] for row in read] == ["4096", "8192"] * 3
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    write_table(tmp_path / "sweep.parquet", rows, names)
    write_table(tmp_path / "sweep.csv", rows, names)
    parquet, text = pandas.read_parquet(tmp_path / "sweep.parquet"), pandas.read_csv(tmp_path / "sweep.csv")
    assert list(parquet.columns) == list(text.columns) == names
    assert list(parquet["t_step"].dropna()) == pytest.approx(list(text["t_step"].dropna()))


def test_progress_is_reported_for_each_row() -> None:
    reported: list[tuple[int, int]] = []
    predict.sweep(RUN, ["batch.micro=1,2"], progress=lambda done, of, name: reported.append((done, of)))
    assert reported == [(1, 2), (2, 2)]


def test_the_note_names_what_a_calibration_rests_on() -> None:
    run = CalibratedRun(run="first", measured_us=1.0, before_us=1.0, after_us=1.0, left_out_us=1.0)
    posterior = Posterior(terms=Calibration(), runs=(run,), date="2026-11-22")
    assert calibration_note({"analytic": 0.9999, "measured": 0.0001}, posterior) == (
        "100% analytic; calibrated on first, 2026-11-22"
    )


def test_combinations_are_counted_by_their_verdicts_and_the_best_is_never_one_that_is_oom() -> None:
    found = predict.sweep(RUN, ["batch.micro=1,16", "plan.tp=1,8"])
    assert count_text(found) == "llama3-70b-64xh100: 4 combinations, 1 FITS, 1 OOM, 2 refused"
    ordered = [row.prediction.memory.verdict for row in found.ordered("time").rows if row.prediction]
    assert ordered == ["FITS", "OOM"]
