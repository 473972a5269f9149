"""The search of the settings of trees on the time itself: successive halving over drawn settings, by grouped cross-validation.

Many settings are judged with few trees on few rows, and those that err least again with more of both (Jamieson and Talwalkar, AISTATS
2016). All rows of a shape are in one fold. Settings for a fit are chosen by the errors on the rows that the fit may learn from, so that
none is chosen by a row that it is scored on; the models that made those errors were fitted once for all choices.
"""

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Floats, Mask
from regressors.models.candidates import DRAWN, TREES, USUAL, SettingsOf
from regressors.models.tuned_trees import Fold, Settings, effort, in_words, judged_us, merged
from sampling.files.disk import NotReadError, read_text, write_atomically


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """One round of a search: the most rows, the share of the usual trees, the folds, and how many settings go on to the next round."""

    rows: int
    share: float
    folds: int
    kept: int


RUNGS = (
    Rung(rows=60, share=0.07, folds=3, kept=12),
    Rung(rows=150, share=0.2, folds=3, kept=4),
    Rung(rows=400, share=0.4, folds=5, kept=1),
)
"""On the shipped rows, 41 a model on average, the number of trees grows; on large tables the rows do as well."""
FEWEST_SHAPES = 5
"""One for each fold."""
CACHE_FILE = ".searches.json"
MOST_CACHE_BYTES = 50_000_000
LIBRARIES = ("numpy", "scikit-learn", "xgboost")

Outcomes: TypeAlias = Mapping[str, tuple[int, float]]
"""Digest of a search → the place of its best settings among those drawn, and their error."""
Places: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """The settings that won a search, their mean absolute log error on rows held out, and how many settings were judged.

    Without an error, the rows were too few to search on, and the settings are the usual ones.
    """

    settings: Settings
    log_error: float | None
    judged: int


class SettingsSearch:
    """The searches on one operator's rows. What a model erred is remembered, since choices for different rows ask for much the same.

    `known` are outcomes of earlier searches; those that were asked for, known or new, are in `outcomes`.
    """

    def __init__(self, data: TrainingData, known: Outcomes | None = None) -> None:
        self.outcomes: dict[str, tuple[int, float]] = {}
        self._known = known or {}
        self._data = data
        self._inputs, self._time_us, self._which = merged(data.features, data.time_us)
        self._shape = _shuffled_shapes(data, self._which)
        self._order = np.argsort(self._shape, kind="stable")
        self._folds: dict[tuple[int, int], list[tuple[Places, Fold]]] = {}
        self._errors: dict[tuple[object, ...], Floats] = {}
        self._digest = hashlib.sha256(_space_in_words().encode())
        for array in (data.features, data.time_us, data.shape):
            self._digest.update(np.ascontiguousarray(array).tobytes())

    def best(self, kind: str, rows: Mask) -> Best:
        """The settings of a kind of trees that err least on these rows."""
        drawn = DRAWN[kind]
        # a mean over equal rows is judged only if none of them is left out
        judging = np.bincount(self._which, weights=~rows, minlength=len(self._inputs)) == 0
        if self._shape.max() + 1 < FEWEST_SHAPES or not judging[self._order[: RUNGS[0].rows]].any():
            return Best(settings=USUAL[kind], log_error=None, judged=0)
        digest = self._digest.copy()
        digest.update(kind.encode() + np.packbits(judging).tobytes())
        key = digest.hexdigest()[:24]
        if key not in self.outcomes:
            self.outcomes[key] = self._known[key] if key in self._known else self._halve(kind, judging)
        place, error = self.outcomes[key]
        return Best(settings=drawn[place], log_error=error, judged=len(drawn))

    def settings_for(self, rows: Mask) -> SettingsOf:
        """The settings of each kind of trees for a fit to these rows, searched when they are asked for."""
        return lambda kind: self.best(kind, rows).settings

    def bests(self, kinds: Collection[str]) -> dict[str, Best]:
        """The settings that err least on all rows, by kind, for those of the kinds that are trees on the time itself."""
        return {kind: self.best(kind, np.ones(len(self._which), dtype=np.bool_)) for kind in TREES if kind in kinds}

    def _halve(self, kind: str, judging: Mask) -> tuple[int, float]:
        left: Sequence[int] = range(len(DRAWN[kind]))
        error: dict[int, float] = {}
        for rung in RUNGS:
            error = {place: float(np.nanmean(self._errors_of(kind, place, rung)[judging])) for place in left}
            left = sorted(left, key=error.__getitem__)[: rung.kept]
        return left[0], error[left[0]]

    def _folds_of(self, rows: int, folds: int) -> list[tuple[Places, Fold]]:
        """The rows that each fold holds out of the first `rows`, and the fold itself."""
        if (rows, folds) not in self._folds:
            taken = self._order[:rows]
            number = self._shape[taken] % folds
            split = [(taken[number != each], taken[number == each]) for each in range(folds)]
            self._folds[rows, folds] = [
                (held_out, Fold(self._inputs[fitted], self._time_us[fitted], self._inputs[held_out]))
                for fitted, held_out in split
                if len(fitted) and len(held_out)
            ]
        return self._folds[rows, folds]

    def _errors_of(self, kind: str, place: int, rung: Rung) -> Floats:
        """Absolute log errors [distinct rows] of the settings at a place, by models of other shapes; nan on rows beyond the rung's.

        On few rows the next round may judge the same models: it has the same rows, and boosting no more rounds.
        """
        settings, rows = DRAWN[kind][place], min(rung.rows, len(self._inputs))
        folds = self._folds_of(rows, rung.folds)
        trial = (kind, place, rows, rung.folds, *(effort(settings, rung.share, len(fold.inputs)) for _, fold in folds))
        if trial not in self._errors:
            errors = np.full(len(self._inputs), np.nan)
            for held_out, fold in folds:
                errors[held_out] = np.abs(np.log(judged_us(settings, rung.share, fold) / self._time_us[held_out]))
            self._errors[trial] = errors
        return self._errors[trial]


def _shuffled_shapes(data: TrainingData, which: Places) -> Places:
    """The number of each distinct row's shape [distinct rows], in the order in which rungs take them."""
    _, first = np.unique(which, return_index=True)
    shapes, shape_of = np.unique(data.shape[first], return_inverse=True)
    shuffled: Places = np.random.default_rng(0).permutation(len(shapes))[shape_of.reshape(-1)]
    return shuffled


def _space_in_words() -> str:
    """Everything besides the rows that a search's outcome depends on."""
    drawn = [in_words(settings) for kind in TREES for settings in DRAWN[kind]]
    return json.dumps([drawn, repr(RUNGS), [(name, version(name)) for name in LIBRARIES]])


def read_outcomes(path: Path) -> Outcomes:
    """The outcomes of earlier searches; none where the file is missing, damaged or of another version."""
    try:
        content = json.loads(read_text(path, most_bytes=MOST_CACHE_BYTES))
        outcomes = content["outcomes"]
        if content["digest"] != _digest_of(outcomes):
            return {}
        most = min(len(drawn) for drawn in DRAWN.values())
        known = {key: (int(place), float(error)) for key, (place, error) in outcomes.items()}
        sound = all(0 <= place < most and math.isfinite(error) for place, error in known.values())
    except (NotReadError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError):
        return {}
    return known if sound else {}


def write_outcomes(path: Path, outcomes: Outcomes) -> None:
    """Keep these outcomes, and no others, for the next fit of the same rows."""
    listed = {key: [*outcome] for key, outcome in sorted(outcomes.items())}
    write_atomically(path, json.dumps({"digest": _digest_of(listed), "outcomes": listed}).encode())


def _digest_of(outcomes: Any) -> str:
    return hashlib.sha256(json.dumps(outcomes, sort_keys=True).encode()).hexdigest()
