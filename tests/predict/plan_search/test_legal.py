"""The reasons of plans that a search leaves out are a reader's words, each of a rule that exists."""

from __future__ import annotations

import pytest

import predict
from predict.config.document import Document
from predict.config.rules import RULES
from predict.plan_search.legal import BROKEN, reason_of
from sampling.errors import InfeasibleError


def test_a_reason_says_what_is_wrong_with_the_plan() -> None:
    reasons = {rule.check.__name__: reason_of(rule) for rule in RULES}
    assert set(reasons) == set(BROKEN)
    assert reasons["degrees_make_the_world"] == "plan.dp: tp · pp · cp · dp is not the number of GPUs"
    assert reasons["schedule_runs"].startswith("plan.schedule: the schedule does not run")


def test_a_schedule_that_refuses_every_plan_is_named() -> None:
    content = {
        "model": "gpt2",
        "cluster": {"hardware": "h100-sxm", "nodes": 1, "gpus_per_node": 2, "profile": "none"},
        "plan": {"tp": 1, "pp": 2, "vpp": 2, "schedule": "zbv-greedy", "memory_limit": 1},
        "batch": {"global": 8, "micro": 1, "seq_len": 512},
        "precision": "bf16",
    }
    with pytest.raises(InfeasibleError, match="the schedule cannot run any, as zbv-greedy cannot run within 1"):
        predict.search(Document(name="refused", content=content, sources={}), jobs=1)
