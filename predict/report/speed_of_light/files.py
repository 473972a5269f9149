"""The files of `predict speed-of-light --output`: analysis.yaml and perf_<arch>.yaml, with SOLAR's fields, and what is ours apart."""

from __future__ import annotations

from typing import Any

import yaml

from predict.bounds.analysis import Analysis, LayerTime
from predict.bounds.element_counts import Layer
from predict.bounds.roofline import Models, Roofline


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
