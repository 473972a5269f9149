"""Published weight transfers: rows by hand, and rows that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from predict.cli import main
from predict.huggingface.config_json import load_model
from predict.rl.phases import TERMS, sync_time, tensor_count
from predict.validation.rl import ComparedPhase, summary
from sampling.hardware.cluster import Link

TABLE = """\
source,model,placement,method,seconds,notes
page (H20),Qwen3-30B-A3B,16 + 16,default,20,
page (H20),Qwen3-30B-A3B,16 + 16,checkpoint engine,6,
page,GLM-4.5-Air BF16,"8 x H800, TP8",broadcast,3,
page,DeepSeek-V3.1 FP8,"16 x H20, TP16",broadcast,10,
page,DeepSeek-V3.1 FP8,"16 x H20, TP16",point to point,10,
page,Nobody-7B,"8 x H800, TP8",broadcast,10,
page,Qwen3-30B-A3B,somewhere,broadcast,10,
page,Qwen3-30B-A3B,16 + 16,default,,
MoonshotAI/checkpoint-engine README.md,GLM-4.5-Air BF16,"8 x H800, TP8",broadcast,3,
"""


def test_transfers_are_judged_by_their_phase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "transfers.csv"
    path.write_text(TABLE)
    assert main(["validate", "rl", "--truth", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    seconds = [row["phases"]["update_weights"]["predicted_s"] if row["phases"] else None for row in found["rows"]]
    tensors, bytes_30b = 48 * (128 * 3 + 9) + 3, 30.5e9 * 2
    assert seconds[0] == pytest.approx(bytes_30b / 50e9 + 1e-3 * tensors, rel=0.01)
    assert seconds[1] == pytest.approx(bytes_30b / 50e9 + 3e-4 * tensors, rel=0.01)
    assert seconds[2] == pytest.approx(106e9 * 2 / 66e9, rel=0.05)
    assert seconds[3] == pytest.approx(671e9 / 66e9, rel=0.05)
    assert [bool(row["reason"]) for row in found["rows"]] == [False] * 4 + [True] * 4 + [False]
    reasons = " ".join(row["reason"] or "" for row in found["rows"])
    for part in ("method: point to point", "Nobody-7B is not in", "placement: somewhere", "seconds: not published"):
        assert part in reasons
    assert found["summary"]["update_weights"]["rows"] == 4
    # the source that the rate of transfers was read from is judged apart
    assert found["summary_in_sample"]["update_weights"]["rows"] == 1
    assert [row["phases"].get("update_weights", {}).get("in_sample") for row in found["rows"]][-1:] == [True]
    assert main(["validate", "rl", "--truth", str(path)]) == 0
    assert "update_weights (in-sample)" in capsys.readouterr().out


def test_a_table_of_other_columns_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.csv"
    path.write_text("model,seconds\nx,1\n")
    assert main(["validate", "rl", "--truth", str(path)]) == 3
    assert (
        "lacks the columns row_id, step_s; give a table of published RL steps, or of weight transfers"
        in capsys.readouterr().err
    )


def test_figures_of_judged_times() -> None:
    from predict.model.shipped import shipped_model

    path = shipped_model("llama3-8b")
    assert path is not None
    model = load_model(path)
    time = sync_time(model, Link(latency_us=1, gb_per_s=100), "bf16", "tensors")
    assert time.low_us < time.median_us < time.high_us
    assert time.median_us == pytest.approx(
        2 * model.parameters / 1e5 + 1e6 * TERMS["tensor_s"].value * tensor_count(model)
    )
    half, exact = (
        ComparedPhase(predicted=time, measured=2 * time.median_us),
        ComparedPhase(predicted=time, measured=time.median_us),
    )
    assert summary([half, exact])["mean"] == pytest.approx(0.25)
    assert summary([half, exact])["bias"] == pytest.approx(-0.25)
    assert summary([])["mean"] is None
