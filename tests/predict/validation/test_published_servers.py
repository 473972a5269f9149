"""Published figures of servers: each within its predicted interval, or explained in its row."""

from dataclasses import replace
from pathlib import Path

import pytest

from predict.truth_table import read_declared
from predict.validation.published_servers import SHIPPED, TABLE, PublishedServer, compare_servers
from sampling.errors import ConfigError
from tests.predict.command import Command

ROWS = read_declared(SHIPPED, PublishedServer, TABLE)
OUTSIDE = {"deepseek-h800-prompts-day", "rtp-llm-h800-prompts", "codex-traces-mooncake"}
"""Rows that are not within their interval, each with its reason in the table."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.row_id)
def test_a_published_figure_lies_within_its_interval_or_is_explained(row: PublishedServer) -> None:
    (compared,), refused = compare_servers([row])
    assert not refused
    assert compared.covered == (row.row_id not in OUTSIDE)
    assert compared.covered or row.explained
    assert 0.5 < compared.predicted.median / row.value < 2.2
    assert row.source and row.url and row.date


def test_the_command_prints_every_row(command: Command, tmp_path: Path) -> None:
    table = tmp_path / "servers.csv"
    lines = SHIPPED.read_text(encoding="utf-8").splitlines()
    table.write_text("\n".join(line for line in lines if line.startswith(("row_id", "eagle3", "sglang-h100-answers"))))
    text = command.text("validate", "servers", "--truth", str(table))
    assert "gain of drafts" in text and "tokens of answers per second" in text and "4 rows: mean error" in text
    rows = command.json("validate", "servers", "--truth", str(table))["rows"]
    assert {row["row_id"] for row in rows} == {row.row_id for row in ROWS if row.row_id in text}
    assert all(row["predicted"]["low"] < row["predicted"]["median"] < row["predicted"]["high"] for row in rows)


def test_a_row_that_cannot_be_is_refused_with_the_reason() -> None:
    wrong = replace(ROWS[0], model="deepseek-v33")
    compared, (refused,) = compare_servers([wrong])
    assert not compared and "did you mean 'deepseek-v3'" in refused.why


def test_a_table_with_a_misspelt_figure_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "servers.csv"
    table.write_text(SHIPPED.read_text(encoding="utf-8").replace(",prompts,", ",promts,"))
    with pytest.raises(ConfigError, match="figure"):
        read_declared(table, PublishedServer, TABLE)
