"""The cheapest changes that make a run fit, each with its predicted step time: single ones, or pairs where none is enough.

Each kind of change is tried in growing steps up to the first that fits; what the rules of a config refuse is skipped.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from typing import Any, NamedTuple

from predict.config.rules import broken_rules
from predict.config.rules.rule import values_of_run
from predict.memory.estimate import MemoryEstimate, Verdict, memory_of
from predict.memory.state import takes_gradients_as_they_are
from predict.rank.share import is_primary_fp8
from predict.run.execution import EXPANDABLE, PRIMARY, REMAINDER
from predict.run.frameworks import memory_profile_of, recompute_refusal, selective_is_of_operators
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun, one_replica
from predict.schedules import registry
from sampling.errors import InfeasibleError, UserError
from sampling.files.faults import as_written, config_error

# A loaded run with other values of its plan, batch or cluster, held to the same rules as a config.

Settings = Mapping[str, Any]
"""Values by config key, for example `plan.tp`."""
SECTIONS = ("plan", "batch", "cluster", "execution", "adapters")


def changed(run: TrainingRun, settings: Settings) -> TrainingRun:
    """The run with other values of `plan`, `batch`, `cluster`, `execution` and `adapters`. ConfigError where they break a rule of the
    config."""
    sections = {
        section: replace(
            getattr(run, section),
            **{key.partition(".")[2]: value for key, value in settings.items() if key.startswith(f"{section}.")},
        )
        for section in SECTIONS
    }
    made = replace(run, **sections)
    faults = list(broken_rules(values_of_run(made)))
    if faults:
        raise config_error(faults, {"": run.name})
    return made


FACTORS = (2, 4, 8, 16)
SCHEDULE = "schedule"
MOST_PAIRS = 6
"""Pairs of kinds of change that are timed, of those that fit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """One change, and the memory and step time of the changed run."""

    kind: str
    settings: tuple[str, ...]
    """Arguments of --set."""
    verdict: str
    fits_probability: float
    point_bytes: float
    point_bytes_before: float
    step_us: float
    step_us_before: float

    @property
    def cost(self) -> float:
        """Relative change of the step time: 0.1 where the step is 10 % longer, negative where it is shorter."""
        return self.step_us / self.step_us_before - 1


StepTime = Callable[[TrainingRun], float]
"""The predicted step time of a run, in µs."""


def advise(memory: MemoryEstimate, step_us: StepTime, *, step_us_before: float) -> tuple[Advice, ...]:
    """The changes that make a predicted run fit, cheapest first; empty if it fits already or if no pair of changes is enough.

    `step_us_before` is the step time of the run itself; `step_us` is called for changed runs only.
    For a run that is not expected to fit, changes that only make it more likely to fit than not are given if none reaches FITS.
    """
    if memory.verdict == "FITS":
        return ()
    run = memory.run
    kinds = _kinds(run)
    candidates = [list(_candidates(run, kind, changes, memory.safety_margin)) for kind, changes in kinds.items()]
    degrees = ("FITS",) if memory.feasible else ("FITS", "AT RISK")
    for least in degrees:
        found = []
        for of_kind in candidates:
            fitting = (each for each in of_kind if each.memory.verdict == least and each.memory.feasible)
            timed = (_timed(each, step_us, step_us_before, memory.point_bytes) for each in fitting)
            found += _best_of(advice for advice in timed if advice)
        if found:
            return tuple(sorted(found, key=lambda advice: advice.step_us))
    pairs = islice(_fitting_pairs(run, kinds, memory.safety_margin), MOST_PAIRS)
    timed = (_timed(each, step_us, step_us_before, memory.point_bytes) for each in pairs)
    return tuple(sorted(filter(None, timed), key=lambda advice: advice.step_us))


def _fitting_pairs(run: TrainingRun, kinds: Mapping[str, list[Settings]], safety_margin: float) -> Iterator[_Candidate]:
    """The first changes of two kinds together that fit, of each pair of kinds; a schedule is not combined."""
    steps = {kind: changes for kind, changes in kinds.items() if kind != SCHEDULE and changes}
    for first, second in combinations(steps, 2):
        together = [both for pair in product(steps[first], steps[second]) if (both := _both(run.plan.dp, *pair))]
        candidates = _candidates(run, f"{first} and {second}", together, safety_margin)
        fitting = (each for each in candidates if each.memory.verdict == "FITS" and each.memory.feasible)
        if (found := next(fitting, None)) is not None:
            yield found


def _both(dp: int, first: Settings, second: Settings) -> Settings:
    """Two changes in one, each of which may take replicas; nothing where there are not enough of them, or both set a key."""
    shared = set(first) & set(second) - {"plan.dp"}
    left, rest = divmod(first.get("plan.dp", dp) * second.get("plan.dp", dp), dp)
    if shared or rest or not left:
        return {}
    return {**first, **second, "plan.dp": left}


def _best_of(advice: Iterator[Advice]) -> list[Advice]:
    """The first, which is the smallest change; the fastest of several schedules, which have no order."""
    first = next(advice, None)
    if first is None:
        return []
    return [min([first, *advice], key=lambda each: each.step_us)] if first.kind == SCHEDULE else [first]


class _Candidate(NamedTuple):
    kind: str
    settings: Settings
    memory: MemoryEstimate


def _candidates(run: TrainingRun, kind: str, changes: list[Settings], safety_margin: float) -> Iterator[_Candidate]:
    """The changes that the rules allow, with the memory of the changed run."""
    for settings in changes:
        try:
            memory = memory_of(changed(run, settings), safety_margin=safety_margin)
        except UserError:
            continue
        yield _Candidate(kind=kind, settings=settings, memory=memory)


def _timed(candidate: _Candidate, step_us: StepTime, step_us_before: float, point_bytes_before: float) -> Advice | None:
    memory = candidate.memory
    try:
        after_us = step_us(memory.run)
    except InfeasibleError:
        return None
    return Advice(
        kind=candidate.kind,
        settings=tuple(f"{key}={as_written(value)}" for key, value in candidate.settings.items()),
        verdict=memory.verdict,
        fits_probability=memory.fits_probability,
        point_bytes=memory.point_bytes,
        point_bytes_before=point_bytes_before,
        step_us=after_us,
        step_us_before=step_us_before,
    )


def _kinds(run: TrainingRun) -> dict[str, list[Settings]]:
    """The steps of each kind of change, the smallest first."""
    return {
        **_leaner(run),
        "recompute": _recompute(run),
        "smaller microbatch": _microbatch(run.batch),
        "tensor parallelism": _tensor(run),
        "ZeRO": [{"plan.zero": stage} for stage in range(run.plan.zero + 1, 4)],
        "pipeline parallelism": _pipeline(run.plan),
        "context parallelism": _context(run.plan),
        SCHEDULE: _schedules(run),
    }


def _leaner(run: TrainingRun) -> dict[str, list[Settings]]:
    """Leaner ways to hold the same numbers, by what they are called, and a frozen base in four bits; those of Transformer Engine's
    optimizer and weights where the framework has them."""
    profile, kinds = memory_profile_of(run), dict[str, list[Settings]]()
    if run.precision == "fp8" and profile.transformer_engine and not is_primary_fp8(run):
        kinds["fp8 primary weights"] = [{"execution.fp8_weights": PRIMARY}]
    if run.precision == "bf16" and profile.transformer_engine and not takes_gradients_as_they_are(run, profile):
        kinds["16-bit remainders of the master weights"] = [{"execution.master_dtype": REMAINDER}]
    if run.cluster.gpu.kind != "cpu" and (run.execution.allocator or profile.allocator) != EXPANDABLE:
        kinds["expandable segments"] = [{"execution.allocator": EXPANDABLE}]
    if run.adapters.are_trained and not run.adapters.base:
        kinds["a base in four bits"] = [{"adapters.base": "nf4"}]
    return kinds


def _recompute(run: TrainingRun) -> list[Settings]:
    plan = run.plan
    some = "ops" if selective_is_of_operators(run.execution.framework) else "selective"
    ladder = {"none": (some, "full"), "selective": ("full",), "ops": ("full",)}.get(plan.recompute, ())
    steps: list[Settings] = [{"plan.recompute": mode} for mode in ladder]
    if plan.recompute == "full" and plan.recompute_method == "block":
        steps.append({"plan.recompute_method": "uniform"})
    return steps


def _microbatch(batch: Batch) -> list[Settings]:
    smaller = [size for size in range(batch.micro - 1, 0, -1) if batch.micro % size == 0]
    return [{"batch.micro": size} for size in smaller]


def _tensor(run: TrainingRun) -> list[Settings]:
    """More tensor parallelism in place of replicas, with sequence parallelism where the framework offers it."""
    plan = run.plan
    sequence = plan.sp or (plan.tp == 1 and memory_profile_of(run).sequence_parallelism)
    return [
        {"plan.tp": plan.tp * factor, "plan.sp": sequence, "plan.dp": plan.dp // factor}
        for factor in FACTORS
        if plan.dp % factor == 0 and plan.tp * factor <= run.cluster.gpus_per_node
    ]


def _pipeline(plan: Plan) -> list[Settings]:
    return [{"plan.pp": plan.pp * factor, "plan.dp": plan.dp // factor} for factor in FACTORS if plan.dp % factor == 0]


def _context(plan: Plan) -> list[Settings]:
    return [{"plan.cp": plan.cp * factor, "plan.dp": plan.dp // factor} for factor in FACTORS if plan.dp % factor == 0]


def _schedules(run: TrainingRun) -> list[Settings]:
    """Schedules whose order follows from the counts, with the run's chunks per rank, or else the one or two that they need."""
    plan = run.plan
    if plan.pp == 1:
        return []
    steps: list[Settings] = []
    for name in registry.names():
        wanted = registry.get(name)
        if name == plan.schedule or wanted.solver is not None:
            continue
        if plan.recompute != "none" and recompute_refusal(run.execution.framework, wanted):
            continue
        chunks = [vpp for vpp in dict.fromkeys((plan.vpp, 1, 2)) if not wanted.refusal(plan.pp, vpp, run.microbatches)]
        if chunks and chunks[0] == plan.vpp:
            steps.append({"plan.schedule": name})
        elif chunks:
            steps.append({"plan.schedule": name, "plan.vpp": chunks[0]})
    return steps


# The smallest cluster on which a plan fits: as few replicas as the device's memory allows.
#
# More replicas hold less each: ZeRO shards the state over more ranks, and their share of the global batch is smaller.


@dataclass(frozen=True, kw_only=True, slots=True)
class SmallestCluster:
    """The fewest GPUs, of the run's own nodes, on which the expected peak of its plan fits."""

    gpus: int
    nodes: int
    dp: int
    """Data-parallel ranks there, which share the run's global batch."""
    verdict: Verdict
    """FITS, or AT RISK where the upper bound does not fit."""


def smallest_cluster(memory: MemoryEstimate) -> SmallestCluster | None:
    """The smallest cluster for the plan of an estimate; None where no number of replicas makes it fit.

    The estimate itself answers for its own number of replicas. Others take the order of actions that memory_of gives them.
    """
    run = memory.run
    runs = list(_on_fewer_and_more_nodes(run))
    if not runs:
        return _cluster(memory) if memory.feasible else None
    estimates: dict[int, MemoryEstimate] = {run.plan.dp: memory}

    def estimate(other: TrainingRun) -> MemoryEstimate:
        if other.plan.dp not in estimates:
            estimates[other.plan.dp] = memory_of(other, safety_margin=memory.safety_margin)
        return estimates[other.plan.dp]

    def fits(other: TrainingRun) -> bool:
        return estimate(other).feasible

    if fits(runs[0]):
        return _cluster(estimate(runs[0]))
    if not fits(runs[-1]):
        return _cluster(memory) if memory.feasible else None
    return _cluster(estimate(runs[bisect_left(runs, True, key=fits)]))


def _on_fewer_and_more_nodes(run: TrainingRun) -> Iterator[TrainingRun]:
    """The run with each number of replicas that the rules of a config allow, the fewest first."""
    plan, replica = run.plan, one_replica(run)
    sequences = run.batch.global_ // run.batch.micro
    for dp in _divisors(sequences):
        gpus = plan.tp * plan.pp * plan.cp * dp
        nodes = math.ceil(gpus / run.cluster.gpus_per_node)
        if dp % replica.dp or gpus % nodes:
            continue
        # a single rank has nobody to shard its state with, but for a host that takes it
        zero = plan.zero if dp * plan.cp > 1 or run.offload.takes_shards else 0
        settings = {"plan.dp": dp, "plan.zero": zero, "cluster.nodes": nodes, "cluster.gpus_per_node": gpus // nodes}
        try:
            yield changed(run, settings)
        except UserError:
            continue


def _divisors(number: int) -> list[int]:
    """The divisors of a number, in ascending order."""
    low = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return sorted({*low, *(number // divisor for divisor in low)})


def _cluster(memory: MemoryEstimate) -> SmallestCluster:
    cluster = memory.run.cluster
    return SmallestCluster(gpus=cluster.world_size, nodes=cluster.nodes, dp=memory.run.plan.dp, verdict=memory.verdict)
