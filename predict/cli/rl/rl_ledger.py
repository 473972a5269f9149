"""`predict ledger` of an RL config."""

from __future__ import annotations

import argparse
import sys

from predict.cli.options import given, log_not_read, print_json, refuse


def ledger(options: argparse.Namespace) -> None:
    """Print the books of an RL step, as text, JSON or a long table."""
    refuse(given(options, "calibration"), "does not go with an RL config; omit it, or name it in cluster.calibration")
    from predict import rl_ledger
    from predict.report.rl.ledger import rl_ledger_json, rl_ledger_rows

    found = rl_ledger(options.config, options.overrides)
    log_not_read(found.step.rl.not_read)
    if options.json:
        print_json(rl_ledger_json(found))
    elif options.csv:
        from predict.report.ledger import COLUMNS
        from predict.what_if.long_table import as_csv

        sys.stdout.write(as_csv(rl_ledger_rows(found), COLUMNS))
    else:
        from predict.report.rl.ledger import rl_ledger_text
        from predict.report.text import show

        show(rl_ledger_text(found))
