"""Coefficients of a step model fitted to measured serving runs: of one server, or of the stages of experiments."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from predict.serving.coefficients import Coefficients
from predict.serving.config import load_serving
from predict.serving.fit_own_server import fitted_to_log, fitted_to_requests, is_step_log
from predict.serving.fit_stages import fitted_coefficients
from predict.serving.stages import FILE, read_stages
from predict.serving.step_model import step_model
from sampling.errors import UserError
from sampling.number_text import count, plain

MOST_OFF = math.log(2)
"""Log half-width beyond which a fit is of no use."""


def serving_fit(
    traces: Sequence[Path | str],
    overrides: Sequence[str] = (),
    *,
    config: Path | str | None = None,
    model: str = "kernels",
    source: str = "",
) -> Coefficients:
    """The coefficients of a step model, fitted to a folder of serving_experiments.csv, or to files of requests or of steps of the server
    of a serving config. `source` says what the runs are, and is kept with the coefficients.

    UserError for files of several kinds, and for a fit that is of no use.
    """
    paths = [Path(each) for each in traces]
    if not paths:
        raise UserError(f"TRACES: none are given; give the folder of {FILE}, or files of one server with its config")
    found = _of_files(paths, overrides, config, model, source) if config else _of_stages(paths, model, source)
    if found.half_width > MOST_OFF:
        raise UserError(
            f"TRACES: what is left out of the fit differs from it by a factor of {plain(math.exp(found.half_width))} (at most {count(math.exp(MOST_OFF))}): these are "
            "no times of this server; check the units (times in ms), and that CONFIG has the model, GPU and engine that was measured"
        )
    return found


def _of_files(
    traces: Sequence[Path], overrides: Sequence[str], config: Path | str, model: str, source: str
) -> Coefficients:
    if folders := [str(path) for path in traces if path.is_dir()]:
        raise UserError(
            f"--config: applies only to files of requests or of steps, and {folders[0]} is a folder; give one of the two"
        )
    _require_different(traces)
    run, known = load_serving(config, overrides), step_model(model)
    names, logs = ", ".join(map(str, traces)), [path for path in traces if is_step_log(path)]
    if not logs:
        return fitted_to_requests(run, traces, known, source or f"requests of {names}")
    if others := [str(path) for path in traces if path not in logs]:
        raise UserError(f"TRACES: {logs[0]} has steps, and {others[0]} has none; give files of one kind")
    return fitted_to_log(run, traces, known, source or f"steps of {names}")


def _require_different(traces: Sequence[Path]) -> None:
    """UserError for a file that is given more than once: it would be left out of a fit that still has it."""
    times = Counter(path.resolve() for path in traces)
    if again := [str(path) for path in dict.fromkeys(traces) if times[path.resolve()] > 1]:
        raise UserError(f"TRACES: {', '.join(again)}: the same file more than once; give each file once")


def _of_stages(traces: Sequence[Path], model: str, source: str) -> Coefficients:
    folder, *more = traces
    if more or folder.is_file():
        raise UserError(f"--config: missing; {more[0] if more else folder} is taken for requests of one server")
    return fitted_coefficients(read_stages(folder, "TRACES"), step_model(model), source or str(folder))
