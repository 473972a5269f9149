"""Conventions give the FLOPs that verl itself, and a count of Qwen3.5 by part, gave: to the digit."""

import json
from typing import Any

from predict.ledger import conventions
from predict.ledger.verl_flops import verl
from sampling.files.places import CONFIGS
from tests.oracles.shared import SHARED

ORACLES = SHARED / "oracles" / "flops"


def _cases(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((ORACLES / name).read_text())["cases"]
    return cases


def _lengths(case: dict[str, Any]) -> list[int]:
    given = case["batch_seqlens"]
    return [given["length"]] * given["sequences"] if isinstance(given, dict) else given


def test_verl_gives_what_verl_gave() -> None:
    for case in _cases("verl.json"):
        ours = verl(case["config"], _lengths(case), images_seqlens=case.get("images_seqlens", ()))
        assert ours == case["flops_fwd_bwd"], case["name"]


def test_qwen3_5_is_counted_as_by_part() -> None:
    config = json.loads((CONFIGS / "models" / "qwen3.5-35b-a3b.json").read_text())
    for case in _cases("qwen35.json"):
        lengths = _lengths(case)
        assert verl(config, lengths) == case["verl"]
        assert conventions.exact(config, lengths) == case["proposed"]["train_3x"]
        assert conventions.exact(config, lengths, mtp=True) == case["proposed_with_mtp_train"]
        repeated = case["proposed"]["total_fwd"] - case["proposed"]["lm_head"]
        assert conventions.hfu(config, lengths, recompute="full") == case["proposed"]["train_3x"] + repeated
