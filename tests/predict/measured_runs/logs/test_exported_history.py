"""Histories of W&B and scalars of TensorBoard."""

from pathlib import Path

import pytest

from predict.measured_runs.logs import read_log
from sampling.errors import UserError
from tests.predict.measured_runs.logs.log_text import log

EXPORTS = {
    "W&B's chart": '"Step","run - train/step_time","run - train/step_time__MIN","run - train/step_time__MAX"\n"1","2.5","2.4","2.6"\n',
    "W&B's history": '{"_step": 1, "_runtime": 9.0, "perf/time_per_step": 2.5}\n{"_step": 2, "loss": "NaN"}\n',
    "a column in ms": "global_step,iteration_time_ms\n1,2500\n",
    "TensorBoard's scalar": "Wall time,Step,Value\n1700000000.0,0,11.0\n1700000010.0,4,10.0\n",
    "TensorBoard's JSON": "[[1700000000.0, 0, 11.0], [1700000010.0, 4, 10.0]]",
    "W&B's clock": '{"_step": 0, "_timestamp": 1000.0}\n{"_step": 2, "_timestamp": 1005.0}\n',
}


@pytest.mark.parametrize("text", EXPORTS.values(), ids=EXPORTS)
def test_exported_histories(text: str, tmp_path: Path) -> None:
    read = log(tmp_path, text, "history.csv")
    assert [each.time_us for each in read.steps] == [2_500_000]


@pytest.mark.parametrize(
    "odd", ['"' + 140_000 * "x", '{"_step": 1' + 400 * "0" + "}"], ids=["a stray quote", "a long number"]
)
def test_an_odd_line_breaks_no_reader(odd: str, tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    path.write_text(("global_step,iteration_time_ms\n" if odd.startswith('"') else '{"_step": 0}\n') + odd)
    with pytest.raises(UserError, match="history"):
        read_log(path)
