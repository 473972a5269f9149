"""The best RL steps of a space, exactly: every combination is predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predict.rl.search.space import RlSpace, space_of
from predict.rl.step import RlStep, rl_step
from predict.rl.training import Estimate
from sampling.errors import ConfigError, InfeasibleError
from sampling.units import GIB


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Candidate:
    """One combination: its step, or the reason why there is none."""

    settings: Mapping[str, Any]
    step: RlStep | None
    reason: str = ""
    """Why it cannot be chosen; a step that does not fit in memory has one too."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RlAnswer:
    """The candidates that can run, best first, and the others."""

    space: RlSpace
    best: tuple[Candidate, ...]
    left_out: tuple[Candidate, ...]


def search_rl(
    config: Path | str,
    overrides: Sequence[str],
    estimate: Estimate,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> RlAnswer:
    """Predict every combination; the best trains on the most tokens per second and GPU. InfeasibleError where none can run."""
    space = space_of(config, overrides)
    found = candidates(space, estimate, progress)
    best = [one for one in found if one.step and not one.reason]
    left_out = tuple(one for one in found if one.reason)
    if not best:
        raise InfeasibleError(
            f"{len(found)} combinations of {', '.join(space.axes)}: none can run; the first: {left_out[0].reason}"
        )
    best.sort(key=lambda one: -one.step.tokens_per_second_per_gpu if one.step else 0.0)
    return RlAnswer(space=space, best=tuple(best), left_out=left_out)


def candidates(
    space: RlSpace, estimate: Estimate, progress: Callable[[int, int], None] = lambda done, of: None
) -> list[Candidate]:
    """Every combination of a space, in its order; `progress` is told how many are done, of how many, before the first too."""
    combinations = list(space.combinations())
    progress(0, len(combinations))
    found = []
    for settings in combinations:
        found.append(candidate(space, settings, estimate))
        progress(len(found), len(combinations))
    return found


def candidate(space: RlSpace, settings: Mapping[str, Any], estimate: Estimate) -> Candidate:
    """One combination of a space, predicted."""
    try:
        step = rl_step(space.run(settings), estimate)
    except (ConfigError, InfeasibleError) as error:
        return Candidate(settings=settings, step=None, reason=str(error))
    memory = step.memory
    if memory.fits:
        return Candidate(settings=settings, step=step)
    worst = memory.worst
    needs = f"{worst.phase} needs {worst.peak / GIB:.1f} GiB per GPU, which has {memory.capacity / GIB:.1f}"
    return Candidate(settings=settings, step=step, reason=f"memory: {needs}")
