"""A log read from its text."""

from pathlib import Path

from predict.measured_runs.logs import read_log, read_served_log
from predict.measured_runs.served_log import ServedLog
from predict.measured_runs.steady_state import RunLog


def log(tmp_path: Path, text: str, name: str = "train.log") -> RunLog:
    path = tmp_path / name
    path.write_text(text)
    return read_log(path)


def served(tmp_path: Path, text: str, name: str = "server.log") -> ServedLog:
    path = tmp_path / name
    path.write_text(text)
    return read_served_log(path)


def steps_us(read: RunLog) -> list[tuple[int, float | None]]:
    """(step, µs) of each line that states a time."""
    return [(each.step, each.time_us and round(each.time_us)) for each in read.steps]
