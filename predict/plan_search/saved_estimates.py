"""Full estimates kept in a file, from which a search that was interrupted goes on."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from predict.plan_search.pricing import Outcome
from predict.plan_search.search import Survey
from predict.prices.open import open_prices
from sampling.errors import UserError
from sampling.files.disk import naming_the_disk, write_atomically

FORMAT, VERSION = "steptime-search", 2
LARGEST_FILE = 2**28
"""Bytes of a file that is read: about two million estimates."""
Known = Mapping[tuple[int, int], Outcome]


def save(path: Path, surveys: Sequence[Survey], known: Known) -> None:
    """Write the estimates of a search. UserError where the disk does not take them."""
    rows = [[survey, *asdict(outcome).values()] for (survey, _), outcome in sorted(known.items())]
    content = {"format": FORMAT, "version": VERSION, "space": fingerprint(surveys), "estimates": rows}
    with naming_the_disk(path):
        write_atomically(path, json.dumps(content).encode())


def saved(path: Path, surveys: Sequence[Survey]) -> dict[tuple[int, int], Outcome]:
    """The estimates in the file; none where there is no file yet. UserError for a file of another search, or none of this kind."""
    if not path.exists():
        return {}
    if path.stat().st_size > LARGEST_FILE:
        raise UserError(f"--save: {path} is larger than the {LARGEST_FILE:,} bytes that are read; give another file")
    try:
        content = json.loads(path.read_bytes())
        header = (content["format"], content["version"])
        space, rows = content["space"], [(row[0], Outcome(**_fields(row[1:]))) for row in content["estimates"]]
    except (ValueError, KeyError, TypeError, IndexError):
        raise UserError(f"--save: {path} does not hold the estimates of a search; give another file") from None
    if header != (FORMAT, VERSION) or space != fingerprint(surveys):
        raise UserError(
            f"--save: {path} holds estimates of another space, or of other samples or another version; remove it, or give another file"
        )
    return {(survey, outcome.number): outcome for survey, outcome in rows}


def _fields(values: Sequence[Any]) -> dict[str, Any]:
    number, step_us, memory_bytes, board_w, refusal = values
    return {
        "number": int(number),
        "step_us": float(step_us),
        "memory_bytes": float(memory_bytes),
        "board_w": float(board_w),
        "refusal": str(refusal),
    }


def fingerprint(surveys: Sequence[Survey]) -> str:
    """A digest of the runs, their open keys, the plans that may fit, and what the prices rest on: estimates of equal ones are equal."""
    found = hashlib.sha256()
    for own in surveys:
        base = own.space.question.base
        provenance = open_prices(base.cluster, base.execution).provenance
        for part in (base, own.space.question.axes, sorted(map(str, provenance.items()))):
            found.update(repr(part).encode())
        found.update(own.space.rows.tobytes())
    return found.hexdigest()
