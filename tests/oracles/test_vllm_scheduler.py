"""The simulated loop beside vLLM's own scheduler, where $VLLM_SOURCE names vLLM's wheel or the folder of its package."""

import os
from pathlib import Path

import pytest

from tests.oracles.vllm_scheduler import differences

SOURCE = os.environ.get("VLLM_SOURCE", "")


@pytest.mark.skipif(not SOURCE, reason="VLLM_SOURCE names no wheel of vLLM")
def test_vllm_admits_preempts_and_computes_alike() -> None:
    assert list(differences(Path(SOURCE), range(50))) == []
    assert len(list(differences(Path(SOURCE), range(50), asynchronous=True))) <= 15
