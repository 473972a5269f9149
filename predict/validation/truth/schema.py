"""The JSON Schema of a truth table's row, from the declaration that reads it: `predict schema --truth`."""

from __future__ import annotations

from typing import Any

from predict.config.json_schema import key_schema
from predict.validation.truth.columns import NOT_READ, OTHER_NAMES, RUNS, TruthRow
from sampling.files.field_docs import field_docs


def truth_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of one row: its columns with types, units and allowed values; a blank cell is one left out."""
    docs = field_docs(TruthRow)
    columns = {name: key_schema(key, docs[name]) for name, key in RUNS.keys.items()}
    others = {name: {"description": f"Another name of {own}."} for name, own in OTHER_NAMES.items()}
    unread = {name: {"description": f"Not read: {what}."} for what, names in NOT_READ.items() for name in names.split()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "steptime truth row",
        "description": "One measured run, a line of a CSV file whose header names the columns. Yes and no are 1 and 0.",
        "type": "object",
        "properties": {**columns, **others, **unread},
        "patternProperties": {"^_": {"description": "A column of your own, which is not read."}},
        "required": [name for name, key in RUNS.keys.items() if key.required],
        "additionalProperties": False,
    }
