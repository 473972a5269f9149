"""The front of time, memory and GPUs as a file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from predict.plan_search.answer import FrontPlan
from predict.reports.search.json import front_row


def front_file(front: Sequence[FrontPlan], suffix: str) -> str:
    """The text of a .csv or .json file, a row per plan."""
    rows = [front_row(plan) for plan in front]
    if suffix == ".json":
        return json.dumps(rows, indent=1) + "\n"
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
