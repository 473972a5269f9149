"""The answer of `predict memory` as text and JSON: the estimate, what a benchmark restores, and Primus' formulas."""

from collections.abc import Iterator, Sequence
from typing import Any

from predict.memory.advice import Advice
from predict.memory.estimate import MemoryEstimate
from predict.memory.primus import PrimusComponent, PrimusLayer, PrimusMemory, primus_memory
from predict.reduced_benchmark.restore_memory import RestoredMemory
from predict.reports.memory import memory_json, memory_text, verdict_text
from predict.reports.printed import Renderable
from predict.reports.text import stacked
from predict.serialise import as_json, picked
from sampling.number_text import gib, plain, significant, size
from sampling.units import GIB


def memory_report_text(
    memory: MemoryEstimate, advice: Sequence[Advice], *, mode: str, restored: RestoredMemory | None, formula: bool
) -> Renderable:
    """Text of the result; in benchmark mode the benchmark's figures come first."""
    blocks = [memory_text(memory, advice)]
    if restored:
        measured = "\n".join(restored_lines(restored, memory.capacity_bytes))
        if mode == "benchmark":
            blocks.insert(0, f"{measured}\n\nsimulated:")
        else:
            blocks.append(f"\n{measured}")
    if formula:
        blocks.append("\n".join(["", *primus_lines(_primus(memory))]))
    return stacked(*blocks)


def memory_report_json(
    memory: MemoryEstimate, advice: Sequence[Advice], *, mode: str, restored: RestoredMemory | None, formula: bool
) -> dict[str, Any]:
    """JSON of the result; in benchmark mode point, upper bound and verdict are the benchmark's."""
    content = memory_json(memory, advice) | {"mode": mode}
    if restored:
        content["benchmark"] = of_benchmark = restored.to_json(memory.capacity_bytes)
        if mode == "benchmark":
            content |= {key: value for key, value in of_benchmark.items() if key != "terms"}
            content["feasible"] = restored.point_bytes <= memory.capacity_bytes
    if formula:
        content["primus"] = primus_json(_primus(memory))
    return content


def restored_lines(restored: RestoredMemory, capacity_bytes: float) -> list[str]:
    """The peak restored from a benchmark."""
    verdict = verdict_text(
        restored.verdict(capacity_bytes),
        restored.fits_probability(capacity_bytes),
        restored.point_bytes,
        restored.upper_bytes,
        capacity_bytes,
    )
    terms = ", ".join(f"{name.removesuffix('_bytes').replace('_', ' ')} {size(of)}" for name, of in restored.sizes())
    return [
        f"from the benchmark: {verdict}",
        f"  {terms}",
        f"  measured / predicted activations: {significant(restored.terms['activation_correction'])}",
    ]


def _primus(memory: MemoryEstimate) -> PrimusMemory:
    return primus_memory(memory.run, pipeline_rank=memory.worst.rank)


def primus_lines(memory: PrimusMemory) -> list[str]:
    """The summary of Primus Projection, and how our estimate differs."""
    factors = memory.factors
    return [
        f"{memory.run}: memory of pipeline rank {memory.pipeline_rank} by the formulas of Primus Projection",
        f"  parameters            {memory.total_parameters:,} in total, {memory.parameters:,} on the rank",
        *_primus_components(memory),
        f"  weights + gradients + optimizer   {gib(memory.state_bytes)} GiB  ({plain(memory.bytes_per_parameter)} bytes per parameter)",
        f"  activations                       {gib(memory.activation_bytes)} GiB  "
        f"({gib(memory.base_activation_bytes)} GiB × pp {factors.pp} × penalty {plain(factors.interleaved_penalty)} × "
        f"ga {plain(factors.ga_saving)})",
        f"  total                             {gib(memory.total_bytes)} GiB",
        "how ours differs:",
        *(f"  {term}: {difference}" for term, difference in memory.differences.items()),
    ]


def _primus_components(memory: PrimusMemory) -> Iterator[str]:
    for component in memory.outside_layers:
        yield f"  {component.name:<32}{_primus_sizes(component)}"
    for layer, count in memory.layers:
        yield f"  {f'{layer.name} × {count}':<32}{_primus_sizes(layer)}"
        for component in layer.components:
            name = f"{component.name} × {component.count}" if component.count > 1 else component.name
            yield f"    {name:<30}{_primus_sizes(component)}"


def _primus_sizes(of: PrimusComponent | PrimusLayer) -> str:
    return f"{of.parameters:>18,} parameters {of.activation_bytes / GIB:>10.4f} GiB"


def primus_json(memory: PrimusMemory) -> dict[str, Any]:
    """The formulas' figures, and how ours differ."""
    layers = [
        {"name": layer.name, "count": count} | picked(layer, "parameters activation_bytes components")
        for layer, count in memory.layers
    ]
    return (
        {"formula": "primus"}
        | picked(memory, "run pipeline_rank")
        | {"parameters": picked(memory, "total=total_parameters rank=parameters")}
        | picked(
            memory,
            """bytes_per_parameter weight_bytes gradient_bytes optimizer_bytes base_activation_bytes working_bytes activation_bytes
            total_bytes recomputed_layers""",
        )
        | {"factors": as_json(memory.factors) | {"product": memory.factors.product}}
        | {"components": as_json(memory.outside_layers), "layers": layers, "differences": as_json(memory.differences)}
    )
