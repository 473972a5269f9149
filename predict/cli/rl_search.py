"""`predict search` of an RL config."""

from __future__ import annotations

import argparse

from predict.cli.options import given, log_not_read, print_json, refuse, require_positive
from predict.cli.training_only import OF_TRAINING_PLANS
from sampling.errors import Checks


def search(options: argparse.Namespace) -> None:
    """Predict every combination of the config's open keys and print the best."""
    with Checks() as checks:
        with checks.one():
            refuse(
                given(options, *OF_TRAINING_PLANS, "objective", "price", "slo", "coefficients"),
                "does not go with an RL config, whose search takes --set, --top and --json; omit it",
            )
        checks.run(require_positive, options, "top")
    from predict import rl_search
    from predict.cli.combinations import on_stderr
    from predict.reports.rl_search import rl_search_json, rl_search_text
    from predict.reports.text import show

    with on_stderr("search") as progress:
        answer = rl_search(options.config, options.overrides, progress=progress)
    log_not_read(answer.space.not_read)
    if options.json:
        print_json(rl_search_json(answer, top=options.top))
    else:
        show(rl_search_text(answer, top=options.top))
