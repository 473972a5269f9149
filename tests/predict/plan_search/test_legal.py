"""A schedule that refuses every plan of a search is named."""

from __future__ import annotations

import pytest

import predict
from predict.config.document import Document
from sampling.errors import InfeasibleError


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
