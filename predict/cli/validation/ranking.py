"""`predict validate ranking`: the order of measured plans, and which run out of memory."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from predict.cli.options import print_json
from sampling.errors import UserError

if TYPE_CHECKING:
    from predict.validate.ranking.plans import MeasuredPlan


def ranking(options: argparse.Namespace) -> None:
    if options.truth is None:
        raise UserError("--truth: missing; give a CSV file of measured plans, those out of memory with status oom")
    from predict.validate.published.row import read_rows
    from predict.validate.ranking.group_scores import as_json, judged
    from predict.validate.ranking.plans import measured_plans
    from sampling.progress import progress_display

    rows = list(read_rows(options.truth))
    with progress_display("predicting") as progress:
        plans, left_out = measured_plans(rows, progress)
    if options.widths:
        _plan_setting(plans, as_json=options.json)
        return
    groups, small = judged(plans)
    if options.json:
        print_json(as_json(groups, small, left_out))
        return
    from predict.report.published.ranking import ranking_text
    from predict.report.text import show

    show(ranking_text(groups, small, left_out))


def _plan_setting(groups: Mapping[str, Sequence[MeasuredPlan]], *, as_json: bool) -> None:
    from predict.report.published.widths import plan_setting_text
    from predict.report.text import show
    from predict.validate.learning.plan_setting import learn_plan_setting, plan_setting_json

    learnt = learn_plan_setting(groups)
    if as_json:
        print_json(plan_setting_json(learnt))
    else:
        show(plan_setting_text(learnt))
