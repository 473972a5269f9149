"""Measured step times as a user gives them: `412ms`, `3.2s`, or a file of `predict measure --json`, one for each config."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from predict.calibrate.fit import MeasuredRun
from predict.calibrate.refusals import AT_ODDS
from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from sampling.files.documents import read_json

US = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6, "min": 60e6}
HOW = "give a number with its unit, such as 412ms or 3.2s, or a file that `predict measure CONFIG --json` wrote"
REPEATS = 0.06
"""Standard deviation in log time of repeats of one run: 2 to 6 % between published ones."""


def measured_runs(runs: Sequence[TrainingRun], given: Sequence[str]) -> list[MeasuredRun]:
    """The measured runs, equal ones as one with the median time. UserError lists every time that cannot be read, and repeats that
    differ too much."""
    if len(runs) != len(given):
        counted = f"{len(runs)} config{'s' if len(runs) > 1 else ''}"
        raise UserError(f"--measured: {len(given)} times for {counted}; give one for each, in their order")
    read = [step_us(text) for text in given]
    if faults := [found for found in read if isinstance(found, str)]:
        raise UserError("\n".join(faults))
    grouped: list[tuple[TrainingRun, list[float]]] = []
    for run, time_us in zip(runs, read, strict=True):
        assert isinstance(time_us, float)
        same = next((times for known, times in grouped if known == run), None)
        if same is None:
            grouped.append((run, [time_us]))
        else:
            same.append(time_us)
    if faults := [*_unlike_repeats(grouped)]:
        raise UserError("\n".join(faults))
    return [MeasuredRun(name=run.name, runs=(run,), measured_us=median(times)) for run, times in grouped]


def _unlike_repeats(grouped: Sequence[tuple[TrainingRun, list[float]]]) -> Iterator[str]:
    for run, times in grouped:
        if math.log(max(times) / min(times)) > AT_ODDS * REPEATS:
            told = ", ".join(f"{time_us / 1e6:.4g} s" for time_us in times)
            yield f"--measured: {run.name}: {told} for one config differ by more than repeats do; leave out what is wrong"


def step_us(text: str) -> float | str:
    """The time in µs, or what is wrong with it."""
    if re.fullmatch(r".+\.json", text):
        return _of_file(Path(text))
    found = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?)\s*([a-zµ]+)", text.strip())
    try:
        time_us = float(found[1]) * US[found[2]] if found else 0.0
    except (ValueError, KeyError):
        time_us = 0.0
    return time_us if 0 < time_us < math.inf else f"--measured: {text!r} is not a time; {HOW}"


def _of_file(path: Path) -> float | str:
    content, faults = read_json(path)
    times = content.get("step_time_us") if content else None
    time_us = times.get("median") if isinstance(times, dict) else None
    if isinstance(time_us, int | float) and time_us > 0:
        return float(time_us)
    why = faults[0].problem if faults else "holds no step_time_us.median"
    return f"--measured: {path}: {why}; {HOW}"
