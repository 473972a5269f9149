"""Published, tuned plans beside what a search finds for the same job: the rows that count, and gains as errors of the model."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from predict.plan_search.axes import question_of
from predict.plan_search.legal import legal_plans
from predict.plan_search.opening import with_openings
from predict.plan_search.search import Found, best_plans
from predict.validation import recipes
from predict.validation.compared import Refused
from predict.validation.published_row import read_rows
from predict.validation.published_runs import candidates
from predict.validation.recipes import (
    NoSlower,
    Recipe,
    exploited,
    judge_recipes,
    recipes_json,
    recipes_summary,
    tuned_rows,
)
from sampling.errors import InfeasibleError
from tests.predict.command import Command
from tests.predict.plan_search.spaces import plans_of
from tests.predict.validation.published_rows import DENSE, MIXTURE, ROWS, row, written

SMALL = ROWS["small"]

SLOW = SMALL | {"row_id": "slow", "pp": "4", "vpp": "1", "recompute": "full"}
"""A plan whose pipeline mostly waits: no one tunes it like this."""
LARGE = SMALL | {"row_id": "large", "layers": "80", "hidden": "8192", "heads": "64"}
"""A model that four GPUs do not hold."""
KEYS = {"row_id", "verdict", "fits_probability", "published_us", "best_us", "gain", "best"}


def judged(*rows: dict[str, str]) -> list[recipes.RecipeOutcome]:
    return judge_recipes([row(**each) for each in rows])


def recipe(**cells: str) -> Recipe:
    (found,) = judged(SMALL | cells)
    assert isinstance(found, Recipe)
    return found


def test_the_newest_of_each_complete_tuned_plan_counts(tmp_path: Path) -> None:
    rows = [
        SMALL,
        SMALL | {"row_id": "newer", "date": "26.04"},
        SMALL | {"row_id": "other plan", "tp": "2"},
        SMALL | {"row_id": "incomplete", "recompute": ""},
        SMALL | {"row_id": "out of memory", "status": "oom", "mbs": "2"},
        SMALL | {"row_id": "functional", "gbs": "8", "notes": "natural routing, functional recipe"},
        DENSE | {"row_id": "a sweep's"},
        DENSE | {"row_id": "tuned", "mbs": "2", "notes": "a tuned recipe"},
        MIXTURE | {"row_id": "benchmark", "recompute": "none", "framework": "Megatron-LM", "date": "2026-06", "notes": "forced balance"},
    ]  # fmt: skip
    taken = [each.row_id for each in tuned_rows(read_rows(written(tmp_path / "runs.csv", *rows)))]
    assert taken == ["newer", "other plan", "tuned", "benchmark"]


@pytest.mark.parametrize("cells", [{"tp": "2", "mbs": "2"}, {"pp": "2", "vpp": "2", "recompute": "selective"}])
def test_the_best_plan_is_never_slower_than_a_published_one_that_fits(cells: dict[str, str]) -> None:
    found = recipe(**cells)
    assert found.published.memory.verdict == "FITS"
    assert found.gain is not None
    assert found.gain >= 1


def test_a_published_plan_that_only_its_own_row_names_is_in_the_space() -> None:
    """Recomputed modules, a layout and a microbatch that a search without them does not try."""
    cells = {
        "pp": "2",
        "vpp": "1",
        "mbs": "1",
        "gbs": "12",
        "recompute": "selective",
        "recompute_detail": "modules=layernorm,mlp",
    }
    found = recipe(**cells, pp_schedule="1F1B layout=Et*4|t*4L")
    run = found.published.run
    assert run.plan.layout
    space, opening = with_openings(legal_plans(question_of(run)))
    several = [row for row in np.flatnonzero(opening.several).tolist() if space.run(row).batch == run.batch]
    like = replace(run.plan, layout="", recompute_modules="core_attn")
    (own,) = [row for row in several if space.run(row).plan == like]
    plans = replace(space, rows=plans_of(space, opening, own))
    assert run.plan in [plans.run(row).plan for row in range(len(plans.rows))]
    assert found.gain is not None
    assert found.gain >= 1


def test_plans_slower_than_one_that_fits_are_refused_before_their_memory_is_counted() -> None:
    good, slow, large = (candidates(row(**each)).runs[0] for each in (SMALL, SLOW, LARGE))
    priced = NoSlower(math.inf)
    assert priced(large).median_us < math.inf
    assert priced.slowest_us == math.inf, "a plan that does not fit bounds none"
    assert priced(slow).median_us == priced.slowest_us
    assert priced(good).median_us == priced.slowest_us
    with pytest.raises(InfeasibleError):
        priced(slow)


def test_a_table_without_tuned_plans_says_so(tmp_path: Path, command: Command) -> None:
    table = written(tmp_path / "runs.csv", DENSE)
    assert "no complete row of a tuned recipe to judge" in command.text("validate", "recipes", "--truth", str(table))


def test_an_interrupted_search_keeps_the_recipes_that_are_done(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[Found] = []

    def until_the_second(*arguments: Any, **options: Any) -> Found:
        if searched:
            raise KeyboardInterrupt
        searched.append(best_plans(*arguments, **options))
        return searched[0]

    monkeypatch.setattr(recipes, "best_plans", until_the_second)
    table = written(tmp_path / "runs.csv", SMALL, SLOW)
    ended = command.run("validate", "recipes", "--truth", str(table), "--json")
    assert '"good"' in ended.out
    assert '"slow"' not in ended.out
    assert "interrupted: 1 of 2 recipes are judged" in ended.err


@pytest.fixture(scope="module")
def good_and_slow() -> list[Recipe]:
    return [one for one in judged(SMALL, SLOW) if isinstance(one, Recipe)]


def test_a_gain_above_the_interval_is_an_error_of_the_model_that_is_exploited(good_and_slow: list[Recipe]) -> None:
    good, slow = good_and_slow
    assert good.published.memory.verdict == "FITS" and good.gain is not None and good.gain >= 1
    assert exploited(good_and_slow) == [slow]
    assert slow.best is not None
    assert slow.best.ratio.low > 1
    assert slow.best.beside.settings["plan.pp"] == (4, 1)
    assert recipes_summary(good_and_slow)["tied_share"] == 0.5


def test_gains_are_those_of_plans_that_may_fit(good_and_slow: list[Recipe]) -> None:
    found = [good_and_slow[0], recipe(**LARGE)]
    assert found[1].published.memory.verdict == "OOM"
    assert found[1].best is None
    summary = recipes_summary(found)
    assert (summary["rows"], summary["out_of_memory"]) == (2, 1)
    assert summary["gain_least"] == summary["gain_worst"] == found[0].gain
    assert recipes_json(found)["rows"][1]["best"] is None


def test_a_validation_goes_on_from_what_was_found(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, kept = (
        written(tmp_path / "runs.csv", SLOW, SMALL | {"row_id": "fp4", "precision": "NVFP4"}),
        tmp_path / "kept.json",
    )
    words = ("validate", "recipes", "--truth", str(table), "--save", str(kept))
    content = command.json(*words)
    (row,) = content["rows"]
    assert set(row) == KEYS and {"tp", "pp", "batch.micro"} <= set(row["best"])
    assert row["gain"] == pytest.approx(row["published_us"] / row["best_us"])

    def never(*arguments: Any, **options: Any) -> Found:
        raise AssertionError("searched again")

    monkeypatch.setattr(recipes, "best_plans", never)
    assert command.json(*words) == content
    text = " ".join(command.text(*words).split())
    for said in ("the search exploits an error of the model", "plan.pp 4 → 1", "does not compute in nvfp4"):
        assert said in text
    kept.write_text("{}")
    assert "does not hold the plans of recipes" in command.refused(*words)


def test_rows_are_judged_by_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "FEWEST_ROWS", 2)
    rows = [row(**SMALL), row(**SMALL | {"precision": "NVFP4"})]
    alone, together = (judge_recipes(rows, jobs=jobs) for jobs in (1, 2))
    assert recipes_json(alone) == recipes_json(together)
    assert isinstance(together[1], Refused)
