"""The part of a benchmark's file that holds counted bytes: a `MemoryBenchmark`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from predict.anchor.reduced_run import in_plain_torch, only_whole_layers
from predict.model.spec import Experts
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import EMBEDDING, HEAD, module_parameters
from sampling.errors import ConfigError, SamplesError
from sampling.files.documents import read_json
from sampling.files.faults import Fault, config_error, shown
from sampling.files.keys import Count, Text
from sampling.files.schema import build

WRITE_ANEW = "write it anew with `predict benchmark CONFIG --gpus N --output FILE`"


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorPlan:
    """The part of a plan that a memory benchmark keeps."""

    tp: int
    sp: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertShare:
    """Experts on one rank and a token's choices among them; 0 in a model without any."""

    experts: Count
    topk: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedBytes:
    """Bytes on the rank that allocated most; each is counted, none estimated."""

    parameters: Count
    gradients: Count
    optimizer: Count
    saved: Count
    """Saved by autograd in one microbatch's forward."""
    forward_backward_peak: Count
    step_peak: Count
    allocated: Count
    reserved: Count

    def contradictions(self) -> Iterator[Fault]:
        peak = max(self.forward_backward_peak, self.step_peak)
        if self.allocated != peak:
            yield Fault(path="allocated", problem=f"{self.allocated} is not the larger of the two peaks, {peak}")
        if self.reserved < self.allocated:
            problem = f"{self.reserved} is less than the {self.allocated} allocated"
            yield Fault(path="reserved", problem=problem)
        state = self.parameters + self.optimizer
        if self.allocated < state:
            problem = f"{self.allocated} does not hold the weights and their optimizer, {state}"
            yield Fault(path="allocated", problem=problem)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryBenchmark:
    """Bytes of a few layers, embedding and head trained in plain torch: this project's modules with torch's fused AdamW in
    the weights' own dtype, on one tensor-parallel group, without pipeline, replicas, sharding or recomputation."""

    HEADER: ClassVar[Mapping[str, Any]] = {"version": 1}

    plan: TensorPlan
    batch: Batch
    share: ExpertShare
    layers: Mapping[str, int]
    """Layers of each kind."""
    parameters: Count
    """Weights on one rank."""
    world_size: int
    bytes: CountedBytes
    saved_by_unit: Mapping[str, Count]
    """Bytes that the units of one name saved together."""
    counter: Text
    """The instrument of the peaks: live tensors, or the caching allocator."""
    expandable_segments: bool
    outside_allocator_bytes: Count | None = None
    """Bytes of the device in use beside the allocator's segments; null on a CPU."""
    provenance: Mapping[str, Any]

    def contradictions(self) -> Iterator[Fault]:
        if not {EMBEDDING, HEAD} <= self.saved_by_unit.keys():
            problem = f"needs the bytes of {EMBEDDING}, {HEAD} and each kind of layer"
            yield Fault(path="saved_by_unit", problem=problem)
        elif self.bytes.saved != (total := sum(self.saved_by_unit.values())):
            yield Fault(path="bytes.saved", problem=f"{self.bytes.saved} is not the sum of saved_by_unit, {total}")

    def reduced_run(self, run: TrainingRun) -> TrainingRun:
        """The run that was counted, in terms of the run to be predicted, whose plan may be another."""
        plan = Plan(tp=self.plan.tp, sp=self.plan.sp)
        return in_plain_torch(only_whole_layers(reduced_to(run, plan, self.batch, self.share)))

    def require_same_model(self, run: TrainingRun, source: str) -> None:
        """SamplesError, naming the `source` of the benchmark, unless the model's reduced form has as many weights."""
        expected = module_parameters(self.reduced_run(run))
        if self.parameters != expected:
            problem = f"{self.parameters}, but the reduced model of this run has {expected}"
            raise refusal([Fault(path="memory.parameters", problem=problem)], source, WRITE_ANEW)


def expert_share(experts: Experts | None) -> ExpertShare:
    return ExpertShare(experts=experts.count, topk=experts.topk) if experts else ExpertShare(experts=0, topk=0)


def load_memory_benchmark(path: Path) -> MemoryBenchmark:
    """Read the memory part of a benchmark's file. ConfigError for a file without one, SamplesError for one that is damaged."""
    content, faults = read_json(path)
    if content is not None and not isinstance(content.get("memory"), dict):
        fix = "write it with `predict memory CONFIG --save-benchmark FILE`"
        found = f"{shown(content['memory'])} is not a mapping" if "memory" in content else "missing"
        faults = [*faults, Fault(path="memory", problem=f"{found}; {fix}")]
    if content is None or faults:
        raise config_error(faults, {"": str(path)}, error=ConfigError)
    made, faults = build(MemoryBenchmark, content["memory"], section="memory")
    if made is None:
        raise refusal(faults, str(path), WRITE_ANEW)
    return made


def reduced_to(run: TrainingRun, plan: Plan, batch: Batch, share: ExpertShare) -> TrainingRun:
    experts = run.model.experts and replace(run.model.experts, count=share.experts, topk=share.topk)
    return replace(run, plan=plan, batch=batch, model=replace(run.model, experts=experts))


def refusal(faults: list[Fault], source: str, fix: str) -> SamplesError:
    refusal = config_error(faults, {"": source}, error=SamplesError, fix=fix)
    assert isinstance(refusal, SamplesError)
    return refusal
