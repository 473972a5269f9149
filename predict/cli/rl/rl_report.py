"""`predict report` of RL configs."""

from __future__ import annotations

import argparse

from predict.cli.options import given, log, log_not_read, refuse, write_file
from predict.rl.run.config import is_rl_config
from sampling.errors import UserError


def report(options: argparse.Namespace) -> None:
    """Write one page of the steps of RL configs, side by side, or of one with its throughput at other lengths."""
    refuse(given(options, "tokens", "price"), "does not go with an RL config; omit it")
    if others := [config for config in options.configs if not is_rl_config(config)]:
        raise UserError(
            f"CONFIG: {', '.join(others)}: not an RL config, where others here are; give each kind a page of its own"
        )
    from predict import estimate, rl_step
    from predict.report.page.document import report_page
    from predict.report.page.rl import rl_content
    from predict.rl.search.length_map import length_map

    steps = [rl_step(config, options.overrides) for config in options.configs]
    for step in steps:
        log_not_read(step.rl.not_read)
    alone = options.configs if len(steps) == 1 else []
    maps = [length_map(config, options.overrides, estimate) for config in alone]
    title = " and ".join(step.rl.name for step in steps)
    write_file("--output", options.output, report_page(rl_content(steps, maps), title=title))
    log(f"wrote {options.output}")
