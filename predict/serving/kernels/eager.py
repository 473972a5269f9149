"""Steps that the host launches kernel by kernel: an engine without CUDA graphs."""

from __future__ import annotations

from predict.serving.server import Server
from predict.serving.step_table import StepTable

LAYER_US = 790.0
"""µs in which an engine's host runs through one layer, however few its tokens: 22 to 23 ms per token of Qwen2.5-Omni-7B's 28 layers with
enforce_eager on A800, and 13 ms with graphs (vllm-project/vllm-omni, issue 7960)."""


def with_launches(table: StepTable, server: Server) -> StepTable:
    """The table with no step shorter than its launches, where the engine is eager; GPU and host work side by side."""
    return table.at_least(server.model.layers * LAYER_US) if server.engine.enforce_eager else table
