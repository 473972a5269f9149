"""The speed of light of a step's operators, and of a torch module, as text and as JSON."""

from typing import Any

import yaml

from predict.bounds.analysis import RULES, Analysis, Rule
from predict.bounds.device import Models, Roofline
from predict.bounds.element_counts import Layer
from predict.bounds.kernels import Kernel
from predict.bounds.step import StepBounds
from predict.reports.printed import Renderable, Table
from predict.reports.text import escape, fact, head, run_text, stacked, table, uneven_counts
from predict.serialise import each_picked, picked, versioned
from sampling.files.faults import counted
from sampling.number_text import count, duration, multiple, percent, plain, significant, size

OPERATOR = "name phase count predicted_us bound_us predicted_over_bound=ratio bottleneck"


def step_json(bounds: StepBounds) -> dict[str, Any]:
    """The step, its operators with their bounds, and the three models of them all."""
    return versioned(
        "speed-of-light",
        picked(bounds, "run=run.name hardware=run.cluster.gpu.name step_us=prediction.median_us predicted_us bound_us")
        | {"operators": each_picked(bounds.operators, OPERATOR), "models": bounds.models},
    )


def step_text(bounds: StepBounds) -> Renderable:
    """The step and its bound, the operators with the worst ratio first, and the three models."""
    step_us, run = bounds.prediction.median_us, bounds.run
    most = max(bounds.operators, key=lambda each: each.headroom_us)
    peaks = f"their bounds add up to {duration(bounds.bound_us)}"
    return stacked(
        head(run.name, f"{run_text(run)}, on {run.cluster.gpu.name}"),
        "",
        fact("step time", f"[bold]{duration(step_us)}[/] predicted"),
        fact("operators", f"{duration(bounds.predicted_us)} of it on the mean pipeline rank; {peaks}"),
        fact("headroom", f"most in {escape(most.name)} {most.phase}: {duration(most.headroom_us)} above its bound"),
        "",
        _operators(bounds),
        *uneven_counts((each.count for each in bounds.operators), run.plan.pp),
        "",
        _models(bounds),
        "",
        "A bound: no time of a device with these peaks lies below it. Tensors that fit in the cache are bounded by their products alone; "
        "the three models take them from memory instead, so that unfused may lie above what the bounds add up to. Waiting, launches and "
        "communication are in none of them.",
    )


def _operators(bounds: StepBounds) -> Table:
    return table(
        "operators of one step, worst first",
        bounds.operators,
        {"operator": lambda each: each.name, "phase": lambda each: each.phase},
        {
            "calls": lambda each: plain(each.count),
            "predicted": lambda each: duration(each.predicted_us),
            "bound": lambda each: duration(each.bound_us) if each.bound_us else "–",
            "÷ bound": lambda each: significant(each.ratio) if each.ratio else "–",
            "above it": lambda each: duration(each.headroom_us) if each.bound_us else "–",
        },
        {"limited by": lambda each: each.bottleneck if each.bound_us else "cache"},
    )


def _models(bounds: StepBounds) -> Table:
    return table(
        "least time of these operators in three models",
        (
            ("documented", bounds.models.documented, "one maximum of sums over all operators"),
            ("intended", bounds.models.intended, "one maximum for each operator, added up"),
        ),
        {"rule": lambda row: row[0]},
        {
            "unfused": lambda row: duration(row[1].unfused_us),
            "fused": lambda row: duration(row[1].fused_us),
            "fused + prefetched": lambda row: duration(row[1].fused_prefetched_us),
        },
        {"": lambda row: row[2]},
    )


MOST_KERNELS = 12
"""Kernels that the text shows; the files and `--json` have all."""
SHORT_LINE = 48
"""Characters of a place in a table."""
ROOFLINE = "macs=work.macs memory_bytes=work.size_bytes arithmetic_intensity=work.intensity time_us bottleneck"


def module_json(analysis: Analysis) -> dict[str, Any]:
    """The content of both files, and every kernel."""
    kernels = [
        {"operations": [each.name for each in kernel.operations], "place": kernel.place} | picked(roofline, ROOFLINE)
        for kernel, roofline in analysis.kernels
    ]
    content = {"analysis": analysis_content(analysis), "perf": perf_content(analysis), "kernels": kernels}
    return versioned("speed-of-light", {"module": analysis.graph.name} | content)


def module_text(analysis: Analysis) -> Renderable:
    """The module and what it moves, the three models by each rule, and the kernels that take longest."""
    counts, device, precision = analysis.counts, analysis.device, analysis.graph.precision
    macs, documented = counts.total("macs"), analysis.models["documented"]

    def moved(elements: float) -> str:
        return size(elements * analysis.item_bytes)

    in_all, fused = moved(counts.total("fused")), moved(counts.fused)
    return stacked(
        head(analysis.graph.name, f"forward, {precision}, on {device.name}"),
        "",
        fact(
            "operations",
            f"{counted(len(counts.layers), 'operation')}, {counted(len(analysis.kernels), 'kernel')} once fused",
        ),
        fact("MACs", f"{plain(macs)}   FLOPs {plain(2 * macs)}   other operations {plain(counts.total('other_ops'))}"),
        fact("bytes", f"unfused {moved(counts.total('unfused'))}   fused {fused}   prefetched {fused}"),
        fact(
            "of which",
            f"weights {moved(counts.weights)}   model inputs and outputs, with weights {in_all}   intermediates "
            f"{moved(counts.total('intermediate'))}",
        ),
        fact(
            "intensity",
            f"unfused {plain(documented.unfused.work.intensity)}, fused {plain(documented.fused.work.intensity)} MACs per byte; products limit "
            f"from {count(device.ridge(precision))}",
        ),
        "",
        _least_times(analysis),
        "",
        *_kernels(analysis),
        "A bound, no prediction: launches, latency and partly filled tiles come on top; the backward is not in it.",
    )


def _least_times(analysis: Analysis) -> Table:
    return table(
        "least time of the forward",
        ((rule, words, analysis.models[rule]) for rule, words in RULES.items()),
        {"rule": lambda row: row[0]},
        {
            "unfused": lambda row: _time(row[2].unfused),
            "fused": lambda row: _time(row[2].fused),
            "fused + prefetched": lambda row: _time(row[2].fused_prefetched),
            "speed-up": lambda row: _speedup(row[2]),
        },
        {"": lambda row: row[1]},
    )


def _time(roofline: Roofline) -> str:
    return f"{duration(roofline.time_us)} {roofline.bottleneck}"


def _speedup(models: Models) -> str:
    shortest = models.fused_prefetched.time_us
    return f"{multiple(models.unfused.time_us / shortest)}" if shortest else ""


def _kernels(analysis: Analysis) -> list[Renderable]:
    alike, whole_us = _alike(analysis), analysis.models["kernels"].fused.time_us
    longest = table(
        "kernels that take longest",
        alike[:MOST_KERNELS],
        {"kernel": lambda row: row[0].name},
        {
            "count": lambda row: str(row[2]),
            "time": lambda row: duration(row[2] * row[1].time_us),
            "share": lambda row: percent(row[2] * row[1].time_us / whole_us) if whole_us else "",
            "MACs per byte": lambda row: plain(row[1].work.intensity),
        },
        {"limited by": lambda row: row[1].bottleneck, "where": lambda row: _short(row[0].place)},
    )
    hidden = len(alike) - MOST_KERNELS
    return [longest, "", *([f"{counted(hidden, 'more kernel')}: --json has all"] if hidden > 0 else [])]


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
    return (
        picked(layer, "type einsum_equation=equation macs other_ops")
        | {"flops": 2 * layer.macs}
        | picked(layer, "unfused_elements=unfused fused_elements=fused fused_prefetched_elements=fused")
        | {"input_elements": layer.unfused - layer.written}
        | picked(layer, "output_elements=written intermediate_elements=intermediate model_io_elements=fused")
        | {
            "tensor_shapes": picked(layer, "inputs=input_shapes outputs=output_shapes"),
            "connections": {"inputs": [f"Model.{name}" for name in layer.made_by]},
            "line": layer.line,
        }
    )


OURS: tuple[Rule, ...] = ("intended", "kernels")
"""The rules other than the one that SOLAR writes."""
TIMES = """
unfused_us=unfused.time_us fused_us=fused.time_us arithmetic_intensity=unfused.work.intensity bottleneck=unfused.bottleneck
"""
"""The two rooflines of one operation."""


def perf_content(analysis: Analysis) -> dict[str, Any]:
    """The three models on one device; SOLAR does not write `intended` and `kernels`."""
    documented, ours = analysis.models["documented"], {rule: analysis.models[rule] for rule in OURS}
    return {
        "arch": _arch_content(analysis),
        "workload": _workload_content(analysis),
        **_models_content(analysis, documented),
        "memory_breakdown": _memory_breakdown(analysis),
        **_speedups(documented),
        "layers": {f"Model.{each.layer.name}": picked(each, TIMES) for each in analysis.layers},
        **{rule: _models_content(analysis, models) | _speedups(models) for rule, models in ours.items()},
    }


def _arch_content(analysis: Analysis) -> dict[str, Any]:
    device, precision = analysis.device, analysis.graph.precision
    unit = "sm" if precision == "fp32" else "tc"
    return (
        picked(device, "name freq_GHz=clock_ghz DRAM_byte_per_cycle=bytes_per_cycle")
        | {"MAC_per_cycle": device.macs_in(precision), "mac_per_cycle_key": f"MAC_per_cycle_{precision}_{unit}"}
        | picked(
            device,
            "MAC_per_cycle_fp32_sm=vector_macs_per_cycle SRAM_capacity=on_chip_bytes DRAM_capacity=memory_bytes",
        )
        | {"ridge_point": device.ridge(precision)}
    )


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
    return (
        {"memory_elements": roofline.work.size_bytes / analysis.item_bytes}
        | picked(
            roofline,
            """memory_bytes=work.size_bytes compute_cycles compute_tc_cycles=compute_cycles compute_sm_cycles=vector_cycles
            memory_cycles total_cycles=cycles""",
        )
        | {"runtime_ms": roofline.time_us / 1e3}
        | picked(roofline, "arithmetic_intensity=work.intensity bottleneck")
    )


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
