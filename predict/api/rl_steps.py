"""Questions on steps of reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from predict import estimate
from predict.api.many_plans import search_combinations

if TYPE_CHECKING:
    from predict.plan_search.sweep import SweptRows
    from predict.rl.books import RlLedger
    from predict.rl.step import RlDraws, RlStep


def rl_step(config: Path | str, overrides: Sequence[str] = ()) -> RlStep:
    """One step of reinforcement learning of an RL config, as in configs/rl: `.time`, `.phases` under verl's names, `.rollout`.

    `overrides` are keys such as `rl.n=8`, or verl's own names. ConfigError lists every fault; InfeasibleError where a response does
    not fit an engine's cache.
    """
    from predict.rl.config import load_rl
    from predict.rl.step import rl_step as step_of

    return step_of(load_rl(config, overrides), estimate)


def rl_step_draws(config: Path | str, overrides: Sequence[str] = (), *, draws: int = 16) -> RlDraws:
    """The step of an RL config over draws of its lengths: `.percentiles_us("step")`, or of a phase. ConfigError and InfeasibleError as
    from `rl_step`."""
    from predict.rl.step import draw_steps

    return draw_steps(config, overrides, estimate, draws)


def rl_ledger(config: Path | str, overrides: Sequence[str] = ()) -> RlLedger:
    """The books of an RL step: `.accounts_us` of trainer and engines, `.step.phases` with their parts, and what the times rest on.
    ConfigError and InfeasibleError as from `rl_step`."""
    from predict.rl.books import RlLedger

    return RlLedger(step=rl_step(config, overrides))


def rl_search(
    config: Path | str, overrides: Sequence[str] = (), *, progress: Callable[[int, int], None] | None = None
) -> SweptRows[RlStep]:
    """The best steps of all that an RL config leaves open: keys of rl, plan and cluster that are lists or ranges, and for the split of
    the GPUs `auto`; as from `search_combinations`, `.step` being the prediction."""
    return search_combinations(config, overrides, progress=progress)
