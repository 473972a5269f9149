"""`predict serving-fit`: coefficients of a step model fitted to measured serving runs."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from predict.cli.options import (
    add_data,
    add_json,
    add_overrides,
    given,
    log,
    print_json,
    require_writable,
    write_json,
)
from sampling.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from predict.serving.coefficients import Coefficients

MOST_OFF = math.log(2)
"""Log half-width beyond which a fit is of no use."""
EXAMPLES = """\
examples:
  predict serving-fit docs/examples/serving --model formula --source made-up
  predict serving-fit docs/examples/answered/*.csv --config configs/serving/llama3-8b-h100.yml --output mine.json
"""
DESCRIPTION = """\
Fit the coefficients of a step model to measured serving runs.

TRACES is a folder with serving_experiments.csv, a row for each stage of runs of any servers. Or, with --config, it is files of requests
that one server answered, a file for each of three loads or more: CSV tables of arrival_s, prompt, output, ttft_ms, e2e_ms and, where
prompts repeat, prompt_id; or .json: per-request lifecycle metrics of inference-perf, or what `vllm bench serve --save-detailed` writes.

With --config they may also be the engine's own steps: CSV tables of step_ms, decodes, decode_context and, where the step computes prompts,
prefills, prefill_tokens, prefill_context; contexts are tokens in the cache, those of all requests of the step together.

Weights are least squares within physical bounds about stated priors, on the time per output token at the measured load, each stage
weighed by how much a simulation amplifies its error; the client's part of TTFT follows from simulations. Intervals are those of
leaving out one experiment, or file, at a time. --source says what the runs are.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "traces",
        type=Path,
        nargs="+",
        metavar="TRACES",
        help="folder of serving_experiments.csv; with --config, files of requests or of steps",
    )
    command.add_argument("--config", metavar="CONFIG", help="serving config (YAML) of the server that answered")
    command.add_argument("--model", default="kernels", metavar="NAME", help="kernels (the default) or formula")
    command.add_argument(
        "--source", default="", metavar="TEXT", help="provenance of the runs, kept with the coefficients"
    )
    command.add_argument("--output", type=Path, metavar="FILE", help="write the coefficients there (.json)")
    add_overrides(command)
    add_data(command)
    add_json(command)


def run(options: argparse.Namespace) -> None:
    require_writable("--output", options.output)
    from predict.reports.serving.step import coefficients_text
    from predict.reports.text import show
    from predict.serving.coefficients import coefficients_json

    found = _fitted_to_files(options) if options.config else _fitted_to_stages(options)
    _require_usable(found)
    if options.output:
        write_json("--output", options.output, coefficients_json(found))
        log(f"wrote {options.output}")
    if options.json:
        print_json(coefficients_json(found))
    else:
        show(coefficients_text(found))


def _require_usable(found: Coefficients) -> None:
    """UserError for coefficients that say nothing of the measurements they were fitted to."""
    if found.half_width > MOST_OFF:
        raise UserError(
            f"TRACES: what is left out of the fit differs from it by a factor of {math.exp(found.half_width):.3g} (at most {math.exp(MOST_OFF):.0f}): these are "
            "no times of this server; check the units (times in ms), and that CONFIG has the model, GPU and engine that was measured"
        )


def _fitted_to_files(options: argparse.Namespace) -> Coefficients:
    from predict.serving.config import load_serving
    from predict.serving.fit_own_server import fitted_to_log, fitted_to_requests, is_step_log
    from predict.serving.step_model import step_model

    if folders := [str(path) for path in options.traces if path.is_dir()]:
        raise UserError(
            f"--config: goes with files of requests or of steps, and {folders[0]} is a folder; give one of the two"
        )
    _require_different(options.traces)
    run, model = load_serving(options.config, options.overrides), step_model(options.model)
    names, logs = ", ".join(map(str, options.traces)), [path for path in options.traces if is_step_log(path)]
    if not logs:
        return fitted_to_requests(run, options.traces, model, options.source or f"requests of {names}")
    if others := [str(path) for path in options.traces if path not in logs]:
        raise UserError(f"TRACES: {logs[0]} has steps, and {others[0]} has none; give files of one kind")
    return fitted_to_log(run, options.traces, model, options.source or f"steps of {names}")


def _require_different(traces: Sequence[Path]) -> None:
    """UserError for a file that is given more than once: it would be left out of a fit that still has it."""
    times = Counter(path.resolve() for path in traces)
    if again := [str(path) for path in dict.fromkeys(traces) if times[path.resolve()] > 1]:
        raise UserError(f"TRACES: {', '.join(again)}: the same file more than once; give each file once")


def _fitted_to_stages(options: argparse.Namespace) -> Coefficients:
    from predict.serving.step_model import step_model
    from predict.validation.serving import fitted_coefficients
    from predict.validation.serving_rows import read_stages

    folder, *more = options.traces
    if more or folder.is_file():
        raise UserError(f"--config: missing; {more[0] if more else folder} is taken for requests of one server")
    if extra := given(options, "overrides"):
        raise UserError(f"{', '.join(extra)}: goes with --config; omit it")
    return fitted_coefficients(read_stages(folder, "TRACES"), step_model(options.model), options.source or str(folder))
