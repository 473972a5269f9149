"""Trying every setting of some choices, but those that cannot make a difference."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TypeVar

T = TypeVar("T")
Setting = tuple[bool, ...]


def each_setting(choices: int, trial: Callable[[Setting], tuple[T, set[int]]]) -> list[T]:
    """What the trial makes of every setting of so many choices, all True first.

    With its result the trial tells which choices came up. Settings that differ from one already tried only in choices
    that did not come up there are left out: they would come to the same.
    """
    tried: list[tuple[Setting, set[int]]] = []
    results: list[T] = []
    for setting in product((True, False), repeat=choices):
        if not any(_differs_in(setting, other).isdisjoint(came_up) for other, came_up in tried):
            result, came_up = trial(setting)
            tried.append((setting, came_up))
            results.append(result)
    return results


def _differs_in(setting: Setting, other: Setting) -> set[int]:
    return {index for index, (mine, theirs) in enumerate(zip(setting, other, strict=True)) if mine != theirs}
