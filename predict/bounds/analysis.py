"""A module on a device: its counts, its kernels, and the three models by each rule."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from predict.bounds.device import Device, Models, Roofline, Work, device_of, one_after_another, whole
from predict.bounds.element_counts import ElementCounts, Layer, element_counts
from predict.bounds.kernels import Graph, Kernel, kernels_of, prefetched_work, unfused_work
from predict.bounds.read_module import read_module
from sampling.hardware.hardware_file import DTYPE_BYTES

Rule = Literal["documented", "intended", "kernels"]
RULES: dict[Rule, str] = {
    "documented": "one maximum of sums over the whole graph, as SOLAR runs it",
    "intended": "one maximum for each operator, added up, as SOLAR means it",
    "kernels": "fused where a kernel's rows fit on the chip; own widths, masks skipped",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTime:
    """One operation and its two rooflines."""

    layer: Layer
    unfused: Roofline
    fused: Roofline


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """A module's speed of light on a device."""

    graph: Graph
    device: Device
    counts: ElementCounts
    item_bytes: float
    """Bytes of every element under SOLAR's rule."""
    layers: tuple[LayerTime, ...]
    kernels: tuple[tuple[Kernel, Roofline], ...]
    models: dict[Rule, Models]


def speed_of_light(file: Path | str, *, arch: str = "h100-sxm", precision: str = "bf16") -> Analysis:
    """The least time that a device leaves the torch module in a Python file, which is run: its `Model` on its `get_inputs()`.

    `arch` is an entry of configs/hardware, or a YAML file of ours or of SOLAR's. UserError, with the operation and the line, for
    what cannot be exported; ConfigError for a device that is unknown or lacks the precision.
    """
    device = device_of(arch)
    device.macs_in(precision)
    return analyse(read_module(Path(file), precision), device)


def analyse(graph: Graph, device: Device) -> Analysis:
    """The speed of light of a module's forward; ConfigError where the device lacks its precision."""
    device.macs_in(graph.precision)
    counts, item_bytes = element_counts(graph), float(DTYPE_BYTES[graph.precision])
    kernels = kernels_of(graph, on_chip_bytes=device.on_chip_bytes)
    layers = tuple(
        LayerTime(
            layer=layer,
            unfused=whole(_work(layer, layer.unfused * item_bytes), device, graph.precision),
            fused=whole(_work(layer, layer.fused * item_bytes), device, graph.precision),
        )
        for layer in counts.layers
    )
    return Analysis(
        graph=graph,
        device=device,
        counts=counts,
        item_bytes=item_bytes,
        layers=layers,
        kernels=tuple((kernel, whole(kernel.work, device, graph.precision)) for kernel in kernels),
        models={
            "documented": _documented(counts, item_bytes, device),
            "intended": _intended(counts, layers, item_bytes, device),
            "kernels": _in_kernels(graph, kernels, device),
        },
    )


def _work(layer: Layer, size_bytes: float) -> Work:
    return Work(macs=layer.macs, size_bytes=size_bytes, other_ops=layer.other_ops)


def _totals(counts: ElementCounts, elements: int, item_bytes: float) -> Work:
    return Work(macs=counts.total("macs"), size_bytes=elements * item_bytes, other_ops=counts.total("other_ops"))


def _documented(counts: ElementCounts, item_bytes: float, device: Device) -> Models:
    precision = counts.graph.precision
    unfused = whole(_totals(counts, counts.total("unfused"), item_bytes), device, precision)
    fused = whole(_totals(counts, counts.fused, item_bytes), device, precision)
    return Models(unfused=unfused, fused=fused, fused_prefetched=fused)


def _intended(counts: ElementCounts, layers: tuple[LayerTime, ...], item_bytes: float, device: Device) -> Models:
    precision = counts.graph.precision
    return Models(
        unfused=one_after_another((each.unfused.work for each in layers), device, precision),
        fused=one_after_another((each.fused.work for each in layers), device, precision),
        fused_prefetched=whole(_totals(counts, counts.fused, item_bytes), device, precision),
    )


def _in_kernels(graph: Graph, kernels: tuple[Kernel, ...], device: Device) -> Models:
    return Models(
        unfused=one_after_another(unfused_work(graph, on_chip_bytes=device.on_chip_bytes), device, graph.precision),
        fused=one_after_another((kernel.work for kernel in kernels), device, graph.precision),
        fused_prefetched=whole(prefetched_work(graph), device, graph.precision),
    )
