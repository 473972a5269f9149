"""The memory part of a benchmark: which reduced run it is of, and what its JSON must hold.

What runs is plain torch whatever the run's framework: this project's modules with torch's fused AdamW in the weights' own
dtype, on one tensor-parallel group, without pipeline, replicas, sharding or recomputation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from predict.anchor.reduced_run import ranks_of, reduced, timeable, with_plan
from predict.model.parts.mixture import Experts
from predict.run.execution import WHOLE_LAYERS
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import EMBEDDING, HEAD, whole_layer_calls
from sampling.cells.layer import LayerShape
from sampling.cells.moe_layer import MoELayer

VERSION = 1
MICROBATCHES = 2
"""The first finds no gradients, every later one does: more of them change no peak."""
SIZES = ("parameters", "gradients", "optimizer", "saved", "forward_backward_peak", "step_peak", "allocated", "reserved")
"""Bytes on the rank that has most of them; all counted, none estimated."""
SHAPE: Mapping[str, Mapping[str, type]] = {
    "plan": {"tp": int, "sp": bool},
    "batch": {"global": int, "micro": int, "seq_len": int},
    "share": {"experts": int, "topk": int},
    "bytes": dict.fromkeys(SIZES, int),
}


def memory_run(run: TrainingRun, gpus: int) -> TrainingRun:
    """What of a run a memory benchmark on `gpus` devices runs: both ends and a few layers of each kind."""
    cut = timeable(reduced(run, max(1, min(gpus, run.plan.tp))))
    plan = Plan(tp=cut.plan.tp, sp=cut.plan.sp)
    batch = replace(cut.batch, global_=min(MICROBATCHES, run.microbatches) * cut.batch.micro)
    return _as_plain_torch(replace(with_plan(cut, plan), batch=batch))


def run_measured(run: TrainingRun, memory: Mapping[str, Any]) -> TrainingRun:
    """The run that was measured, in terms of the run to be predicted (which may have another plan)."""
    share, batch = memory["share"], memory["batch"]
    experts = run.model.experts and replace(run.model.experts, count=share["experts"], topk=share["topk"])
    cut = replace(
        run,
        plan=Plan(**memory["plan"]),
        batch=Batch(global_=batch["global"], micro=batch["micro"], seq_len=batch["seq_len"]),
        model=replace(run.model, experts=experts),
    )
    return _as_plain_torch(timeable(cut))


def place_of(cut: TrainingRun) -> dict[str, Any]:
    """The part's description of the reduced run, which `run_measured` reads."""
    held = cut.model.experts or Experts(count=0, topk=0, ffn=0)
    return {
        "plan": {"tp": cut.plan.tp, "sp": cut.plan.sp},
        "batch": {"global": cut.batch.global_, "micro": cut.batch.micro, "seq_len": cut.batch.seq_len},
        "share": {"experts": held.count, "topk": held.topk},
        "layers": {kind.name: cut.model.kinds().count(kind) for kind in dict.fromkeys(cut.model.kinds())},
    }


def parameters_of(cut: TrainingRun) -> int:
    """Elements of the reduced run's weights on one rank, as its modules hold them."""
    calls, kinds = whole_layer_calls(cut), [kind.name for kind in cut.model.kinds()]
    table = cut.model.vocab * cut.model.hidden // cut.plan.tp
    total = cut.model.final_norm_parameters + table * (1 if cut.model.tied else 2)
    for name in kinds:
        call = calls[name]
        assert isinstance(call, LayerShape | MoELayer)
        total += sum(math.prod(shape) for shape in call.weight_shapes())
    return total


def _as_plain_torch(cut: TrainingRun) -> TrainingRun:
    """The reduced run as its modules are: no framework's kernels, paddings, buffers or master weights."""
    execution = replace(cut.execution, framework=WHOLE_LAYERS, elementwise="eager", optimizer="adamw")
    ranks = ranks_of(cut.plan)
    return replace(cut, execution=execution, cluster=replace(cut.cluster, nodes=1, gpus_per_node=ranks))


def memory_faults(memory: Any) -> Iterator[str]:
    """What is wrong with the memory part of a benchmark, each with its key below `memory`."""
    if not isinstance(memory, dict):
        yield "memory: is no dict"
        return
    if memory.get("version") != VERSION:
        yield f"memory.version: {memory.get('version')!r}, but this predict reads {VERSION}"
        return
    found = [*_shape_faults(memory)]
    yield from found
    if not found:
        yield from _contradictions(memory["bytes"], memory["saved_by_unit"])


def _shape_faults(memory: Mapping[str, Any]) -> Iterator[str]:
    for section, wanted in SHAPE.items():
        given = memory.get(section)
        if not isinstance(given, dict):
            yield f"memory.{section}: {'is no dict' if section in memory else 'missing'}"
            continue
        yield from (f"memory.{section}.{key}: unknown" for key in sorted(given.keys() - wanted))
        yield from (fault for key, of in wanted.items() for fault in _value_faults(f"memory.{section}", key, given, of))
    for key, of in {"world_size": int, "counter": str, "expandable_segments": bool}.items():
        yield from _value_faults("memory", key, memory, of)
    units = memory.get("saved_by_unit")
    if not isinstance(units, dict) or not {EMBEDDING, HEAD} <= units.keys():
        yield f"memory.saved_by_unit: needs the bytes of {EMBEDDING}, {HEAD} and each kind of layer"
        return
    yield from (fault for unit in units for fault in _value_faults("memory.saved_by_unit", unit, units, int))


def _value_faults(place: str, key: str, given: Mapping[str, Any], of: type) -> Iterator[str]:
    if key not in given:
        yield f"{place}.{key}: missing"
    elif type(given[key]) is not of:
        yield f"{place}.{key}: {given[key]!r} is no {of.__name__}"
    elif of is int and given[key] < (1 if key in ("tp", "world_size", *SHAPE["batch"]) else 0):
        yield f"{place}.{key}: {given[key]} is too small"


def _contradictions(sizes: Mapping[str, int], by_unit: Mapping[str, int]) -> Iterator[str]:
    peak = max(sizes["forward_backward_peak"], sizes["step_peak"])
    if sizes["allocated"] != peak:
        yield f"memory.bytes.allocated: {sizes['allocated']} is not the larger of the two peaks, {peak}"
    if sizes["reserved"] < sizes["allocated"]:
        yield f"memory.bytes.reserved: {sizes['reserved']} is less than the {sizes['allocated']} allocated"
    if sizes["allocated"] < sizes["parameters"] + sizes["optimizer"]:
        yield (
            f"memory.bytes.allocated: {sizes['allocated']} does not hold the weights and their optimizer, "
            f"{sizes['parameters'] + sizes['optimizer']}"
        )
    if sizes["saved"] != sum(by_unit.values()):
        yield f"memory.bytes.saved: {sizes['saved']} is not the sum of saved_by_unit, {sum(by_unit.values())}"
