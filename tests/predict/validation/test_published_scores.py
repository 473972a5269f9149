"""Errors of published runs summed up: repeats counted once, classes, and the rule of a constant MFU beside them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from predict.validation.published import Comparison, compare, configurations
from predict.validation.published_row import PublishedRow
from predict.validation.published_scores import beside_constant_mfu, classes, published_json
from predict.validation.published_software import (
    COMPLETE,
    INCOMPLETE,
    RECOMPUTE_UNPUBLISHED,
    VOCABULARY_UNPUBLISHED,
    completeness,
)
from tests.predict.command import Command
from tests.predict.validation.published_rows import DENSE, MIXTURE, row, written


def once(rows: Sequence[PublishedRow]) -> list[Comparison]:
    return configurations(compare(rows))


def test_repeats_of_a_configuration_count_once_by_their_median() -> None:
    repeats = [row(row_id=str(seconds), dup_group="G1", step_time_s=str(seconds)) for seconds in (1.4, 1.5, 3.0)]
    (counted,) = once(repeats)
    assert counted.measured_us == 1.5e6
    assert counted.repeats == ("1.4", "1.5", "3.0")
    content = published_json(compare(repeats))
    assert len(content["rows"]) == 3
    assert (content["summary"][0]["rows"], content["summary"][0]["measurements"]) == (1, 3)


@pytest.mark.parametrize("changes", [{"mbs": "2"}, {"precision": "bf16"}, {"heads": "48"}, {"recompute": "none"}])
def test_rows_of_a_group_that_are_other_runs_are_no_repeats(changes: dict[str, str]) -> None:
    assert len(once([row(dup_group="G1"), row(dup_group="G1", **changes)])) == 2


def test_rows_without_a_group_are_no_repeats() -> None:
    assert len(once([row(), row()])) == 2


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (DENSE, COMPLETE),
        (DENSE | {"vocab": ""}, VOCABULARY_UNPUBLISHED),
        (DENSE | {"vocab": "", "recompute": ""}, RECOMPUTE_UNPUBLISHED),
        (DENSE | {"recompute": ""}, RECOMPUTE_UNPUBLISHED),
        (DENSE | {"mbs": ""}, INCOMPLETE),
        (DENSE | {"mbs": "", "grad_accum": "2"}, COMPLETE),
        (DENSE | {"tp": "4", "pp": "2"}, INCOMPLETE),
        (DENSE | {"tp": "4", "pp": "2", "vpp": "1"}, COMPLETE),
        (DENSE | {"tp": "4", "pp": "2", "framework": "GPT-NeoX"}, COMPLETE),
        (MIXTURE, RECOMPUTE_UNPUBLISHED),
        (MIXTURE | {"ep": ""}, INCOMPLETE),
        (
            {"row_id": "a", "model": "qwen3-30b-a3b", "tp": "1", "pp": "1", "mbs": "1", "gbs": "8"},
            INCOMPLETE,
        ),  # by its name
    ],
)
def test_a_row_is_judged_by_what_it_states(cells: dict[str, str], expected: str) -> None:
    mixture = "experts" in cells or cells["model"] == "qwen3-30b-a3b"
    assert completeness(PublishedRow(cells=cells), sparse=mixture) == expected


def test_each_class_is_marked() -> None:
    scores = classes(once([row(), row(recompute=""), PublishedRow(cells=MIXTURE)]))
    assert [each["key"] for each in scores] == [
        ["dense, complete"],
        ["dense, recompute unpublished"],
        ["MoE, recompute unpublished"],
    ]
    assert all(each["rows"] == 1 and each["log_half_width"] > 0 for each in scores)


def test_a_constant_mfu_takes_the_median_of_the_other_runs() -> None:
    """Three runs of one work at MFUs of 1, 2 and 4 parts: their rules are the medians 3, 2.5 and 1.5, so 3/1, 2.5/2 and 1.5/4."""
    runs = [row(row_id=str(seconds), step_time_s=str(seconds)) for seconds in (4.0, 2.0, 1.0)]
    (scores,) = beside_constant_mfu(once(runs))
    expected = (1 - 1 / 3) + (1 - 2 / 2.5) + (4 / 1.5 - 1)
    assert scores.constant_mfu_error == pytest.approx(expected / 3)
    assert scores.order_of_one_work.pairs == 3
    assert scores.order_of_one_work.constant_mfu == 1.5


def test_the_order_of_pairs_counts_those_more_than_five_percent_apart() -> None:
    runs = [row(row_id="short"), row(row_id="same", step_time_s="1.45"), row(row_id="long", gbs="8", step_time_s="2.8")]
    (scores,) = beside_constant_mfu(once(runs))
    assert (scores.order.pairs, scores.order.ours, scores.order.constant_mfu) == (2, 2, 2)
    assert scores.order_of_one_work.pairs == 0


def test_a_single_run_has_no_rule_beside_it() -> None:
    assert published_json(compare([row()]))["sources"][0]["constant_mfu_error_percent"] is None


@pytest.mark.parametrize("kind", ["published", "memory", "ranking"])
def test_a_table_of_which_nothing_can_be_judged_is_reported_without_empty_tables(
    kind: str, tmp_path: Path, command: Command
) -> None:
    path = written(tmp_path / "runs.csv", DENSE | {"tp": "0"})
    out = command.text("validate", kind, "--truth", str(path))
    assert "by class" not in out
    assert "no row states its memory" in out if kind == "memory" else "tp: 0" in out
