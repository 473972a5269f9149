"""Constants read off published runs, given other values for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import PurePath
from typing import Any

from predict.prices.open import forget_prices
from predict.prices.published_constants import PublishedConstant
from predict.run.training_run import TrainingRun
from sampling.hardware.cluster import hardware_facts

Change = Callable[[TrainingRun], TrainingRun]
"""A run as it would be if the constant had the tried value."""


@contextmanager
def tried(constant: PublishedConstant, value: float) -> Iterator[Change]:
    """Within it, the constant's own value, or that of the module that holds it, is `value`; for one in a file of settings, the
    change that is yielded puts it into the runs that have the stated value from there."""
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
