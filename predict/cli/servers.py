"""`predict sweep`, `search` and `compare` of serving configs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from predict.cli.options import given, log, naming, print_json, refuse, require_positive, writing
from predict.cli.serving_questions import read_questions, read_step_model
from predict.cli.training_only import OF_TRAINING_PLANS
from sampling.errors import Checks, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from predict.plan_search.servers import ServerSweep
    from predict.serving.coefficients import Coefficients
    from predict.serving.questions import Questions


def read_sweep(options: argparse.Namespace) -> tuple[str | None, Questions, Coefficients]:
    """The objective, the questions and the step's coefficients of a sweep; UserError for all faults of these and of --vary."""
    from predict.plan_search.servers import key_of_server
    from predict.plan_search.sweep import parse_vary

    with Checks() as checks:
        checks.run(parse_vary, options.vary, key_of_server)
        with checks.one():
            order = read_order(options.objective, options.price)
        with checks.one():
            asked = read_questions(options)
        with checks.one():
            coefficients = read_step_model(options)
    return order, asked, coefficients


def sweep(options: argparse.Namespace, order: str | None, asked: Questions, coefficients: Coefficients) -> None:
    """Predict every combination of --vary; print, or write, the rows in their order or the best first."""
    _print(options, _swept(options, options.vary, options.overrides, asked, coefficients, "sweep"), order)


def search(options: argparse.Namespace) -> None:
    """Predict every combination of the config's open keys and print the best."""
    from predict.plan_search.servers import COST, GPU_TIME, key_of_server, opened
    from predict.plan_search.sweep import parse_vary

    with Checks() as checks:
        with checks.one():
            refuse(
                given(options, *(name for name in OF_TRAINING_PLANS if name != "model")),
                "does not go with a serving config, whose search takes --set, --slo, --price, --objective, --model, --coefficients, --top "
                "and --json; omit it",
            )
        checks.run(require_positive, options, "top")
        with checks.one():
            order = read_order(options.objective or (COST if options.price else GPU_TIME), options.price)
        with checks.one():
            asked = read_questions(options)
        with checks.one():
            coefficients = read_step_model(options)
        with checks.one():
            vary, settings = opened(options.config, options.overrides)
            parse_vary(vary, key_of_server, option="")
    _print(options, _swept(options, vary, settings, asked, coefficients, "search", option=""), order, top=options.top)


def compare(options: argparse.Namespace) -> None:
    """Predict each config and print a column for each."""
    from predict.plan_search.servers import answer_of
    from predict.reports.servers import servers_compare_json, servers_compare_text
    from predict.reports.text import show
    from predict.serving.config import load_serving
    from sampling.progress import progress_display

    runs = []
    with Checks() as checks:
        with checks.one():
            asked = read_questions(options)
        with checks.one():
            coefficients = read_step_model(options)
        for config in options.configs:
            with checks.one():
                runs.append(load_serving(config, options.overrides))
    answers = []
    with progress_display("compare") as progress:
        for run in runs:
            with naming(run.name):
                answers.append(answer_of(run, asked, coefficients))
            progress(len(answers), len(runs), run.name)
    if options.json:
        print_json(servers_compare_json(answers))
    else:
        show(servers_compare_text(answers))


def read_order(name: str | None, price: str | None) -> str | None:
    """The objective of a name; UserError for one that serving configs do not have, and for money without a price."""
    from predict.plan_search.servers import COST, GPU_TIME, ORDERS
    from sampling.files.faults import did_you_mean, shown

    if name == COST and not price:
        raise UserError(
            f"--objective: {COST} needs a price; give --price too, as in --price 2.5/gpu-h, or take {GPU_TIME}"
        )
    if name is None or name in ORDERS:
        return name
    near = did_you_mean(name, ORDERS) or f"; give one of {', '.join(ORDERS)}"
    raise UserError(f"--objective: {shown(name)} does not order servers{near}")


def _swept(
    options: argparse.Namespace,
    vary: Sequence[str],
    settings: Sequence[str],
    asked: Questions,
    coefficients: Coefficients,
    label: str,
    **named: str,
) -> ServerSweep:
    from predict.cli.combinations import on_stderr
    from predict.plan_search.servers import sweep_servers

    with on_stderr(label) as progress:
        return sweep_servers(options.config, vary, settings, asked, coefficients, progress, **named)


def _print(options: argparse.Namespace, found: ServerSweep, order: str | None, *, top: int | None = None) -> None:
    """Print the rows, the best first where they have an order, and only the first `top` of those that can run."""
    from predict.plan_search.long_table import write_table
    from predict.plan_search.servers import ORDERS, ordered
    from predict.reports.servers import server_columns, server_table, servers_json, servers_text
    from predict.reports.sweep import title_of
    from predict.reports.text import show
    from sampling.hardware.this_device import code_version

    title = title_of(found)
    if order:
        found = ordered(found, order, top)
    output = getattr(options, "output", None)
    if output is not None or options.json:
        rows = server_table(found, commit=code_version())
    if output is not None:
        with writing("--output", output):
            write_table(output, rows, server_columns(found))
        log(f"wrote {output}")
    if options.json:
        print_json(servers_json(found, rows))
    else:
        show(
            servers_text(
                found, title, f"the best first, by {ORDERS[order].meaning}" if order else "in the order of --vary"
            )
        )
