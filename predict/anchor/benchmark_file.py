"""A benchmark of a run's whole layers: what was timed, on what, under which reduced plan; and its file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from predict.anchor.memory_part import memory_faults
from predict.anchor.reduced_run import ranks_of, timeable
from predict.model.parts.mixture import Experts
from predict.model.spec import ModelSpec
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import whole_layer_calls
from sampling.call import Phase
from sampling.errors import SamplesError
from sampling.files.documents import read_json
from sampling.files.faults import shown
from sampling.hardware.cluster import Cluster

VERSION = 1
FORMAT = "layer-benchmark"
QUANTITIES = ("median", "low", "high")


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """µs of a phase of a whole layer (or end of the model), with the 10th and 90th percentile of its repeats."""

    median_us: float
    low_us: float
    high_us: float


TimedPhases = Mapping[Phase, Timed]


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What one rank of the reduced run holds: tokens of a sequence, and experts with their choices (0 without any)."""

    seq_len: int
    experts: int
    topk: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """`full` and `reduced` are plans, `share` what the latter leaves a rank; `times` by layer kind (or embedding, head)
    and phase. `world_size` ranks of `threads` CPU threads (0 on a GPU) were timed together."""

    run: str
    model: Mapping[str, Any]
    precision: str
    micro: int
    seq_len: int
    full: Plan
    reduced: Plan
    share: Share
    device: str
    threads: int
    world_size: int
    times: Mapping[str, TimedPhases]
    provenance: Mapping[str, Any]
    memory: Mapping[str, Any] | None = None
    """What `predict.measure.benchmark.memory_benchmark` counted, for `restore` there; None where it could not run."""

    def to_json(self) -> dict[str, Any]:
        """The stable shape of its file; times in µs."""
        return {
            "version": VERSION,
            "format": FORMAT,
            "run": self.run,
            "model": dict(self.model),
            "precision": self.precision,
            "batch": {"micro": self.micro, "seq_len": self.seq_len},
            "full_plan": asdict(self.full),
            "reduced_plan": asdict(self.reduced),
            "share": asdict(self.share),
            "device": {"name": self.device, "threads": self.threads},
            "world_size": self.world_size,
            "times_us": {
                unit: {phase: dict(zip(QUANTITIES, astuple_us(timed), strict=True)) for phase, timed in phases.items()}
                for unit, phases in self.times.items()
            },
            "provenance": dict(self.provenance),
            **({} if self.memory is None else {"memory": dict(self.memory)}),
        }

    def reduced_run(self, run: TrainingRun) -> TrainingRun:
        """The run that was timed, in terms of the run to be predicted (which may have another plan than `full`)."""
        plan, share = self.reduced, self.share
        experts = run.model.experts and replace(run.model.experts, count=share.experts, topk=share.topk)
        batch = Batch(
            global_=run.microbatches * run.batch.micro * plan.dp, micro=run.batch.micro, seq_len=share.seq_len
        )
        cut = replace(run, plan=plan, batch=batch, model=replace(run.model, experts=experts))
        return replace(timeable(cut), cluster=_one_node(run.cluster, ranks_of(plan)))


def astuple_us(timed: Timed) -> tuple[float, float, float]:
    return timed.median_us, timed.low_us, timed.high_us


def benchmark_of(
    full: TrainingRun,
    cut: TrainingRun,
    times: Mapping[str, TimedPhases],
    provenance: Mapping[str, Any],
    world_size: int,
) -> Benchmark:
    """The benchmark of a run that was timed as `cut`."""
    held = cut.model.experts or Experts(count=0, topk=0, ffn=0)
    return Benchmark(
        run=full.name,
        model=model_facts(full.model),
        precision=full.precision,
        micro=full.batch.micro,
        seq_len=full.batch.seq_len,
        full=full.plan,
        reduced=cut.plan,
        share=Share(seq_len=cut.batch.seq_len, experts=held.count, topk=held.topk),
        device=full.cluster.gpu.name,
        threads=full.cluster.threads,
        world_size=world_size,
        times=times,
        provenance=provenance,
    )


def model_facts(model: ModelSpec) -> dict[str, Any]:
    """All of a model but its name, as JSON holds it; `further` where it has any."""
    facts: dict[str, Any] = json.loads(json.dumps(asdict(model)))
    del facts["name"]
    if not facts["further"]:
        del facts["further"]
    return facts


def load_benchmark(path: Path) -> Benchmark:
    """Read a benchmark. SamplesError, one line a fault with its key, for a file that is none, is damaged or of another version."""
    content, unreadable = read_json(path)
    faults = [": ".join(filter(None, (fault.path, fault.problem))) for fault in unreadable]
    if content is not None and not faults:
        faults = list(_faults(content))
    if faults or content is None:
        raise _refusal(path, faults, "write it anew with `predict benchmark CONFIG --gpus N --output FILE`")
    return Benchmark(
        run=str(content["run"]),
        model=content["model"],
        precision=content["precision"],
        micro=content["batch"]["micro"],
        seq_len=content["batch"]["seq_len"],
        full=Plan(**content["full_plan"]),
        reduced=Plan(**content["reduced_plan"]),
        share=Share(**content["share"]),
        device=content["device"]["name"],
        threads=content["device"]["threads"],
        world_size=content["world_size"],
        times={
            unit: {
                phase: Timed(**{f"{name}_us": float(timed[name]) for name in QUANTITIES}) for phase, timed in of.items()
            }
            for unit, of in content["times_us"].items()
        },
        provenance=content["provenance"],
        memory=content.get("memory"),
    )


def require_same(benchmark: Benchmark, run: TrainingRun, path: Path) -> None:
    """SamplesError unless the benchmark is of the run's model, precision, microbatch and device."""
    own = model_facts(run.model)
    faults = [
        f"model.{key}: {shown(benchmark.model.get(key))}, but the run has {shown(own.get(key))}"
        for key in sorted({*own, *benchmark.model})
        if benchmark.model.get(key) != own.get(key)
    ]
    pairs = {
        "precision": (benchmark.precision, run.precision),
        "batch.micro": (benchmark.micro, run.batch.micro),
        "batch.seq_len": (benchmark.seq_len, run.batch.seq_len),
        "device.name": (benchmark.device, run.cluster.gpu.name),
        "device.threads": (benchmark.threads, run.cluster.threads),
    }
    faults += [
        f"{key}: {timed!r}, but the run has {wanted!r}" for key, (timed, wanted) in pairs.items() if timed != wanted
    ]
    faults += [f"times_us.{unit}: missing" for unit in whole_layer_calls(run) if unit not in benchmark.times]
    if faults:
        raise _refusal(path, faults, "benchmark this run with `predict benchmark`, or predict the one that was timed")


def _refusal(path: Path, faults: list[str], fix: str) -> SamplesError:
    return SamplesError("\n".join(f"{path}: {fault}" for fault in faults) + f"; {fix}")


DEGREES = ("tp", "pp", "vpp", "dp", "cp", "ep", "etp")
SHAPE: Mapping[str, type] = {
    "run": str,
    "model": dict,
    "precision": str,
    "batch": dict,
    "full_plan": dict,
    "reduced_plan": dict,
    "share": dict,
    "device": dict,
    "world_size": int,
    "times_us": dict,
    "provenance": dict,
}


def _faults(content: Mapping[str, Any]) -> Iterator[str]:
    if content.get("format") != FORMAT:
        yield f"format: {content.get('format')!r} is no {FORMAT!r}"
        return
    if content.get("version") != VERSION:
        yield f"version: {content.get('version')!r}, but this predict reads {VERSION}"
        return
    wrong = [key for key, kind in SHAPE.items() if type(content.get(key)) is not kind]
    yield from (f"{key}: {'missing' if key not in content else f'is no {SHAPE[key].__name__}'}" for key in wrong)
    if wrong:
        return
    for key in ("full_plan", "reduced_plan"):
        # what a plan has come to say since the file was written has its default
        known = {each.name: type(each.default) for each in fields(Plan)}
        yield from _typed(
            key, content[key], {name: of for name, of in known.items() if name in content[key] or name in DEGREES}
        )
        yield from (f"{key}.{name}: 0 is no degree" for name in DEGREES if content[key].get(name) == 0)
    yield from _typed("share", content["share"], {each.name: int for each in fields(Share)})
    yield from _typed("batch", content["batch"], {"micro": int, "seq_len": int})
    yield from _typed("device", content["device"], {"name": str, "threads": int})
    yield from _disproportions(content)
    if "memory" in content:
        yield from memory_faults(content["memory"])
    for unit, phases in content["times_us"].items():
        if not isinstance(phases, dict) or "forward" not in phases or "backward" not in phases:
            yield f"times_us.{unit}: has no forward and backward"
            continue
        yield from (fault for phase, timed in phases.items() for fault in _timed(f"times_us.{unit}.{phase}", timed))


def _disproportions(content: Mapping[str, Any]) -> Iterator[str]:
    """Of plans whose fields are ints: the reduced one divides the full one, and leaves every rank something to do."""
    for name in DEGREES:
        full, cut = (content[key].get(name) for key in ("full_plan", "reduced_plan"))
        if name not in ("vpp", "dp") and type(full) is type(cut) is int and cut > 0 and full % cut:
            yield f"reduced_plan.{name}: {cut} does not divide the {full} of full_plan"
    share = content["share"]
    wanted = ["seq_len", *(("experts", "topk") if content["model"].get("experts") else ())]
    yield from (f"share.{name}: 0 leaves a rank nothing" for name in wanted if share.get(name) == 0)


def _typed(place: str, given: Mapping[str, Any], wanted: Mapping[str, type]) -> Iterator[str]:
    for key in sorted({*given, *wanted}):
        if key not in wanted:
            yield f"{place}.{key}: unknown"
        elif type(given.get(key)) is not wanted[key]:
            yield (
                f"{place}.{key}: {given[key]!r} is no {wanted[key].__name__}"
                if key in given
                else f"{place}.{key}: missing"
            )
        elif wanted[key] is int and given[key] < 0:
            yield f"{place}.{key}: {given[key]} is negative"


def _timed(place: str, timed: Any) -> Iterator[str]:
    values = [timed.get(name) for name in QUANTITIES] if isinstance(timed, dict) else [None] * len(QUANTITIES)
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        yield f"{place}: needs the numbers {', '.join(QUANTITIES)}"
        return
    median, low, high = map(float, values)  # type: ignore[arg-type]
    if not 0 < low <= median <= high < float("inf"):
        yield f"{place}: low {low}, median {median}, high {high} are not positive and in order"


def _one_node(cluster: Cluster, ranks: int) -> Cluster:
    return replace(cluster, nodes=1, gpus_per_node=ranks)
