"""Scores of an interrupted benchmark: it takes most of an hour, and goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from regressors.accuracy.score import Score
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Mask
from regressors.fitting.settings_search import LIBRARIES, Best
from regressors.models.candidates import DRAWN
from sampling.files.disk import append_line, naming_the_disk

SOURCES = Path(__file__).parents[1]
Judged: TypeAlias = tuple[Score, Mapping[str, Best]]
"""The score of a table without some of its rows, and the settings of trees that were searched for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptScores:
    """Scores by the digest of all that they depend on, in a file that is removed once the report of all is written."""

    path: Path
    judged: dict[str, Judged]

    @classmethod
    def at(cls, path: Path) -> KeptScores:
        """Those in the file, without the lines that were cut off or that another version wrote."""
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        return cls(path=path, judged=dict(found for line in lines if (found := _read(line))))

    def add(self, key: str, judged: Judged) -> None:
        score, bests = judged
        searched = {
            kind: [DRAWN[kind].index(best.settings), best.log_error, best.judged] for kind, best in bests.items()
        }
        with naming_the_disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                append_line(file, json.dumps([key, asdict(score), searched]))
        self.judged[key] = judged


def _read(line: str) -> tuple[str, Judged] | None:
    try:
        key, score, searched = json.loads(line)
        bests = {
            str(kind): Best(settings=DRAWN[kind][place], log_error=error, judged=judged)
            for kind, (place, error, judged) in searched.items()
        }
        return str(key), (Score(**score), bests)
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def digest_of(data: TrainingData, split: str, held_out: Mask) -> str:
    """The digest of a table's rows, of those held out, of their split, with which more is judged or less, and of the code that learns from
    the others."""
    digest = hashlib.sha256(_code())
    digest.update(split.encode())
    for array in (data.terms, data.features, data.time_us, data.shape, data.codes, held_out):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:24]


@cache
def _code() -> bytes:
    known: list[Any] = [(str(path.relative_to(SOURCES)), path.read_text()) for path in sorted(SOURCES.rglob("*.py"))]
    return json.dumps([*known, *((name, version(name)) for name in LIBRARIES)]).encode()
