"""Constants judged on sources left out: each that moves times is learnt again, within its bounds, without each source in turn.

One constant is learnt at a time, the others as stated: the value of least mean error in log time, sources weighing by the square root
of their configurations, as widths do. Errors between the bounds and the stated value are interpolated, so that each constant costs two
predictions of every configuration.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import PurePath
from statistics import fmean
from typing import Any

from predict import estimate
from predict.prices.open import forget_prices
from predict.prices.published_constants import CONSTANTS, PublishedConstant
from predict.run.training_run import TrainingRun
from predict.validation.compared import grouped, mean_over_sources
from predict.validation.published import ComparedRun, Comparison, configurations
from predict.validation.published_runs import candidates
from sampling.hardware.cluster import hardware_facts
from sampling.progress import Progress, silent

VALUES = 21
"""Values tried between the bounds."""
MOST_OF_A_SOURCE = 50
"""Configurations taken of a longer source, at even distances: neighbours are alike."""
MOVED = 1e-4
"""Change of a step's logarithm between the bounds from which on a constant moves it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """A configuration that a constant moves: its errors in log time at the constant's low, stated and high value."""

    source: str
    errors: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedConstant:
    """A constant next to what published runs teach. Errors are means of absolute errors in log time over the configurations that it
    moves, in percent."""

    name: str
    stated: float
    low: float
    high: float
    configurations: int
    sources: int
    learnt: float
    """The best value on all sources."""
    least: float
    greatest: float
    """The least and the greatest value learnt with one source left out."""
    error_stated: float
    error_left_out: float
    """Each source with the value that the others teach; of sources that no other can speak for, with the stated value."""


def judge_constants(comparisons: Sequence[ComparedRun], progress: Progress = silent) -> tuple[JudgedConstant, ...]:
    """The constants that move any of the configurations."""
    counted = [(one, candidates(one.row).runs) for one in _some_of_each_source(configurations(comparisons))]
    movable = {name: one for name, one in CONSTANTS.items() if one.scope != "interval"}
    found = []
    for done, (name, constant) in enumerate(movable.items(), 1):
        if moved := _moved(counted, constant):
            found.append(judged(name, constant, moved))
        progress(done, len(movable), name)
    return tuple(found)


def _some_of_each_source(counted: Sequence[Comparison]) -> list[Comparison]:
    by_source = grouped(counted, lambda one: one.source).values()
    return [one for own in by_source for one in own[:: math.ceil(len(own) / MOST_OF_A_SOURCE)]]


def judged(name: str, constant: PublishedConstant, moved: Sequence[Moved]) -> JudgedConstant:
    """A constant judged by the configurations that it moves."""
    sources = sorted({one.source for one in moved})
    others = {source: [one for one in moved if one.source != source] for source in sources}
    without = {source: _learnt(constant, rest) if rest else constant.value for source, rest in others.items()}
    return JudgedConstant(
        name=name,
        stated=constant.value,
        low=constant.low,
        high=constant.high,
        configurations=len(moved),
        sources=len(sources),
        learnt=_learnt(constant, moved),
        least=min(without.values()),
        greatest=max(without.values()),
        error_stated=100 * fmean(abs(one.errors[1]) for one in moved),
        error_left_out=100 * fmean(abs(_error_at(constant, one, without[one.source])) for one in moved),
    )


def constants_json(found: Sequence[JudgedConstant]) -> dict[str, Any]:
    return {"constants": [asdict(one) for one in found]}


def _moved(counted: Sequence[tuple[Comparison, tuple[TrainingRun, ...]]], constant: PublishedConstant) -> list[Moved]:
    at_bounds: list[list[float]] = []
    for value in (constant.low, constant.high):
        with tried(constant, value) as change:
            at_bounds.append([_error(one, [change(run) for run in runs]) for one, runs in counted])
    return [
        Moved(source=one.source, errors=(low, math.log1p(one.error), high))
        for (one, _), low, high in zip(counted, *at_bounds, strict=True)
        if abs(high - low) > MOVED
    ]


def _error(one: Comparison, runs: Sequence[TrainingRun]) -> float:
    return fmean(math.log(estimate(run).median_us) for run in runs) - math.log(one.measured_us)


def _learnt(constant: PublishedConstant, moved: Sequence[Moved]) -> float:
    """The value of least error, the nearest to the stated one where several are."""
    step = (constant.high - constant.low) / (VALUES - 1)
    values = [constant.value, *(constant.low + place * step for place in range(VALUES))]
    return min(values, key=lambda value: (round(_loss(constant, moved, value), 9), abs(value - constant.value)))


def _loss(constant: PublishedConstant, moved: Sequence[Moved], value: float) -> float:
    return mean_over_sources((one.source, abs(_error_at(constant, one, value))) for one in moved)


def _error_at(constant: PublishedConstant, one: Moved, value: float) -> float:
    """The error at a value, by the line through that at the stated value and that at the bound on its side."""
    low, stated, high = one.errors
    bound, error = (constant.low, low) if value < constant.value else (constant.high, high)
    if bound == constant.value:
        return stated
    return stated + (error - stated) * (value - constant.value) / (bound - constant.value)


Change = Callable[[TrainingRun], TrainingRun]
"""A run as it would be if the constant had the tried value."""


@contextmanager
def tried(constant: PublishedConstant, value: float) -> Iterator[Change]:
    """Makes `value` the constant's own value, or the value in the module that holds it, while the block runs; for one in a file of
    settings, the change that is yielded puts it into the runs that have the stated value from there."""
    file, _, keys = constant.place.partition(": ")
    if file.endswith(".yml"):
        yield lambda run: _with_setting(run, PurePath(file), keys, constant.value, value)
        return
    holder = import_module(file.removesuffix(".py").replace("/", ".")) if file else constant
    name, stated = keys or "value", constant.value
    _set(holder, name, value)
    try:
        yield lambda run: run
    finally:
        _set(holder, name, stated)


def _set(holder: object, name: str, value: float) -> None:
    object.__setattr__(holder, name, value)  # frozen for all others
    forget_prices()


def _with_setting(run: TrainingRun, file: PurePath, keys: str, stated: float, value: float) -> TrainingRun:
    key = keys.rpartition(".")[2]
    if file.parent.name == "frameworks":
        setting: dict[str, Any] = {key: value}
        holds = getattr(run.execution, key) == stated
        return replace(run, execution=replace(run.execution, **setting)) if holds else run
    gpu = run.cluster.gpu
    if gpu.architecture != hardware_facts(file.stem).architecture or stated not in gpu.sustained.values():
        return run
    sustained: Mapping[str, float] = {
        dtype: value if ratio == stated else ratio for dtype, ratio in gpu.sustained.items()
    }
    return replace(run, cluster=replace(run.cluster, gpu=replace(gpu, sustained=sustained)))
