"""Published jobs: the table that ships is predicted whole, and its figures are those of their sources."""

import gzip
import re
from pathlib import Path

import pytest

from predict.interval import Interval
from predict.validation.compared import Refused
from predict.validation.jobs import JOBS, SHIPPED_JOBS, ComparedFigure, jobs_json, validate_jobs
from predict.validation.published_row import read_rows
from tests.predict.command import Command

TRACES = Path(__file__).parents[4] / "shared" / "data" / "traces" / "mlperf_v5.1"
LOGS = {
    "mlperf-405b-512xgb200": "llama31_405b_512xGB200_nvfp4_tp4pp8cp2.txt.gz",
    "mlperf-8b-32xb200": "llama31_8b_32xB200_fp8_cp2.txt.gz",
    "mlperf-8b-64xh200": "llama31_8b_64xH200_fp8_cp2.txt.gz",
    "mlperf-8b-8xmi355x": "llama31_8b_8xMI355X.txt.gz",
}
ROW = (
    "model=llama3-8b cluster.hardware=h100-sxm cluster.nodes=1 cluster.gpus_per_node=8 plan.dp=8 plan.zero=1 batch.global=64 batch.micro=1 "
    "batch.seq_len=4096 precision=bf16"
)


def table(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(("row_id,source,settings,tokens,beside,phases,gpu_hours,kept_share", *rows)) + "\n")
    return path


def test_figures_stand_beside_their_predictions(tmp_path: Path) -> None:
    found = validate_jobs(table(tmp_path, f"a,x,{ROW},100B,save_min=60,10B batch.global=32,3000,0.9"))
    figures = {one.figure: one for one in found if isinstance(one, ComparedFigure)}
    assert set(figures) == {"gpu_hours", "kept_share"}
    assert figures["gpu_hours"].predicted.covers(figures["gpu_hours"].predicted.median)
    assert jobs_json(found)["figures"][0]["published"] == 3000


def test_boards_take_less_than_their_limit_over_the_median_hours_of_a_job_whose_mean_is_far_above(
    tmp_path: Path,
) -> None:
    often = f"{ROW},100B,gpu_hours_a_failure=800 failure_factor=8 save_min=1200,,1"
    (path := tmp_path / "jobs.csv").write_text(
        f"row_id,source,settings,tokens,beside,phases,energy_mwh,energy_of\na,x,{often},boards\nb,x,{often},limit\n"
    )
    boards, limit = (one.predicted.median for one in validate_jobs(path) if isinstance(one, ComparedFigure))
    assert 0.5 * limit < boards < limit


def test_a_lower_bound_is_no_error_from_above() -> None:
    above, below = (
        ComparedFigure(
            predicted=Interval.from_log(share, 0.01),
            measured=0.9,
            row_id="a",
            figure="kept_share",
            source="",
            at_least=True,
        )
        for share in (0.95, 0.8)
    )
    assert (above.error, above.covered) == (0.0, True)
    assert below.error == pytest.approx(-1 / 9) and not below.covered


def test_a_row_that_cannot_be_predicted_says_why(tmp_path: Path) -> None:
    rows = [f"a,x,{ROW} plan.tpp=2,100B,,,1,", f"b,x,{ROW},2X,,,1,", f"c,x,{ROW},1T,detect=3,,1,"]
    found = validate_jobs(table(tmp_path, *rows))
    assert all(isinstance(one, Refused) for one in found)
    reasons = " ".join(one.why for one in found if isinstance(one, Refused))
    assert "did you mean 'tp'" in reasons and "2X" in reasons and "detect" in reasons


def test_the_shipped_table_has_a_source_for_each_row_and_is_predicted_whole(command: Command) -> None:
    assert all(row.text("source") and row.text("url") for row in read_rows(SHIPPED_JOBS, columns=JOBS))
    found = command.json("validate", "jobs")
    assert not found["refused"]
    assert {one["row_id"] for one in found["figures"]} == {row.row_id for row in read_rows(SHIPPED_JOBS, columns=JOBS)}


@pytest.mark.skipif(not TRACES.is_dir(), reason="the logs of ../shared are not beside the clone")
@pytest.mark.parametrize("row_id", LOGS)
def test_minutes_are_those_of_the_log(row_id: str) -> None:
    (row,) = (row for row in read_rows(SHIPPED_JOBS, columns=JOBS) if row.row_id == row_id)
    text = gzip.decompress((TRACES / LOGS[row_id]).read_bytes()).decode(errors="replace")
    at = {key: int(ms) for ms, key in re.findall(r'MLLOG.*?"time_ms": (\d+).*?"key": "(run_start|run_stop)"', text)}
    assert row.number("minutes") == pytest.approx((at["run_stop"] - at["run_start"]) / 60_000, abs=0.01)
