"""The search of the settings of trees: which rows choose them, how many are judged, and what is kept of it on the disk."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from regressors.dataset.splits import at_random, by_shape
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Floats, Mask
from regressors.fitting import settings_search
from regressors.fitting.settings_search import RUNGS, SettingsSearch, read_outcomes, write_outcomes
from regressors.models.candidates import DRAWN, FOREST, TREES, USUAL, XGBOOST
from regressors.models.time_model import Target
from regressors.models.tuned_trees import Fold, Settings
from tests.regressors.synthetic_operators import random_products, sampled

ROUNDS = RUNGS


@pytest.fixture(autouse=True)
def whole_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search as it is, where other tests have a short one."""
    monkeypatch.setattr(settings_search, "RUNGS", ROUNDS)
    monkeypatch.setattr(settings_search, "DRAWN", DRAWN)


def products(count: int = 40, *, seed: int = 0) -> TrainingData:
    return sampled(random_products(count, seed=seed), noise=0.02)


def every(data: TrainingData) -> Mask:
    return np.ones(len(data), dtype=np.bool_)


class Judged:
    """Stands for the fits of a search: settings at a place err by what `error` says for each row, and each fit is counted."""

    def __init__(self, data: TrainingData, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error = np.ones((len(DRAWN[FOREST]), len(data)))
        self.fits: Counter[float] = Counter()
        self._row = {features.tobytes(): place for place, features in enumerate(data.features)}
        self._time_us = data.time_us
        monkeypatch.setattr(settings_search, "judged_us", self)

    def __call__(self, settings: Settings, share: float, fold: Fold) -> Floats:
        self.fits[share] += 1
        rows = [self._row[features.tobytes()] for features in fold.unseen]
        predicted_us: Floats = self._time_us[rows] * np.exp(self.error[DRAWN[FOREST].index(settings), rows])
        return predicted_us


@pytest.mark.parametrize("kind", TREES)
def test_the_search_is_the_same_every_time_and_judges_all_settings(kind: str) -> None:
    data = products()
    first, second = (SettingsSearch(data).best(kind, every(data)) for _ in range(2))
    assert first == second
    assert first.judged == len(DRAWN[kind]) >= 30
    assert first.log_error < 1


@pytest.mark.parametrize("kind", TREES)
def test_the_search_finds_the_target_that_errs_less(kind: str) -> None:
    """Times over many decades: trees on the time itself know nothing of the small ones."""
    data = sampled(random_products(60, seed=0, low=16, high=16384))
    assert SettingsSearch(data).best(kind, every(data)).settings.target == Target.LOG_TIME


def test_fewer_settings_go_on_to_more_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    data = products()
    judged = Judged(data, monkeypatch)
    monkeypatch.setattr(settings_search, "effort", lambda settings, share, rows: (share,))
    judged.error[7] = 0.1
    best = SettingsSearch(data).best(FOREST, every(data))
    assert best.settings == DRAWN[FOREST][7]
    assert best.log_error == pytest.approx(0.1)
    assert [judged.fits[rung.share] / rung.folds for rung in RUNGS] == [
        len(DRAWN[FOREST]),
        RUNGS[0].kept,
        RUNGS[1].kept,
    ]


def test_models_of_equal_rounds_are_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With steps of 0.5 at most, the second round boosts as often as the first, by all but the smallest step."""
    shares: Counter[float] = Counter()

    def judged(settings: Settings, share: float, fold: Fold) -> Floats:
        shares[share] += 1
        assert share != RUNGS[1].share or settings.eta == 0.05
        return np.ones(len(fold.unseen))

    monkeypatch.setattr(settings_search, "judged_us", judged)
    SettingsSearch(products()).best(XGBOOST, every(products()))
    assert shares[RUNGS[0].share] == len(DRAWN[XGBOOST]) * RUNGS[0].folds
    assert shares[RUNGS[1].share] < RUNGS[0].kept * RUNGS[1].folds


def test_large_tables_are_searched_on_some_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    data = products(1200)
    rows: set[int] = set()

    def counted(settings: Settings, share: float, fold: Fold) -> Floats:
        rows.add(len(fold.inputs) + len(fold.unseen))
        return np.ones(len(fold.unseen))

    monkeypatch.setattr(settings_search, "judged_us", counted)
    SettingsSearch(data).best(FOREST, every(data))
    assert rows == {rung.rows for rung in RUNGS}


def test_no_row_chooses_settings_that_it_is_scored_with(monkeypatch: pytest.MonkeyPatch) -> None:
    data = products()
    judged = Judged(data, monkeypatch)
    fold = by_shape(data.shape)[0]
    judged.error[3, fold], judged.error[5, ~fold] = 0.0, 0.5
    search = SettingsSearch(data)
    assert search.best(FOREST, ~fold).settings == DRAWN[FOREST][5]
    assert search.best(FOREST, fold).settings == DRAWN[FOREST][3]


def test_a_shape_whose_repeat_is_held_out_chooses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is a mean with that of the row held out."""
    calls = random_products(20, seed=0)
    data = sampled([*calls, *calls])
    judged = Judged(data, monkeypatch)
    held_out = at_random(len(data))[0]
    touched = held_out[:20] | held_out[20:]
    judged.error[3, np.tile(touched, 2)] = 0.0
    judged.error[5, np.tile(~touched, 2)] = 0.5
    assert SettingsSearch(data).best(FOREST, ~held_out).settings == DRAWN[FOREST][5]


def test_too_few_shapes_take_the_usual_settings() -> None:
    data = sampled(random_products(2, seed=0) * 5)
    best = SettingsSearch(data).best(XGBOOST, every(data))
    assert (best.settings, best.log_error, best.judged) == (USUAL[XGBOOST], None, 0)


# What is kept on the disk.


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path, data = tmp_path / settings_search.CACHE_FILE, products()
    search = SettingsSearch(data)
    search.best(FOREST, every(data))
    write_outcomes(path, search.outcomes)
    return path


def fits_again(data: TrainingData, path: Path) -> bool:
    """Whether a search that knows what is kept judges any settings."""
    with pytest.MonkeyPatch.context() as patch:
        judged = Judged(data, patch)
        SettingsSearch(data, read_outcomes(path)).best(FOREST, every(data))
        return bool(judged.fits)


def test_what_is_kept_is_not_searched_again(kept: Path) -> None:
    data = products()
    assert not fits_again(data, kept)
    known, anew = (SettingsSearch(data, of).best(FOREST, every(data)) for of in (read_outcomes(kept), {}))
    assert known == anew


def test_other_rows_and_times_are_searched_anew(kept: Path) -> None:
    assert fits_again(products(seed=1), kept)
    assert fits_again(sampled(random_products(40, seed=0), noise=0.03), kept)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", lambda library: "0"),
        ("RUNGS", ROUNDS[:1]),
        ("DRAWN", {kind: drawn[:4] for kind, drawn in DRAWN.items()}),
    ],
)
def test_another_space_search_or_library_is_searched_anew(
    kept: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(settings_search, name, value)
    assert fits_again(products(), kept)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"digest": 1, "outcomes": [1, 2]}',
        '{"digest": "", "outcomes": {"a": [1, 0.5]}}',
        "[" * 100_000,
    ],
)
def test_damaged_and_foreign_files_are_ignored(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kept.json"
    assert read_outcomes(path) == {}
    path.write_text(content)
    assert read_outcomes(path) == {}


@pytest.mark.parametrize("outcome", [[99, 0.5], [-1, 0.5], [0, "x"], [0, float("nan")]])
def test_outcomes_that_no_search_has_are_ignored(tmp_path: Path, outcome: object) -> None:
    path = tmp_path / "kept.json"
    outcomes = {"a": outcome}
    path.write_text(json.dumps({"digest": settings_search._digest_of(outcomes), "outcomes": outcomes}))
    assert read_outcomes(path) == {}


def test_a_changed_digit_is_found(kept: Path) -> None:
    text = kept.read_text()
    place = text.index(", 0.") + 5
    kept.write_text(f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}")
    assert read_outcomes(kept) == {}
