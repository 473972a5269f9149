"""The cheapest single change that makes a run fit, by its own step time: computed, not a rule of thumb.

Each kind of change is tried in growing steps up to the first that fits; changes that the rules of a config refuse are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from predict.config import rules_parallel as config_rules_parallel  # noqa: F401
from predict.config.rules import broken_rules
from predict.memory.estimate import MemoryEstimate, memory_of
from predict.memory.profiles import memory_profile_of
from predict.memory.unit_activations import Source
from predict.prices.price_list import PriceList
from predict.run.plan import Batch, Plan
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from predict.step.estimate import median_step_us
from sampling.errors import InfeasibleError, UserError
from sampling.files.faults import config_error

DOUBLINGS = (2, 4, 8, 16)
SCHEDULE = "schedule"


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """One change, the memory that the run then takes, and its step beside that of the run as it is (as a share, 0.1 for a
    tenth longer; below 0 where the change makes it shorter)."""

    kind: str
    settings: tuple[str, ...]
    """As --set takes them."""
    verdict: str
    point_bytes: float
    step_us: float
    step_us_before: float

    @property
    def cost(self) -> float:
        return self.step_us / self.step_us_before - 1


Settings = Mapping[str, Any]
"""`plan.tp` → value."""


def advise(
    run: TrainingRun,
    memory: MemoryEstimate,
    prices: PriceList,
    *,
    activations: Source | None = None,
) -> tuple[Advice, ...]:
    """What makes an estimate's run fit, the cheapest first; nothing where it fits already, or where no one change will do.

    Where none fits for certain, those that fit by their point are told of a run that does not even do that.
    """
    if memory.verdict == "FITS":
        return ()
    enough = ["FITS", "AT RISK"] if memory.verdict == "OOM" else ["FITS"]
    tried = [list(_tries(run, steps, memory.safety_margin, activations)) for steps in _kinds(run).items()]
    before = median_step_us(run, prices)
    for verdict in enough:
        found = []
        for of_kind in tried:
            fitting = (each for each in of_kind if each.memory.verdict == verdict)
            priced = (told for each in fitting if (told := _priced(each, prices, before)))
            found += _best_of(priced)
        if found:
            return tuple(sorted(found, key=lambda advice: advice.step_us))
    return ()


def _best_of(advice: Iterator[Advice]) -> list[Advice]:
    """The first step that will do; of schedules, which are no steps, the fastest."""
    first = next(advice, None)
    if first is None:
        return []
    return [min([first, *advice], key=lambda each: each.step_us)] if first.kind == SCHEDULE else [first]


@dataclass(frozen=True, kw_only=True)
class _Try:
    kind: str
    settings: Settings
    run: TrainingRun
    memory: MemoryEstimate


def _tries(
    run: TrainingRun,
    steps: tuple[str, list[Settings]],
    safety_margin: float,
    activations: Source | None,
) -> Iterator[_Try]:
    """The legal ones of a kind with the memory they take."""
    kind, changes = steps
    for settings in changes:
        try:
            made = changed(run, settings)
            memory = memory_of(made, safety_margin=safety_margin, activations=activations)
        except UserError:
            continue
        yield _Try(kind=kind, settings=settings, run=made, memory=memory)


def _priced(found: _Try, prices: PriceList, before: float) -> Advice | None:
    try:
        step_us = median_step_us(found.run, prices)
    except InfeasibleError:
        return None
    return Advice(
        kind=found.kind,
        settings=tuple(f"{key}={_written(value)}" for key, value in found.settings.items()),
        verdict=found.memory.verdict,
        point_bytes=found.memory.point_bytes,
        step_us=step_us,
        step_us_before=before,
    )


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def changed(run: TrainingRun, settings: Settings) -> TrainingRun:
    """The run with other values of `plan` and `batch`. ConfigError, by the rules of a config, where they do not fit."""
    plan = {key.removeprefix("plan."): value for key, value in settings.items() if key.startswith("plan.")}
    batch = {key.removeprefix("batch."): value for key, value in settings.items() if key.startswith("batch.")}
    made = replace(run, plan=replace(run.plan, **plan), batch=replace(run.batch, **batch))
    faults = list(broken_rules(_values(made)))
    if faults:
        raise config_error(faults, {"": run.name})
    return made


def _values(run: TrainingRun) -> dict[str, Any]:
    """As the rules of a config name them."""
    found: dict[str, Any] = {"spec": run.model, "precision": run.precision}
    for part in (run.model, run.plan, run.execution):
        found |= {field.name: getattr(part, field.name) for field in fields(part)}
    batch, cluster = run.batch, run.cluster
    found |= {"global": batch.global_, "micro": batch.micro, "seq_len": batch.seq_len}
    return found | {"nodes": cluster.nodes, "gpus_per_node": cluster.gpus_per_node, "profile": cluster.profile}


def _kinds(run: TrainingRun) -> dict[str, list[Settings]]:
    """By kind of change, its steps, the smallest first."""
    return {
        "recompute": _recompute(run.plan),
        "smaller microbatch": _microbatch(run.batch),
        "tensor parallelism": _tensor(run),
        "ZeRO": [{"plan.zero": stage} for stage in range(run.plan.zero + 1, 4)],
        "pipeline parallelism": _pipeline(run.plan),
        SCHEDULE: _schedules(run),
    }


def _recompute(plan: Plan) -> list[Settings]:
    ladder = {"none": ("selective", "full"), "selective": ("full",)}.get(plan.recompute, ())
    steps: list[Settings] = [{"plan.recompute": mode} for mode in ladder]
    if plan.recompute == "full" and plan.recompute_method == "block":
        steps.append({"plan.recompute_method": "uniform"})
    return steps


def _microbatch(batch: Batch) -> list[Settings]:
    smaller = [size for size in range(batch.micro - 1, 0, -1) if batch.micro % size == 0]
    return [{"batch.micro": size} for size in smaller]


def _tensor(run: TrainingRun) -> list[Settings]:
    """More ranks of tp in place of replicas; sequence parallelism goes with it but in frameworks from before it."""
    plan, steps = run.plan, []
    sequence = plan.sp or (plan.tp == 1 and memory_profile_of(run).sequence_parallelism)
    for factor in DOUBLINGS:
        tp = plan.tp * factor
        if plan.dp % factor == 0 and tp <= run.cluster.gpus_per_node:
            steps.append({"plan.tp": tp, "plan.sp": sequence, "plan.dp": plan.dp // factor})
    return list(steps)


def _pipeline(plan: Plan) -> list[Settings]:
    return [
        {"plan.pp": plan.pp * factor, "plan.dp": plan.dp // factor} for factor in DOUBLINGS if plan.dp % factor == 0
    ]


def _schedules(run: TrainingRun) -> list[Settings]:
    """Orders that follow from the counts, as many chunks a rank as now or the two that they need."""
    plan = run.plan
    if plan.pp == 1:
        return []
    steps: list[Settings] = []
    for name in registry.names():
        wanted = registry.get(name)
        if name == plan.schedule or wanted.solver is not None:
            continue
        if plan.recompute != "none" and wanted.recompute_refusal:
            continue
        chunks = [vpp for vpp in dict.fromkeys((plan.vpp, 1, 2)) if not wanted.refusal(plan.pp, vpp, run.microbatches)]
        if chunks and chunks[0] == plan.vpp:
            steps.append({"plan.schedule": name})
        elif chunks:
            steps.append({"plan.schedule": name, "plan.vpp": chunks[0]})
    return steps
