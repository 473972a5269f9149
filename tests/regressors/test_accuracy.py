"""The accuracy benchmark from a folder of published tables to its report, on tables made here."""

import errno
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from predict.cli import main as predict_main
from regressors.accuracy.benchmark import benchmark, digest_of
from regressors.accuracy.report import Scored, as_json, as_markdown, quarantine_row, summaries
from regressors.accuracy.score import Score, score_without
from regressors.accuracy.units import own_units, published_units
from regressors.dataset.splits import SPLITS
from sampling.errors import SamplesError, UserError
from sampling.hardware.cluster import load_cluster
from sampling.operators.gemm import Gemm

CLUSTER = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=8, profile="published")


def true_us(m: int, n: int, k: int) -> float:
    terms = Gemm(dtype="bf16", m=m, n=n, k=k).terms("forward", CLUSTER)
    return 1.4 * terms["gemm_compute"] + 1.8 * terms["gemm_memory"] + 4.0


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One good and one impossible table of H100 products, as two versions of one framework."""
    folder = tmp_path_factory.mktemp("published") / "aiconfigurator"
    folder.mkdir()
    noise = np.random.default_rng(0)
    rows = [
        {
            "op": "gemm",
            "system": "h100_sxm",
            "framework": "vllm",
            "version": "1.0.0",
            "kernel": "torch",
            "dtype": "bfloat16",
            "m": m,
            "n": n,
            "k": k,
            "time_us": true_us(m, n, k) * float(noise.lognormal(0, 0.01)),
        }
        for m in (64, 256, 1024, 4096)
        for n in (768, 1024, 4096, 51200)
        for k in (1024, 2560, 4096, 8192)
    ]
    pd.DataFrame(rows).to_parquet(folder / "h100_sxm_gemm.parquet")
    return folder.parent


@pytest.fixture(scope="module")
def content(published: Path) -> dict[str, Any]:
    """The benchmark of those tables, in this process, whose time models are quick to fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.cpu_count", lambda: 1)
        return benchmark(published / "no profiles", published, published / "partial.jsonl")


def test_the_work_on_a_table_can_be_sent_to_another_process(published: Path) -> None:
    (unit,) = published_units(published)
    there = pickle.loads(pickle.dumps(unit))
    assert (there.group, there.operator, there.cluster) == (unit.group, unit.operator, unit.cluster)
    assert list(there.calls) == list(unit.calls)
    assert there.data.time_us.tolist() == unit.data.time_us.tolist()


def test_the_summary_has_a_row_a_split_with_errors_and_coverage(content: dict[str, Any]) -> None:
    assert [(row["group"], row["split"]) for row in content["summary"]] == [
        (["aiconfigurator", "h100", "gemm"], split) for split in ("random", "shape", "extrapolation")
    ]
    for row in content["summary"]:
        assert row["mape"] < 4
        assert row["raw_xgboost"] > row["mape"]
        assert 0.7 <= row["coverage"] <= 1.0
        assert row["rows"] > 0
    assert content["operators"][0]["predict_10000_s"] > 0
    assert "| aiconfigurator h100 gemm | random |" in as_markdown(content)


def test_an_impossible_table_is_quarantined_whole(published: Path, tmp_path: Path) -> None:
    folder = tmp_path / "aiconfigurator"
    folder.mkdir()
    table = pd.read_parquet(published / "aiconfigurator" / "h100_sxm_gemm.parquet")
    table["time_us"] /= 30
    table.to_parquet(folder / "h100_sxm_gemm.parquet")
    content = benchmark(tmp_path / "no profiles", tmp_path, tmp_path / "partial.jsonl")
    assert content["summary"] == []
    assert [(row["rows"], row["why"]) for row in content["quarantined"]] == [
        (len(table), "physical checks, the whole table")
    ]


def test_a_folder_of_neither_source_is_refused_with_what_it_should_hold(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="estimate-train-time/ nor aiconfigurator/"):
        list(published_units(tmp_path))


def test_a_result_of_fewer_tables_does_not_replace_a_larger_one(
    content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `make bench-accuracy` on a machine without the published measurements would."""
    other = [{**row, "group": ["aiconfigurator", "a100", "gemm"]} for row in content["operators"]]
    larger = {**content, "operators": [*content["operators"], *other]}
    monkeypatch.setenv("STEPTIME_DATA", str(tmp_path))
    monkeypatch.setattr("predict.validation.sources.benchmark", lambda *_: content)
    kept = tmp_path / "benchmarks" / "accuracy.json"
    kept.parent.mkdir()
    kept.write_text(json.dumps(larger))
    partial = kept.with_suffix(".partial.jsonl")
    partial.touch()
    assert predict_main(["validate", "samples", "--json"]) == 0
    assert "not kept: " in (error := capsys.readouterr().err)
    assert "has tables that this result lacks: aiconfigurator a100 gemm (1)" in error
    assert json.loads(kept.read_text()) == larger
    assert not kept.with_suffix(".md").exists()
    assert partial.exists(), "of use to the result of all tables"

    kept.write_text(json.dumps({**content, "operators": content["operators"][:1]}))
    assert predict_main(["validate", "samples", "--json"]) == 0
    assert "not kept" not in capsys.readouterr().err
    assert json.loads(kept.read_text()) == content
    assert kept.with_suffix(".md").is_file()
    assert not partial.exists()


def test_scores_are_kept_until_the_report_is_written(
    content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_a_full_disk(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("STEPTIME_DATA", str(tmp_path))
    monkeypatch.setattr("predict.validation.sources.benchmark", lambda *_: content)
    monkeypatch.setattr("predict.validation.sources.write_atomically", on_a_full_disk)
    partial = tmp_path / "benchmarks" / "accuracy.partial.jsonl"
    partial.parent.mkdir()
    partial.touch()
    assert predict_main(["validate", "samples", "--json"]) != 0
    assert partial.exists()


def test_scores_are_kept_by_split(published: Path) -> None:
    (unit,) = published_units(published)
    half = np.arange(len(unit.data)) % 2 == 0
    assert len({digest_of(unit.data, split, half) for split in SPLITS}) == len(SPLITS)


def test_a_benchmark_goes_on_where_it_was_interrupted_twice(
    published: Path, content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial, judged, most = tmp_path / "partial.jsonl", 0, 2

    def until_interrupted(*arguments: Any) -> Any:
        nonlocal judged
        if judged == most:
            raise KeyboardInterrupt
        judged += 1
        return score_without(*arguments)

    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr("regressors.accuracy.benchmark.score_without", until_interrupted)
    with pytest.raises(KeyboardInterrupt):
        benchmark(published / "no profiles", published, partial)
    first, second = partial.read_text().splitlines()
    partial.write_text(f"{first}\n{second[:40]}")

    judged, most = 0, 1
    with pytest.raises(KeyboardInterrupt):
        benchmark(published / "no profiles", published, partial)
    judged = 0
    again = benchmark(published / "no profiles", published, partial)
    assert judged == 1, "two of the three splits were judged before, the second anew as its line was cut off"
    assert again["searches"] == content["searches"]
    errors = [[row["mape"] for row in report["operators"]] for report in (again, content)]
    assert errors[0] == errors[1]


def test_nothing_to_test_on_names_the_command(tmp_path: Path) -> None:
    assert list(own_units(tmp_path)) == []
    with pytest.raises(SamplesError, match="run `make sample`"):
        benchmark(tmp_path, None, tmp_path / "partial.jsonl")


# The accuracy report: means that compare like with like, and tables without empty columns.


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
    assert "| own samples toy | a | random | 10 | roofline | 2.0 | 2.0 | 50 % low | 8.0 |" in text
    assert "| own samples toy | b | random | 10 | roofline | 4.0 | 4.0 | 90 % |  |" in text
    assert "An empty cell was not measured" in text
    assert "raw forest" not in text.split("## Means")[1]
    assert "| own samples toy | a | 3 | load of other processes |" in text
