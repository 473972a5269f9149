"""The speed of light of a module, as text for a terminal and as JSON; `version` changes when the meaning of a key changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from predict.bounds.analysis import RULES, Analysis
from predict.bounds.kernels import Kernel
from predict.bounds.roofline import Models, Roofline
from predict.report.speed_of_light.files import analysis_content, perf_content
from predict.report.tables import figures_table
from sampling.files.faults import counted
from sampling.number_text import duration, plain

if TYPE_CHECKING:
    from rich.console import RenderableType

VERSION = 1
MOST_KERNELS = 12
"""Kernels that are told; the files and `--json` have all."""
SHORT_LINE = 48
"""Characters of a place in a table."""


def module_json(analysis: Analysis) -> dict[str, Any]:
    return {
        "version": VERSION,
        "module": analysis.graph.name,
        "analysis": analysis_content(analysis),
        "perf": perf_content(analysis),
        "kernels": [
            {
                "operations": [each.name for each in kernel.operations],
                "place": kernel.place,
                "macs": roofline.work.macs,
                "memory_bytes": roofline.work.size_bytes,
                "arithmetic_intensity": roofline.work.intensity,
                "time_us": roofline.time_us,
                "bottleneck": roofline.bottleneck,
            }
            for kernel, roofline in analysis.kernels
        ],
    }


def module_text(analysis: Analysis) -> RenderableType:
    """The module and what it moves, the three models by each rule, and the kernels that take longest."""
    from rich.console import Group
    from rich.markup import escape

    return Group(
        *(escape(line) for line in _head(analysis)),
        "",
        _models(analysis),
        "",
        _kernels(analysis),
        "",
        *_notes(analysis),
    )


def _head(analysis: Analysis) -> list[str]:
    counts, device, precision = analysis.counts, analysis.device, analysis.graph.precision
    macs, width = counts.total("macs"), analysis.item_bytes
    return [
        f"{analysis.graph.name}, forward, {precision}, on {device.name}",
        "",
        f"  operations    {counted(len(counts.layers), 'operation')}, {counted(len(analysis.kernels), 'kernel')} once fused",
        f"  MACs          {plain(macs)}   FLOPs {plain(2 * macs)}   other operations {plain(counts.total('other_ops'))}",
        f"  bytes         unfused {_size(counts.total('unfused') * width)}   fused {_size(counts.fused * width)}"
        f"   prefetched {_size(counts.fused * width)}",
        f"  of which      weights {_size(counts.weights * width)}   model inputs and outputs, with weights "
        f"{_size(counts.total('fused') * width)}   intermediates {_size(counts.total('intermediate') * width)}",
        f"  intensity     {_intensities(analysis.models['documented'])} MACs per byte; products limit from {device.ridge(precision):.0f}",
    ]


def _size(size_bytes: float) -> str:
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= limit:
            return f"{size_bytes / limit:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def _intensities(models: Models) -> str:
    return f"unfused {models.unfused.work.intensity:.3g}, fused {models.fused.work.intensity:.3g}"


def _models(analysis: Analysis) -> RenderableType:
    table = figures_table("least time of the forward", ["rule"], ["unfused", "fused", "fused + prefetched", "speed-up"])
    table.add_column("")
    for rule, words in RULES.items():
        models = analysis.models[rule]
        cells = [_time(getattr(models, name)) for name in Models.__dataclass_fields__]
        shortest = models.fused_prefetched.time_us
        speedup = f"{models.unfused.time_us / shortest:.2f} ×" if shortest else ""
        table.add_row(rule, *cells, speedup, words)
    return table


def _time(roofline: Roofline) -> str:
    return f"{duration(roofline.time_us)} {roofline.bottleneck}"


def _kernels(analysis: Analysis) -> RenderableType:
    from rich.markup import escape

    longest = _alike(analysis)[:MOST_KERNELS]
    whole_us = analysis.models["kernels"].fused.time_us
    table = figures_table("kernels that take longest", ["kernel"], ["count", "time", "share", "MACs per byte"])
    table.add_column("limited by")
    table.add_column("where")
    for kernel, roofline, count in longest:
        total_us = count * roofline.time_us
        table.add_row(
            escape(kernel.name),
            str(count),
            duration(total_us),
            f"{total_us / whole_us:.1%}" if whole_us else "",
            f"{roofline.work.intensity:.3g}",
            roofline.bottleneck,
            escape(_short(kernel.place)),
        )
    return table


def _alike(analysis: Analysis) -> list[tuple[Kernel, Roofline, int]]:
    """Kernels with the same work counted together, the longest first."""
    found: dict[tuple[str, float, float], tuple[Kernel, Roofline, int]] = {}
    for kernel, roofline in analysis.kernels:
        key = (kernel.name, roofline.work.macs, roofline.work.size_bytes)
        first, _, count = found.get(key, (kernel, roofline, 0))
        found[key] = (first, roofline, count + 1)
    return sorted(found.values(), key=lambda one: -one[1].time_us * one[2])


def _short(line: str) -> str:
    return line if len(line) <= SHORT_LINE else f"…{line[-SHORT_LINE:]}"


def _notes(analysis: Analysis) -> list[str]:
    hidden = len(_alike(analysis)) - MOST_KERNELS
    more = [f"{counted(hidden, 'more kernel')}: --json has all"] if hidden > 0 else []
    return [
        *more,
        "A bound, no prediction: launches, latency and partly filled tiles come on top; the backward is not in it.",
    ]
