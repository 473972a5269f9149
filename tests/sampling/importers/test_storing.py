"""From tables to data/imported: repeats merged, gaps filled, nothing twice, nothing lost; and the command's report."""

import errno
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sampling.__main__ import main
from sampling.errors import SamplesError, UserError
from sampling.importers import importers
from sampling.importers.storing import StoredTable, gaps, store
from sampling.importers.table import Row, Table
from sampling.operators.attention import Attention
from sampling.store.profiles import home_of, read_manifest
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples


def attention(seq_len: int) -> Attention:
    return Attention(dtype="bf16", batch=1, seq_len=seq_len, heads=16, kv_heads=16, head_dim=128, causal=True)


def table(hardware: str, rows: list[Row], name: str = "flash") -> Table:
    return Table(source="test", name=name, hardware=hardware, rows=tuple(rows), provenance={"version": "1"})


def forwards(scale: float = 1.0) -> list[Row]:
    return [Row(call=attention(256 * step), phase="forward", time_us=scale * 20 * step**2) for step in range(1, 31)]


def backwards() -> list[Row]:
    """Twice the forward while small, three times from 4096 on."""
    return [
        Row(call=row.call, phase="backward", time_us=row.time_us * (2 if index < 15 else 3))
        for index, row in enumerate(forwards())
    ]


def put(home: Path, profile: str, *tables: Table) -> list[StoredTable]:
    return store(tables, home / "samples" / profile, homes=[home])


def samples(home: Path, profile: str) -> list[Sample]:
    return list(iterate_samples(read_samples(home / "samples" / profile)))


def test_rows_and_provenance_are_kept_and_repeats_made_one(tmp_path: Path) -> None:
    rows = [*forwards(), *backwards(), Row(call=attention(256), phase="forward", time_us=22.0)]
    (outcome,) = put(tmp_path, "gh200-test", table("gh200", rows))
    assert (outcome.rows, outcome.kept, outcome.merged, outcome.quarantined) == (61, 60, 1, 0)
    kept = samples(tmp_path, "gh200-test")
    assert {sample.origin for sample in kept} == {"imported"}
    first = next(sample for sample in kept if sample.call == attention(256) and sample.phase == "forward")
    assert (first.time_us, first.repeats) == (21.0, 2)
    assert first.low_us < first.time_us < first.high_us
    manifest = read_manifest(tmp_path / "samples" / "gh200-test")
    assert (manifest.hardware, manifest.device["imported"]) == ("gh200", True)
    session = manifest.sessions[0]
    assert (session["source"], session["table"], session["version"], session["rows"]) == ("test", "flash", "1", 61)


def test_importing_again_replaces_and_another_table_is_added(tmp_path: Path) -> None:
    put(tmp_path, "gh200-test", table("gh200", [*forwards(), *backwards()]))
    put(tmp_path, "gh200-test", table("gh200", [*forwards(2.0), *backwards()]))
    assert len(samples(tmp_path, "gh200-test")) == 60
    assert max(sample.time_us for sample in samples(tmp_path, "gh200-test") if sample.phase == "forward") == 36_000
    put(tmp_path, "gh200-test", table("gh200", [*forwards(), *backwards()], name="other"))
    assert len(samples(tmp_path, "gh200-test")) == 120
    assert [session["table"] for session in read_manifest(tmp_path / "samples" / "gh200-test").sessions] == [
        "flash",
        "other",
    ]


def test_another_version_of_a_table_takes_its_place(tmp_path: Path) -> None:
    for version in ("1", "2"):
        new = replace(table("gh200", [*forwards(), *backwards()], name=f"flash {version}"), slot="flash")
        put(tmp_path, "gh200-test", new)
    (session,) = read_manifest(tmp_path / "samples" / "gh200-test").sessions
    assert (session["table"], len(samples(tmp_path, "gh200-test"))) == ("flash 2", 60)


def test_a_backward_that_is_missing_is_filled_by_the_ratio_of_a_like_device_at_a_like_time(tmp_path: Path) -> None:
    put(tmp_path, "gh200-test", table("gh200", [*forwards(), *backwards()]))
    doubled = [Row(call=row.call, phase="backward", time_us=9 * row.time_us) for row in forwards()]
    put(tmp_path, "a100-80gb-test", table("a100-80gb", [*forwards(5.0), *doubled]))
    put(tmp_path, "h100-test", table("h100-sxm", forwards()))
    by_phase = {(sample.call, sample.phase): sample for sample in samples(tmp_path, "h100-test")}
    assert len(by_phase) == 60
    for seq_len, ratio in ((512, 2.0), (7680, 3.0)):
        filled = by_phase[attention(seq_len), "backward"]
        assert filled.origin == "filled: ratio from gh200"
        assert filled.time_us == pytest.approx(ratio * by_phase[attention(seq_len), "forward"].time_us)
    put(tmp_path, "h100-test", table("h100-sxm", [*forwards(), *backwards()]))
    assert {sample.origin for sample in samples(tmp_path, "h100-test")} == {"imported"}


def test_without_a_device_that_has_both_the_gap_is_reported(tmp_path: Path) -> None:
    outcomes = put(tmp_path, "h100-test", table("h100-sxm", forwards()))
    assert gaps(forwards()) == {"attention": ["backward"]}
    assert "attention backward" in outcomes[-1].table.remarks[0]
    assert len(samples(tmp_path, "h100-test")) == 30


def test_a_profile_of_another_device_is_not_mixed_in(tmp_path: Path) -> None:
    put(tmp_path, "mine", table("gh200", forwards()))
    with pytest.raises(SamplesError, match="--profile"):
        put(tmp_path, "mine", table("h100-sxm", forwards()))


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "gh200-test", table("gh200", [*forwards(), *backwards()]))
    before = samples(tmp_path, "gh200-test")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    with pytest.raises(UserError, match="No space left on device"):
        put(tmp_path, "gh200-test", table("gh200", [*forwards(), *backwards()], name="other"))
    assert samples(tmp_path, "gh200-test") == before
    assert not list(tmp_path.glob("**/*.tmp"))


def test_the_command_reports_and_ends_with_3_for_a_file_of_another_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "clone" / "operator"
    folder.mkdir(parents=True)
    path = folder / "NVIDIAA100-SXM4-80GB_res_add_fp16.csv"
    good = "".join(f"2,{1024 * step},4096,{40 * step},1.0\n" for step in range(1, 9))
    path.write_text(f"b,l,dim,F_dur(us),B_dur(us)\n{good}2,1024,8192,0.5,1.0\n")
    assert main(["import", "estimate-train-time", str(tmp_path / "clone"), "--data", str(tmp_path)]) == 0
    report = capsys.readouterr().out
    assert "1 × faster than the physical bound: 0.5 µs" in report
    assert "residual_add forward: dtype=fp16, tokens=2048, hidden=8192" in report
    assert "kept 8 rows (1 quarantined)" in report and "a100-80gb-estimate-train-time" in report
    assert "they time residual_add (fp16)" in report
    path.write_bytes(b"\x00\x01")
    assert main(["import", "estimate-train-time", str(tmp_path / "clone"), "--data", str(tmp_path)]) == 3
    assert str(path) in capsys.readouterr().err
    assert len(samples(tmp_path, "a100-80gb-estimate-train-time")) == 9


def test_every_importer_is_found_by_its_name() -> None:
    assert set(importers()) >= {"aiconfigurator", "estimate-train-time", "nccl-tests", "torch-trace"}


def test_a_profile_is_looked_for_among_ours_first(tmp_path: Path) -> None:
    (tmp_path / "imported" / "samples" / "h100").mkdir(parents=True)
    assert home_of("h100", tmp_path) == tmp_path / "imported"
    assert home_of("unknown", tmp_path) == tmp_path
    (tmp_path / "samples" / "h100").mkdir(parents=True)
    assert home_of("h100", tmp_path) == tmp_path


def test_an_import_of_which_nothing_is_kept_changes_nothing(tmp_path: Path) -> None:
    """Times in milliseconds where µs were meant, over good rows of the same table."""
    put(tmp_path, "gh200-test", table("gh200", [*forwards(), *backwards()]))
    with pytest.raises(SamplesError, match=r"nothing was changed.*faster than the physical bound"):
        put(tmp_path, "gh200-test", table("gh200", forwards(1e-3)))
    assert len([sample for sample in samples(tmp_path, "gh200-test") if not sample.quarantine]) == 60
