"""`predict serving`: a server under a load: latencies, throughput, the use of its cache, and the load that it can carry."""

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path

from predict import serving_answer
from predict.cli import options as cli
from predict.interval import Interval
from predict.reports.pictures.charts import sweep_figure
from predict.reports.pictures.figure_file import save_figure
from predict.reports.serving import answer_json, answer_text
from predict.serving.coefficients import chosen_coefficients
from predict.serving.config import load_serving
from predict.serving.loaded_server import LoadOutcome
from predict.serving.questions import questions_of
from sampling.command_line import log
from sampling.errors import Checks, UserError
from sampling.extras import require_library
from sampling.number_text import as_given
from sampling.progress import progress_display

EXAMPLES = """\
examples:
  predict serving configs/serving/llama3-8b-h100.yml
  predict serving configs/serving/llama3-8b-h100.yml --set load.rate=20 --set placement.tp=2
  predict serving configs/serving/llama3-8b-h100.yml --slo ttft_p90=1s --slo tpot_p90=50ms --price 2.5/gpu-h
  predict serving configs/serving/mixtral-2xh100.yml --sweep rate=2,8,16 --json
  predict serving configs/serving/llama3-8b-h100.yml --sweep rate=2..26..4 --find-capacity -o out/sweep.svg
"""
DESCRIPTION = """\
Predict a server under a load by simulating the steps of its engine: vLLM V1's scheduler around a model of the step.

E2E, TTFT and TPOT have a mean, percentiles, and a 90 % interval of the mean, from steps at the bounds of theirs. --find-capacity
adds the rate beyond which the queue grows, --slo the highest rate at which objectives hold and what stands against a higher one, --price
the cost of a million tokens. --sweep rate=2,8,16 or rate=2..16..2 predicts several rates, which -o draws.
"""
RANGE = re.compile(r"(?P<first>[\d.]+)\.\.(?P<last>[\d.]+)\.\.(?P<step>[\d.]+)")
MOST_RATES = 100
LEAST_PLOTTED = 2
SUFFIXES = (".svg", ".png")


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", metavar="CONFIG", help="serving config (YAML), as in configs/serving")
    cli.add_step_model(command)
    command.add_argument(
        "--find-capacity", action="store_true", help="the rate beyond which the queue grows, with its interval"
    )
    command.add_argument("--sweep", metavar="rate=VALUES", help="several rates: rate=2,8,16 or rate=FIRST..LAST..STEP")
    command.add_argument("-o", "--output", type=Path, metavar="FILE", help="a plot of the sweep, .svg or .png")
    cli.add_serving_questions(command)
    cli.add_settings(command, of_servers=True)
    cli.add_json(command)


def run(options: argparse.Namespace) -> None:
    rates = _checked_rates(options)
    with progress_display("requests simulated") as show_progress:
        found = serving_answer(
            options.config,
            options.overrides,
            find_capacity=options.find_capacity,
            rates=rates,
            slo=options.slo,
            price=options.price,
            model=options.model,
            coefficients=options.coefficients,
            progress=lambda done, of: show_progress(done, of, ""),
        )
    if options.output:
        _write_plot(options, found.outcomes, found.capacity)
    cli.print_answer(options, found, answer_json, answer_text)


def _checked_rates(options: argparse.Namespace) -> tuple[float, ...]:
    """The rates of --sweep; UserError with every fault of the options, and of the config beside them, before anything is simulated."""
    rates: tuple[float, ...] = ()
    with Checks() as checks:
        with checks.one():
            rates = rates_of(options.sweep) if options.sweep else ()
        if options.output:
            checks.run(_require_plot, options.output, rates)
        checks.run(questions_of, options.slo, options.price)
        checks.run(chosen_coefficients, options.model or "", options.coefficients)
        if checks.errors:  # the config's are reported with them; else it is loaded where it is predicted
            checks.run(load_serving, options.config, options.overrides)
    return rates


def _require_plot(output: Path, rates: tuple[float, ...]) -> None:
    if len(rates) < LEAST_PLOTTED:
        raise UserError(
            f"--output: a plot needs a sweep of {LEAST_PLOTTED} rates or more; give for example --sweep rate=2..16..2"
        )
    cli.require_output("--output", output, SUFFIXES)
    require_library("matplotlib")


def _write_plot(options: argparse.Namespace, outcomes: Sequence[LoadOutcome], capacity: Interval | None) -> None:

    name = Path(options.config).stem
    try:
        save_figure(lambda: sweep_figure(outcomes, capacity, title=name), options.output, title=f"loads of {name}")
    except OSError as error:
        raise cli.cannot_write("--output", options.output, error) from None
    log(f"wrote {options.output}")


def rates_of(text: str) -> tuple[float, ...]:
    """The rates of `rate=2,8,16` or `rate=2..16..2`. UserError for anything else."""
    key, _, values = text.partition("=")
    example = "give for example rate=2,8,16 or rate=2..16..2"
    if key != "rate" or not values:
        raise UserError(f"--sweep: {text!r} is not a list of rates; {example}")
    try:
        if span := RANGE.fullmatch(values):
            first, last, step = (float(span[name]) for name in ("first", "last", "step"))
            count = int((last - first) / step + 1e-9) + 1 if step > 0 else 0
            found = tuple(first + place * step for place in range(min(count, MOST_RATES + 1)))
        else:
            found = tuple(float(value) for value in values.split(","))
    except ValueError:
        raise UserError(f"--sweep: {text!r} has a value that is not a number; {example}") from None
    if wrong := [rate for rate in found if not 0 < rate < math.inf]:
        raise UserError(
            f"--sweep: {text!r} has a rate of {as_given(wrong[0])}; rates are above 0 and finite; {example}"
        )
    if not found:
        raise UserError(f"--sweep: {text!r} gives no rate; {example}")
    if len(found) > MOST_RATES:
        raise UserError(
            f"--sweep: {text!r} gives more than {MOST_RATES} rates; give fewer, {example.removeprefix('give ')}"
        )
    return found
