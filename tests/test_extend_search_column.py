"""A column of the search's result, for training, RL and serving configs alike, is added in one place, in a copy of the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.project_copy import RUN, project_with_examples, run_modules

PLACE = Path("predict/reports/search_columns.py")
BEFORE = "COMMON: Columns[Mapping[str, Any]] = ("
COLUMN = """
    Column(key="gpu_pairs", heading="pairs", value=lambda row: row["n_cards"] / 2, write="{:g} p".format),"""
SEARCHES = {
    RUN: ("--set=plan.tp=[4,8]", "--jobs=1", "--top=2"),
    "configs/rl/qwen3-30b-a3b-grpo.yml": ("--set=rl.n=[16,32]",),
    "configs/serving/llama3-8b-h100.yml": ("--set=placement.tp=[1,2]", "--model=formula"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = project_with_examples(tmp_path_factory.mktemp("column"))
    text = (copy / PLACE).read_text()
    assert text.count(BEFORE) == 1
    (copy / PLACE).write_text(text.replace(BEFORE, BEFORE + COLUMN))
    return copy


def test_a_column_of_one_line_is_in_every_searchs_text_and_json(project: Path) -> None:
    searches = [("predict", "search", config, *options) for config, options in SEARCHES.items()]
    outputs = run_modules(project, *searches, *((*search, "--json") for search in searches))
    texts, contents = outputs[: len(searches)], [json.loads(output) for output in outputs[len(searches) :]]
    for text in texts:
        assert "pairs" in text and " p" in text
    for content in contents:
        rows = content.get("best") or content["rows"]
        assert all(row["gpu_pairs"] == row["gpus"] / 2 for row in rows)
