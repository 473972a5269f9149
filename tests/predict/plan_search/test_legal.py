"""What rules out every plan of a search is named, with what mends it."""

from collections.abc import Mapping
from typing import Any

import pytest

import predict
from predict.config.document import Document
from sampling.errors import InfeasibleError


def refusal(plan: Mapping[str, Any]) -> str:
    content = {
        "model": "gpt2",
        "cluster": {"hardware": "h100-sxm", "nodes": 1, "gpus_per_node": 2, "profile": "none"},
        "plan": plan,
        "batch": {"global": 8, "micro": 1, "seq_len": 512},
        "precision": "bf16",
    }
    with pytest.raises(InfeasibleError) as refused:
        predict.search(Document(name="refused", content=content, sources={}), jobs=1)
    return str(refused.value)


def test_a_schedule_that_refuses_every_plan_is_named() -> None:
    said = refusal({"tp": 1, "pp": 2, "vpp": 2, "schedule": "zbv-greedy", "memory_limit": 1})
    assert "the schedule cannot run any, as zbv-greedy cannot run within 1" in said


def test_more_memory_is_no_fix_where_no_plan_is_legal() -> None:
    said = refusal({"tp": [3]})
    assert "no plan of" in said and "to one of 1, 2" in said and "more memory" not in said
