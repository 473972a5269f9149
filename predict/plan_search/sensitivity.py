"""Sensitivity: what 10 % more of each figure of the hardware, its links and the framework would bring, and each other setting.

Each change is predicted by itself. Samples are of the device as it is: for one with other figures, what was sampled is carried
over by the peaks of the two. So a figure is judged beside the same device taken for another one, not beside the samples.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from predict import estimate, load
from predict.config.document import Config
from predict.config.draft import SECTIONS
from predict.plan_search.compare import setting_text
from predict.plan_search.sweep import SweptRow, SweptRun, swept_space
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.errors import ConfigError
from sampling.hardware.cluster import Cluster

MORE = 0.1
NUDGE = 1e-9
"""Share by which a figure is changed so that a device counts as another and is the same all the same."""
NOT_SWITCHED = ("framework", "clocks", "product_time", "memory_time", "gemm_efficiency", "expert_load", "stragglers")
"""Keys of `execution` that describe the machine, its calibration or the data rather than a choice, or name all others at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """One change and its effect. A gain is the share of the step that it saves; below 0 it costs."""

    name: str
    change: str
    step_us: float
    gain: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivities:
    """The changes of one run, the most worthwhile first."""

    prediction: Prediction
    figures: tuple[Sensitivity, ...]
    """10 % better figures: more of a rate, less of a latency or an overhead."""
    settings: tuple[Sensitivity, ...]
    """Other values of the framework's settings, one at a time."""
    carried_over_us: float
    """The step where what was sampled is carried over to a device of the same figures; the step itself where all is analytic."""


Change = tuple[str, str, TrainingRun]
"""The key or figure, what is changed of it, and the run with that change."""


def sensitivity(config: Config, overrides: Sequence[str] = ()) -> Sensitivities:
    """The effect on the step of 10 % more of each figure of the hardware, its links and the framework, and of each other value of a
    setting of `execution`, ranked; each is predicted by itself."""
    return sensitivity_of_run(load(config, overrides), estimate, lambda setting: load(config, [*overrides, setting]))


def sensitivity_of_run(
    run: TrainingRun, predict: Callable[[TrainingRun], Prediction], with_setting: Callable[[str], TrainingRun] | None
) -> Sensitivities:
    """The effect of each single change on a run. `with_setting` loads the same run with a setting such as
    `execution.overlap_tp="none"` over it; without it, the figures alone are judged."""
    base = predict(run)
    run = base.run  # the schedule `best` is now a named one
    effects = partial(_effects, predict=predict, base_us=base.median_us)
    carried_over_us = predict(_as_another_device(run)).median_us
    elsewhere = ((name, change, _as_another_device(changed)) for name, change, changed in _of_hardware(run))
    of_hardware = effects(elsewhere, beside_us=carried_over_us)
    return Sensitivities(
        prediction=base,
        figures=_ranked([*of_hardware, *effects(_of_execution(run), beside_us=base.median_us)]),
        settings=_ranked(effects(_switched(run, with_setting), beside_us=base.median_us)) if with_setting else (),
        carried_over_us=carried_over_us,
    )


def _effects(
    changes: Iterable[Change], *, predict: Callable[[TrainingRun], Prediction], base_us: float, beside_us: float
) -> Iterator[Sensitivity]:
    """Each change with the share that it saves of `beside_us`, which is put on the step itself."""
    for name, change, run in changes:
        gain = 1 - predict(run).median_us / beside_us
        yield Sensitivity(name=name, change=change, step_us=base_us * (1 - gain), gain=gain)


def _ranked(found: Iterable[Sensitivity]) -> tuple[Sensitivity, ...]:
    return tuple(sorted(found, key=lambda each: -each.gain))


def _as_another_device(run: TrainingRun) -> TrainingRun:
    link = run.cluster.inter_node
    nudged = replace(link, latency_us=link.latency_us * (1 + NUDGE))
    return replace(run, cluster=replace(run.cluster, inter_node=nudged))


def _of_hardware(run: TrainingRun) -> Iterator[Change]:
    cluster = run.cluster
    gpu = cluster.gpu

    def with_gpu(**figures: Any) -> TrainingRun:
        return replace(run, cluster=replace(cluster, gpu=replace(gpu, **figures)))

    more = f"+{MORE:.0%}"
    for dtype, tflops in gpu.peak_tflops.items():
        yield f"peak_tflops.{dtype}", more, with_gpu(peak_tflops=_scaled(gpu.peak_tflops, dtype, tflops * (1 + MORE)))
    for name in ("memory_gb_per_s", "cache_mib"):
        yield name, more, with_gpu(**{name: getattr(gpu, name) * (1 + MORE)})
    for work, share in gpu.efficiency.items():
        raised = min(1.0, share * (1 + MORE))
        told = more if raised < 1 else f"to 1, the most ({share:g} now)"
        yield f"efficiency.{work}", told, with_gpu(efficiency=_scaled(gpu.efficiency, work, raised))
    yield from _of_links(run, cluster)


def _of_links(run: TrainingRun, cluster: Cluster) -> Iterator[Change]:
    for tier in ("intra_node", "inter_node"):
        link = getattr(cluster, tier)
        faster = replace(link, gb_per_s=link.gb_per_s * (1 + MORE))
        sooner = replace(link, latency_us=link.latency_us * (1 - MORE))
        yield f"{tier}.gb_per_s", f"+{MORE:.0%}", replace(run, cluster=replace(cluster, **{tier: faster}))
        yield f"{tier}.latency_us", f"−{MORE:.0%}", replace(run, cluster=replace(cluster, **{tier: sooner}))


def _of_execution(run: TrainingRun) -> Iterator[Change]:
    execution = run.execution
    for name in ("launch_floor_us", "step_overhead_us"):
        value = getattr(execution, name)
        if value:
            yield f"execution.{name}", f"−{MORE:.0%}", _with(run, **{name: type(value)(value * (1 - MORE))})
    if execution.gemm_efficiency:
        raised = min(1.0, execution.gemm_efficiency * (1 + MORE))
        yield "execution.gemm_efficiency", f"+{MORE:.0%}", _with(run, gemm_efficiency=raised)


def _switched(run: TrainingRun, with_setting: Callable[[str], TrainingRun]) -> Iterator[Change]:
    """Each other value of a setting of `execution` that has a few, where the rules of a config allow it."""
    for key in SECTIONS["execution"]:
        if key.name in NOT_SWITCHED:
            continue
        now = getattr(run.execution, key.name)
        others = [not now] if isinstance(now, bool) else [each for each in (key.choices or list)() if each != now]
        for value in others:
            try:
                changed = with_setting(f"execution.{key.name}={json.dumps(value)}")
            except ConfigError:
                continue
            plan = replace(changed.plan, schedule=run.plan.schedule)
            yield f"execution.{key.name}", f"{setting_text(now)} → {setting_text(value)}", replace(changed, plan=plan)


def _with(run: TrainingRun, **settings: Any) -> TrainingRun:
    return replace(run, execution=replace(run.execution, **settings))


def _scaled(figures: Mapping[str, float], name: str, value: float) -> dict[str, float]:
    return {**figures, name: value}


# Neighbours of a plan: the same run with one setting of the plan or the batch a step further, either way.

DOUBLED = ("plan.tp", "plan.pp", "plan.cp", "plan.ep", "batch.micro")
RECOMPUTATION = ("none", "selective", "full")
STAGES_OF_ZERO = (0, 1, 2, 3)


def neighbours(
    config: Config,
    overrides: Sequence[str],
    run: TrainingRun,
    predict: Callable[[TrainingRun], Prediction],
) -> tuple[SweptRun, ...]:
    """Degrees and microbatch twice and half as large, other recomputation and ZeRO; dp takes the ranks that are left.

    A neighbour that cannot run keeps its reason. `run` is that of the config.
    """
    found: list[SweptRun] = []
    for path, values in _steps(run):
        for value in values:
            try:
                found += swept_space(config, [f"{path}={value}"], overrides, predict).rows().rows
            except ConfigError as error:
                found.append(SweptRow(settings={path: value}, prediction=None, reason=str(error)))
    return tuple(found)


def _steps(run: TrainingRun) -> Iterator[tuple[str, list[Any]]]:
    for path in DOUBLED:
        section, name = path.split(".")
        now = getattr(getattr(run, section), name)
        if path == "plan.ep" and not any(kind.sparse for kind in run.model.kinds()):
            continue
        yield path, [value for value in (now // 2, now * 2) if value]
    yield "plan.recompute", [value for value in RECOMPUTATION if value != run.plan.recompute]
    yield "plan.zero", [stage for stage in STAGES_OF_ZERO if stage != run.plan.zero and abs(stage - run.plan.zero) == 1]
