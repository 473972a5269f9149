"""The result of `predict memory`: the estimate, what a benchmark restores beside it, and the formulas of Primus Projection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from predict.anchor.restore_memory import RestoredMemory
from predict.memory.advice import Advice
from predict.memory.estimate import MemoryEstimate
from predict.memory.primus.projection import PrimusMemory, primus_memory
from predict.report.memory.json import memory_json, primus_json
from predict.report.memory.text import memory_text, primus_lines, restored_lines

if TYPE_CHECKING:
    from rich.console import RenderableType


def memory_report_json(
    memory: MemoryEstimate, advice: Sequence[Advice], *, mode: str, restored: RestoredMemory | None, formula: bool
) -> dict[str, Any]:
    """JSON of the result; in benchmark mode point, upper bound and verdict are the benchmark's."""
    content = memory_json(memory, advice) | {"mode": mode}
    if restored:
        content["benchmark"] = of_benchmark = restored.to_json(memory.capacity_bytes)
        if mode == "benchmark":
            content |= {key: value for key, value in of_benchmark.items() if key != "terms"}
            content["feasible"] = content["verdict"] != "OOM"
    if formula:
        content["primus"] = primus_json(_primus(memory))
    return content


def memory_report_text(
    memory: MemoryEstimate, advice: Sequence[Advice], *, mode: str, restored: RestoredMemory | None, formula: bool
) -> RenderableType:
    """Text of the result; in benchmark mode the benchmark's figures come first."""
    from rich.console import Group

    blocks: list[RenderableType] = [memory_text(memory, advice)]
    if restored:
        measured = "\n".join(restored_lines(restored, memory.capacity_bytes))
        if mode == "benchmark":
            blocks.insert(0, f"{measured}\n\nsimulated:")
        else:
            blocks.append(f"\n{measured}")
    if formula:
        blocks.append("\n".join(["", *primus_lines(_primus(memory))]))
    return Group(*blocks)


def _primus(memory: MemoryEstimate) -> PrimusMemory:
    return primus_memory(memory.run, pipeline_rank=memory.worst.rank)
