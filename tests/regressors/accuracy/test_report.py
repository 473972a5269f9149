"""The accuracy report: means that compare like with like, and tables without empty columns."""

from __future__ import annotations

from regressors.accuracy.report import Scored, as_json, as_markdown, quarantine_row, summaries
from regressors.accuracy.score import Score


def scored(
    name: str,
    error: float,
    raw: float | None,
    *,
    coverage: float | None = None,
    rows: int = 10,
    time_us: float = 1.0,
    split: str = "random",
) -> Scored:
    score = Score(
        rows=rows,
        candidate="roofline",
        mape=error,
        median=error,
        p90=error,
        coverage=coverage,
        raw_forest=None,
        raw_xgboost=raw,
        time_us=time_us,
    )
    return Scored(group=("own samples", "toy"), operator=name, scores={split: score})


def test_means_are_over_the_operators_that_raw_trees_were_fitted_to() -> None:
    (row,) = summaries([scored("a", 2.0, 8.0), scored("b", 4.0, 10.0), scored("c", 1000.0, None)])
    assert (row["operators"], row["mape"], row["raw_xgboost"], row["rows"]) == (2, 3.0, 9.0, 20)
    (alone,) = summaries([scored("c", 1000.0, None)])
    assert (alone["operators"], alone["mape"], alone["raw_xgboost"]) == (1, 1000.0, None)


def test_a_table_of_few_rows_is_in_no_mean_and_shown_as_what_it_is() -> None:
    rows = [scored("a", 2.0, None), scored("b", 1000.0, None, rows=2)]
    (row,) = summaries(rows)
    assert (row["operators"], row["few_rows"], row["mape"]) == (1, 1, 2.0)
    (alone,) = summaries(rows[1:])
    assert (alone["operators"], alone["mape"], alone["mape_by_time"]) == (0, None, None)
    text = as_markdown(as_json(rows, title="Toy", note="How.", date="2026-01-01"))
    assert "| own samples toy | b | random | 2 | roofline | few rows |" in text


def test_the_mean_by_time_weighs_what_a_step_is_made_of() -> None:
    (row,) = summaries([scored("gemm", 4.0, 8.0, time_us=900.0), scored("rope", 74.0, 80.0, time_us=100.0)])
    assert (row["mape"], row["mape_by_time"]) == (39.0, 11.0)


def test_columns_that_no_row_fills_are_omitted_and_wrong_coverage_is_marked() -> None:
    rows = [scored("a", 2.0, 8.0, coverage=0.5), scored("b", 4.0, None, coverage=0.9)]
    quarantined = [quarantine_row(("own samples", "toy"), "a", 3, why="load of other processes")]
    text = as_markdown(as_json(rows, title="Toy", note="How.", date="2026-01-01", quarantined=quarantined))
    assert "| own samples toy | a | random | 10 | roofline | 2.00 | 2.0 | 50% low | 8.0 |" in text
    assert "| own samples toy | b | random | 10 | roofline | 4.00 | 4.0 | 90% |  |" in text
    assert "An empty cell was not measured" in text
    assert "raw forest" not in text.split("## Means")[1]
    assert "| own samples toy | a | 3 | load of other processes |" in text
