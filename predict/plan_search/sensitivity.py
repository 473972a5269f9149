"""Sensitivity: what 10 % more of each figure of the hardware, its links and the framework would bring, and each other setting.

Each change is predicted by itself. Samples are of the device as it is: for one with other figures, what was sampled is carried
over by the peaks of the two. So a figure is judged beside the same device taken for another one, not beside the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from predict import estimate
from predict.config.document import Config
from predict.config.overrides import as_settings
from predict.kinds import TRAINING, Kind, LoadedRun, ServerOptions, Values, kind, kind_of
from predict.plan_search.compare import setting_text
from predict.plan_search.sweep import SweptRun, swept_row
from predict.plan_search.training import stepped
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.errors import ConfigError, InfeasibleError
from sampling.hardware.cluster import Cluster
from sampling.number_text import plain, whole_percent

MORE = 0.1
NUDGE = 1e-9
"""Share by which a figure is changed so that a device counts as another and is the same all the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """One change and its effect."""

    name: str
    change: str
    values: Mapping[str, float]
    """The kind's measures under the change, by their keys."""
    gain: float
    """That of the first measure: the share of a time that is saved, or that is added to a rate; below 0 it costs."""

    fits_probability: float | None = None
    """The probability that the changed run fits in memory; None for a kind of config that knows none."""

    @property
    def may_fit(self) -> bool:
        """Whether the changed run is more likely to fit than not, as far as that is known."""
        return self.fits_probability is None or self.fits_probability >= 0.5

    @property
    def step_us(self) -> float:
        """The time of the step, for a kind of config that has one."""
        return self.values["step_us"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivities:
    """The changes of one run, the most worthwhile first; last those that do not fit in memory."""

    kind: Kind[Any, Any]
    name: str
    prediction: Any
    figures: tuple[Sensitivity, ...]
    """10 % better figures: more of a rate, less of a latency or an overhead."""
    settings: tuple[Sensitivity, ...]
    """Other values of settings, one at a time."""
    carried_over: Mapping[str, float]
    """The measures where what was sampled is carried over to a device of the same figures; the prediction's where all is analytic."""


Change = tuple[str, str, Any]
"""The key or figure, what is changed of it, and the run with that change."""
Predict = Callable[[Any], Any]
"""From a run to its prediction."""


def sensitivity(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    slo: Sequence[str] = (),
    model: str = "",
    coefficients: Path | str | None = None,
) -> Sensitivities:
    """The effect on the step, or on the rate that a server carries, of 10 % more of each figure of the hardware, its links and the
    framework, and of each other value of a setting, ranked; each is predicted by itself. `slo`, `model` and `coefficients` are of servers,
    as in `serving_answer`. Of a run that is loaded, the figures alone are judged."""
    of = kind(kind_of(config))
    predict = of.predictor(estimate, ServerOptions(slo=slo, model=model, coefficients=coefficients))
    run = of.load(config, overrides)
    if isinstance(config, LoadedRun):
        return sensitivity_of_run(of, run, predict, None)
    return sensitivity_of_run(of, run, predict, lambda values: of.load(config, [*overrides, *as_settings(values)]))


def sensitivity_of_run(
    of: Kind[Any, Any], run: Any, predict: Predict, with_settings: Callable[[Values], Any] | None
) -> Sensitivities:
    """The effect of each single change on a run. `with_settings` loads the same run with values by key path, such as
    `{"execution.overlap_tp": "none"}`, over it; without it, the figures alone are judged."""
    base = predict(run)
    run = of.run_of(base)  # the schedule `best` is now a named one
    now, carried_over = _measured(of, base), _measured(of, predict(_as_another_device(of, run)))
    elsewhere = ((name, change, _as_another_device(of, changed)) for name, change, changed in _of_hardware(of, run))
    effects = partial(_effects, of=of, predict=predict, now=now)
    return Sensitivities(
        kind=of,
        name=run.name,
        prediction=base,
        figures=_ranked([*effects(elsewhere, before=carried_over), *effects(_of_execution(of, run), before=now)]),
        settings=_ranked(effects(switched(of, run, with_settings), before=now)) if with_settings else (),
        carried_over=carried_over,
    )


def _measured(of: Kind[Any, Any], predicted: Any) -> dict[str, float]:
    return {key: measure.value(predicted) for key, measure in of.measures.items()}


def _effects(
    changes: Iterable[Change],
    *,
    of: Kind[Any, Any],
    predict: Predict,
    now: Mapping[str, float],
    before: Mapping[str, float],
) -> Iterator[Sensitivity]:
    """Each change with what it makes of the measures `before`, which is put on those of `now`; without those that cannot run."""
    first, measure = next(iter(of.measures.items()))
    for name, change, run in changes:
        try:
            predicted = predict(run)
        except (ConfigError, InfeasibleError):
            continue
        found = _measured(of, predicted)
        yield Sensitivity(
            name=name,
            change=change,
            fits_probability=of.fits_probability(predicted),
            values={key: now[key] * value / before[key] for key, value in found.items()},
            gain=measure.gain(found[first], before[first]),
        )


def _ranked(found: Iterable[Sensitivity]) -> tuple[Sensitivity, ...]:
    return tuple(sorted(found, key=lambda each: (not each.may_fit, -each.gain)))


def _as_another_device(of: Kind[Any, Any], run: Any) -> Any:
    """The run on a device that counts as another, with its links, though no figure differs by more than a rounding: what is carried over
    to a device with one other figure is then judged beside all that is carried over."""
    cluster = of.cluster_of(run)
    gpu, link = cluster.gpu, cluster.inter_node
    nudged = replace(link, latency_us=link.latency_us * (1 + NUDGE))
    other = replace(gpu, memory_gb_per_s=gpu.memory_gb_per_s * (1 + NUDGE))
    return of.on_cluster(run, replace(cluster, gpu=other, inter_node=nudged))


def _of_hardware(of: Kind[Any, Any], run: Any) -> Iterator[Change]:
    cluster = of.cluster_of(run)
    for name, change, changed in (*_of_gpu(cluster), *_of_links(cluster)):
        yield name, change, of.on_cluster(run, changed)


def _of_gpu(cluster: Cluster) -> Iterator[tuple[str, str, Cluster]]:
    gpu = cluster.gpu

    def with_gpu(**figures: Any) -> Cluster:
        return replace(cluster, gpu=replace(gpu, **figures))

    more = f"+{whole_percent(MORE)}"
    for dtype, tflops in gpu.peak_tflops.items():
        yield f"peak_tflops.{dtype}", more, with_gpu(peak_tflops=_scaled(gpu.peak_tflops, dtype, tflops * (1 + MORE)))
    for name in ("memory_gb_per_s", "cache_mib"):
        yield name, more, with_gpu(**{name: getattr(gpu, name) * (1 + MORE)})
    for work, share in gpu.efficiency.items():
        raised = min(1.0, share * (1 + MORE))
        said = more if raised < 1 else f"to 1, the most ({plain(share)} now)"
        yield f"efficiency.{work}", said, with_gpu(efficiency=_scaled(gpu.efficiency, work, raised))


def _of_links(cluster: Cluster) -> Iterator[tuple[str, str, Cluster]]:
    for tier in ("intra_node", "inter_node"):
        link = getattr(cluster, tier)
        faster = replace(link, gb_per_s=link.gb_per_s * (1 + MORE))
        sooner = replace(link, latency_us=link.latency_us * (1 - MORE))
        yield f"{tier}.gb_per_s", f"+{whole_percent(MORE)}", replace(cluster, **{tier: faster})
        yield f"{tier}.latency_us", f"−{whole_percent(MORE)}", replace(cluster, **{tier: sooner})


def _of_execution(of: Kind[Any, Any], run: Any) -> Iterator[Change]:
    execution = of.execution_of(run)
    if execution is None:
        return
    for name in ("launch_floor_us", "step_overhead_us"):
        value = getattr(execution, name)
        if value:
            lowered = replace(execution, **{name: type(value)(value * (1 - MORE))})
            yield f"execution.{name}", f"−{whole_percent(MORE)}", of.executed(run, lowered)
    if execution.gemm_efficiency:
        raised = min(1.0, execution.gemm_efficiency * (1 + MORE))
        yield (
            "execution.gemm_efficiency",
            f"+{whole_percent(MORE)}",
            of.executed(run, replace(execution, gemm_efficiency=raised)),
        )


def switched(of: Kind[Any, Any], run: Any, with_settings: Callable[[Values], Any]) -> Iterator[Change]:
    """Each other value of a setting that has a few, with what has to change with it, where the rules of a config allow it."""
    for setting in of.switched(run):
        for value in setting.others:
            together = of.companions(run, setting.path, value)
            try:
                changed = with_settings(together)
            except ConfigError:
                continue
            if isinstance(changed, TrainingRun) and "plan.schedule" not in together:
                changed = replace(changed, plan=replace(changed.plan, schedule=run.plan.schedule))
            yield setting.path, f"{setting_text(setting.now)} → {setting_text(value)}", changed


def _scaled(figures: Mapping[str, float], name: str, value: float) -> dict[str, float]:
    return {**figures, name: value}


# Neighbours of a plan: the same run with one setting of the plan or the batch a step further, either way.


def neighbours(
    config: Config,
    overrides: Sequence[str],
    run: TrainingRun,
    predict: Callable[[TrainingRun], Prediction],
) -> tuple[SweptRun, ...]:
    """Degrees and microbatch twice and half as large, other recomputation and ZeRO; dp takes the ranks that are left.

    A neighbour that cannot run keeps its reason. `run` is that of the config.
    """
    of = kind(TRAINING)

    def predicted(settings: Values) -> Prediction:
        return predict(of.load(config, [*overrides, *as_settings(settings)]))

    steps = [(setting.path, value) for setting in stepped(run) for value in setting.others]
    found = [(path, value, swept_row(of, of.companions(run, path, value), predicted)) for path, value in steps]
    return tuple(replace(row, settings={path: value}) for path, value, row in found)
