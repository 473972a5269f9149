"""`predict sweep` of an RL config."""

from __future__ import annotations

import argparse

from predict.cli.options import log, log_not_read, print_json, writing
from predict.serialise import version_of
from sampling.errors import UserError


def sweep(options: argparse.Namespace) -> None:
    """Predict every combination of --vary and print, or write, the long table."""
    from predict import estimate
    from predict.cli.combinations import on_stderr
    from predict.plan_search.long_table import write_table
    from predict.plan_search.rl_space import candidates, rl_columns, rl_long_table, space_of
    from predict.plan_search.sweep import require_once
    from predict.reports.rl_search import rl_table_text
    from predict.reports.text import show
    from predict.rl.aliases import resolved
    from sampling.hardware.this_device import code_version

    require_once(resolved(text.partition("=")[0].strip(), None)[0] for text in options.vary)
    space = space_of(options.config, [*options.overrides, *map(_as_choice, options.vary)])
    log_not_read(space.not_read)
    with on_stderr("sweep") as progress:
        found = candidates(space, estimate, progress)
    if all(one.step is None for one in found):
        raise UserError(f"--vary: none of {len(found)} combinations can run; the first: {found[0].reason}")
    varied = list(space.axes)
    rows = rl_long_table(found, varied, commit=code_version())
    if options.output is not None:
        with writing("--output", options.output):
            write_table(options.output, rows, rl_columns(varied))
        log(f"wrote {options.output}")
    if options.json:
        print_json(
            {"version": version_of("rl-sweep"), "run": space.base.name, "varied": dict(space.axes), "rows": rows}
        )
    else:
        show(rl_table_text(found, varied))


def _as_choice(text: str) -> str:
    """`KEY=A,B` as `KEY=[A, B]`; a range, and what is a list already, as they are. A value that itself has a comma, such as a length
    distribution, stands alone."""
    path, equals, values = text.partition("=")
    if not equals:
        raise UserError(f"--vary: {text!r} is not KEY=VALUES; write for example rl.n=4,8")
    if ":" in values and not values.startswith("["):
        return f'{path}=["{values}"]'
    return text if values.startswith("[") or ".." in values or values == "auto" else f"{path}=[{values}]"
