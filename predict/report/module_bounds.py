"""The speed of light of a module as text, as JSON, and as analysis.yaml and perf_<arch>.yaml with SOLAR's fields, ours apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from predict.bounds.analysis import RULES, Analysis, LayerTime
from predict.bounds.element_counts import Layer
from predict.bounds.kernels import Kernel
from predict.bounds.roofline import Models, Roofline
from predict.report.text import figures_table
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


def analysis_content(analysis: Analysis) -> dict[str, Any]:
    """Counts of elements and operations, which depend on no device: of the whole module, and of each layer."""
    counts, graph = analysis.counts, analysis.graph
    macs = counts.total("macs")
    return {
        "total": {
            "num_layers": len(counts.layers),
            "num_start_nodes_filtered": len(graph.inputs),
            "macs": macs,
            "other_ops": counts.total("other_ops"),
            "flops": 2 * macs,
            "unfused_elements": counts.total("unfused"),
            "fused_elements": counts.fused,
            "fused_prefetched_elements": counts.fused,
            "model_io_elements": counts.total("fused"),
            "intermediate_elements": counts.total("intermediate"),
            "num_intermediate_tensors": counts.intermediate_tensors,
            "weight_elements": counts.weights,
        },
        "layers": {f"Model.{layer.name}": _layer_content(layer) for layer in counts.layers},
        "metadata": {"precision": graph.precision, "bytes_per_element": analysis.item_bytes},
    }


def _layer_content(layer: Layer) -> dict[str, Any]:
    return {
        "type": layer.type,
        "einsum_equation": layer.equation,
        "macs": layer.macs,
        "other_ops": layer.other_ops,
        "flops": 2 * layer.macs,
        "unfused_elements": layer.unfused,
        "fused_elements": layer.fused,
        "fused_prefetched_elements": layer.fused,
        "input_elements": layer.unfused - layer.written,
        "output_elements": layer.written,
        "intermediate_elements": layer.intermediate,
        "model_io_elements": layer.fused,
        "tensor_shapes": {
            "inputs": [[*shape] for shape in layer.input_shapes],
            "outputs": [[*shape] for shape in layer.output_shapes],
        },
        "connections": {"inputs": [f"Model.{name}" for name in layer.made_by]},
        "line": layer.line,
    }


def perf_content(analysis: Analysis) -> dict[str, Any]:
    """The three models on one device; `intended` and `kernels` are beside those that SOLAR writes."""
    documented = analysis.models["documented"]
    return {
        "arch": _arch_content(analysis),
        "workload": _workload_content(analysis),
        **_models_content(analysis, documented),
        "memory_breakdown": _memory_breakdown(analysis),
        **_speedups(documented),
        "layers": {f"Model.{each.layer.name}": _times_content(each) for each in analysis.layers},
        "intended": {
            **_models_content(analysis, analysis.models["intended"]),
            **_speedups(analysis.models["intended"]),
        },
        "kernels": {**_models_content(analysis, analysis.models["kernels"]), **_speedups(analysis.models["kernels"])},
    }


def _arch_content(analysis: Analysis) -> dict[str, Any]:
    device, precision = analysis.device, analysis.graph.precision
    return {
        "name": device.name,
        "freq_GHz": device.clock_ghz,
        "DRAM_byte_per_cycle": device.bytes_per_cycle,
        "MAC_per_cycle": device.macs_in(precision),
        "mac_per_cycle_key": f"MAC_per_cycle_{precision}_{'sm' if precision == 'fp32' else 'tc'}",
        "MAC_per_cycle_fp32_sm": device.vector_macs_per_cycle,
        "SRAM_capacity": device.on_chip_bytes,
        "DRAM_capacity": device.memory_bytes,
        "ridge_point": device.ridge(precision),
    }


def _workload_content(analysis: Analysis) -> dict[str, Any]:
    counts = analysis.counts
    return {
        "name": analysis.graph.name,
        "precision": analysis.graph.precision,
        "bytes_per_element": analysis.item_bytes,
        "total_macs": counts.total("macs"),
        "total_flops": 2 * counts.total("macs"),
        "total_other_ops": counts.total("other_ops"),
        "weight_bytes": counts.weights * analysis.item_bytes,
        "num_layers": len(counts.layers),
    }


def _models_content(analysis: Analysis, models: Models) -> dict[str, Any]:
    return {name: _roofline_content(analysis, getattr(models, name)) for name in Models.__dataclass_fields__}


def _roofline_content(analysis: Analysis, roofline: Roofline) -> dict[str, Any]:
    return {
        "memory_elements": roofline.work.size_bytes / analysis.item_bytes,
        "memory_bytes": roofline.work.size_bytes,
        "compute_cycles": roofline.compute_cycles,
        "compute_tc_cycles": roofline.compute_cycles,
        "compute_sm_cycles": roofline.vector_cycles,
        "memory_cycles": roofline.memory_cycles,
        "total_cycles": roofline.cycles,
        "runtime_ms": roofline.time_us / 1e3,
        "arithmetic_intensity": roofline.work.intensity,
        "bottleneck": roofline.bottleneck,
    }


def _times_content(each: LayerTime) -> dict[str, Any]:
    """The two rooflines of one operation."""
    return {
        "unfused_us": each.unfused.time_us,
        "fused_us": each.fused.time_us,
        "arithmetic_intensity": each.unfused.work.intensity,
        "bottleneck": each.unfused.bottleneck,
    }


def _memory_breakdown(analysis: Analysis) -> dict[str, float]:
    counts, item_bytes = analysis.counts, analysis.item_bytes
    return {
        "weight_bytes": counts.weights * item_bytes,
        "model_io_bytes": counts.total("fused") * item_bytes,
        "intermediate_bytes": counts.total("intermediate") * item_bytes,
        "unfused_bytes": counts.total("unfused") * item_bytes,
        "fused_bytes": counts.fused * item_bytes,
    }


def _speedups(models: Models) -> dict[str, Any]:
    unfused, fused, prefetched = models.unfused, models.fused, models.fused_prefetched
    return {
        "speedup": {
            "fused_vs_unfused": _ratio(unfused.time_us, fused.time_us),
            "fused_prefetched_vs_unfused": _ratio(unfused.time_us, prefetched.time_us),
            "fused_prefetched_vs_fused": _ratio(fused.time_us, prefetched.time_us),
        },
        "memory_reduction": {
            "fused_vs_unfused": _ratio(unfused.work.size_bytes, fused.work.size_bytes),
            "fused_prefetched_vs_unfused": _ratio(unfused.work.size_bytes, prefetched.work.size_bytes),
        },
    }


def _ratio(slow: float, fast: float) -> float:
    """1 where there is nothing to speed up."""
    return slow / fast if fast else 1.0


def as_yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=140)
