"""The file of a benchmark: whole layers timed and bytes counted under a plan reduced to fit a few GPUs.

`predict benchmark` writes a `Benchmark` with a `MemoryBenchmark` in it, `predict memory --save-benchmark` the latter alone.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from predict.layers.run_json import model_as_data
from predict.model.spec import Experts, ModelSpec
from predict.reduced_benchmark.reduced_run import in_plain_torch, on_one_node, only_whole_layers
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import EMBEDDING, HEAD, module_parameters, whole_layer_calls
from sampling.call import Phase
from sampling.errors import ConfigError, SamplesError
from sampling.files.disk import is_missing
from sampling.files.documents import read_json
from sampling.files.faults import Fault, config_error, shown
from sampling.files.schema import Count, Text, build, read

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
    """Bytes of the device in use outside the allocator's segments; null on a CPU."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTime:
    """Microseconds of one phase of a unit: the median, and the 10th and 90th percentile of its repeats."""

    median: float
    low: float
    high: float

    def contradictions(self) -> Iterator[Fault]:
        if not self.low <= self.median <= self.high:
            problem = (
                f"low {self.low}, median {self.median}, high {self.high} are not in order; give low ≤ median ≤ high"
            )
            yield Fault(path="", problem=problem)


@dataclass(frozen=True, kw_only=True, slots=True)
class Microbatch:
    """Sequences of one microbatch and tokens of each, before the plan was reduced."""

    micro: int
    seq_len: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """The GPU or CPU that ran one rank; `threads` is 0 on a GPU."""

    name: Text
    threads: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class ReducedRank(ExpertShare):
    """Tokens of a sequence, outside the experts, on one rank of the reduced run."""

    seq_len: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """Times of the whole layers, embedding and head of a run. `world_size` ranks were timed together."""

    HEADER: ClassVar[Mapping[str, Any]] = {"format": "layer-benchmark", "version": 1}

    run: Text
    model: Mapping[str, Any]
    """All fields of the model but its name."""
    precision: Text
    batch: Microbatch
    full_plan: Plan
    reduced_plan: Plan
    share: ReducedRank
    device: Device
    world_size: int
    times_us: Mapping[str, Mapping[Phase, PhaseTime]]
    """Measured times by kind of layer (or embedding, head) and phase."""
    provenance: Mapping[str, Any]
    memory: MemoryBenchmark | None = None
    """Null where it could not run."""

    def contradictions(self) -> Iterator[Fault]:
        for degree in ("tp", "pp", "cp", "ep", "etp"):
            full, fewer = getattr(self.full_plan, degree), getattr(self.reduced_plan, degree)
            if full % fewer:
                problem = f"{fewer} does not divide the {full} of full_plan"
                yield Fault(path=f"reduced_plan.{degree}", problem=problem)
        for name in ("experts", "topk") if self.model.get("experts") else ():
            if getattr(self.share, name) == 0:
                yield Fault(path=f"share.{name}", problem="0 leaves a rank nothing")
        for unit, phases in self.times_us.items():
            if not {"forward", "backward"} <= phases.keys():
                yield Fault(path=f"times_us.{unit}", problem="has no forward and backward")

    @property
    def timed_on(self) -> str:
        """The name of the machine's device, which for a CPU `device` does not distinguish from others."""
        identity = self.provenance.get("identity")
        name = identity.get("name") if isinstance(identity, Mapping) else None
        return str(name or "an unnamed device")

    def reduced_run(self, run: TrainingRun) -> TrainingRun:
        """The run that was timed, in terms of the run to be predicted, whose plan and microbatch may be others."""
        plan = self.reduced_plan
        sequences = run.microbatches * self.batch.micro * plan.dp
        batch = Batch(global_=sequences, micro=self.batch.micro, seq_len=self.share.seq_len)
        return on_one_node(only_whole_layers(reduced_to(run, plan, batch, self.share)))

    def require_same_run(self, run: TrainingRun, source: Path) -> None:
        """SamplesError unless the benchmark has the run's model, precision, microbatch and device."""
        own = model_facts(run.model)
        pairs: dict[str, tuple[Any, Any]] = {
            f"model.{key}": (self.model.get(key), own.get(key)) for key in sorted({*own, *self.model})
        }
        pairs |= {
            "precision": (self.precision, run.precision),
            "batch.micro": (self.batch.micro, run.batch.micro),
            "batch.seq_len": (self.batch.seq_len, run.batch.seq_len),
            "batch.lengths": ("", run.batch.lengths),
            "device.name": (self.device.name, run.cluster.gpu.name),
            "device.threads": (self.device.threads, run.cluster.threads),
        }
        faults = [
            Fault(path=key, problem=f"{shown(timed)}, but the run has {shown(wanted)}")
            for key, (timed, wanted) in pairs.items()
            if timed != wanted
        ]
        missing = [unit for unit in whole_layer_calls(run) if unit not in self.times_us]
        faults += [Fault(path=f"times_us.{unit}", problem="missing") for unit in missing]
        if faults:
            fix = "benchmark this run with `predict benchmark`, or predict the one that was timed"
            raise refusal(faults, str(source), fix)


def benchmark_of(
    full: TrainingRun,
    reduced: TrainingRun,
    times_us: Mapping[str, Mapping[Phase, PhaseTime]],
    provenance: Mapping[str, Any],
    *,
    world_size: int,
    memory: MemoryBenchmark | None = None,
) -> Benchmark:
    """The benchmark of the run `full`, timed as `reduced`."""
    experts = reduced.model.experts
    return Benchmark(
        run=full.name,
        model=model_facts(full.model),
        precision=full.precision,
        batch=Microbatch(micro=full.batch.micro, seq_len=full.batch.seq_len),
        full_plan=full.plan,
        reduced_plan=reduced.plan,
        share=ReducedRank(seq_len=reduced.batch.seq_len, **asdict(expert_share(experts))),
        device=Device(name=full.cluster.gpu.name, threads=full.cluster.threads),
        world_size=world_size,
        times_us=times_us,
        provenance=provenance,
        memory=memory,
    )


def model_facts(model: ModelSpec) -> dict[str, Any]:
    """All fields of a model but its name, as JSON holds them, with the sizes of its parts by the parts' names."""
    facts: dict[str, Any] = json.loads(json.dumps(model_as_data(model)))
    del facts["name"]
    return facts


def load_benchmark(path: Path) -> Benchmark:
    """Read a benchmark. ConfigError where there is no such file; SamplesError, with a line for each fault, for one that is damaged or of
    another kind or version."""
    return read(Benchmark, path, error=ConfigError if is_missing(path) else SamplesError, fix=WRITE_ANEW)


def as_json(value: Any) -> Any:
    """The content of a benchmark's file, or of a part of it; `load_benchmark` reads it again."""
    if is_dataclass(value):
        values = {field.name.rstrip("_"): getattr(value, field.name) for field in fields(value)}
        known = {name: as_json(value) for name, value in values.items() if value is not None}
        return {**getattr(value, "HEADER", {}), **known}
    if isinstance(value, Mapping):
        return {key: as_json(each) for key, each in value.items()}
    return value
