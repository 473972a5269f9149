"""The answer of a search over RL steps, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from predict.reports.text import figures_table
from predict.serialise import as_json, version_of
from sampling.number_text import duration, durations

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from predict.plan_search.rl_space import Candidate, RlAnswer
    from predict.rl.step import RlStep


SIDE = ("gen", "update_actor", "update_weights")
"""Phases that the table shows; `predict rl-step` shows all of one."""


def rl_search_text(answer: RlAnswer, *, top: int) -> RenderableType:
    """The best combinations, best first, and why others are none."""
    from rich.console import Group

    names = list(answer.space.axes)
    count = len(answer.best) + len(answer.left_out)
    return Group(
        f"{count} combinations of {escape(', '.join(names))}, every one predicted; {len(answer.best)} can run",
        _table(answer.best[:top], names),
        *_reasons(answer.left_out),
    )


def rl_table_text(rows: Sequence[Candidate], names: Sequence[str]) -> RenderableType:
    """A sweep: every combination that has a step, in its order, and why others have none or do not fit."""
    from rich.console import Group

    return Group(_table([one for one in rows if one.step], names), *_reasons([one for one in rows if one.reason]))


def _table(rows: Sequence[Candidate], names: Sequence[str]) -> Table:
    short = [name.rpartition(".")[2] for name in names]
    figures = ("GPUs", "step", "90 %", "tokens/s/GPU", *SIDE, "trainer waits", "engines wait", "fits")
    table = figures_table("", short if len({*short}) == len(short) else names, figures)
    for one in rows:
        if one.step:
            fits = "yes" if one.step.memory.fits else "NO"
            table.add_row(*(escape(str(one.settings[name])) for name in names), *_figures(one.step), fits)
    return table


def _reasons(left_out: Sequence[Candidate]) -> list[str]:
    """Each reason once, with the number of combinations; of those that do not fit, the least that one of them needs."""
    reasons: dict[str, list[Candidate]] = {}
    for one in left_out:
        line = one.reason.splitlines()[0]
        reasons.setdefault(line.partition(" needs ")[0] if one.step else line, []).append(one)
    return [
        escape(f"{len(those)} left out: {min(one.reason.splitlines()[0] for one in those)}")
        for those in reasons.values()
    ]


def _figures(step: RlStep) -> tuple[str, ...]:
    time = step.time
    phases = (step.phase(name) for name in SIDE)
    gpus = step.rl.base.cluster.world_size
    return (
        f"{gpus} + {step.rl.section.rollout.gpus}" if step.rl.section.rollout.gpus else str(gpus),
        duration(time.median_us),
        durations(time.low_us, time.high_us),
        f"{step.tokens_per_second_per_gpu:,.0f}",
        *("" if phase is None else duration(phase.time.median_us) for phase in phases),
        duration(step.wait_gen_us),
        duration(step.idle_gen_us),
    )


def rl_search_json(answer: RlAnswer, *, top: int) -> dict[str, Any]:
    """The stable content of `predict search --json` for an RL config."""
    return {
        "version": version_of("rl-search"),
        "space": {path: list(values) for path, values in answer.space.axes.items()},
        "best": [
            {
                "settings": dict(one.settings),
                "step_us": as_json(one.step.time),
                "tokens_per_second_per_gpu": one.step.tokens_per_second_per_gpu,
                "phases_us": {phase.name: phase.time.median_us for phase in one.step.phases},
                "wait_gen_us": one.step.wait_gen_us,
                "idle_gen_us": one.step.idle_gen_us,
            }
            for one in answer.best[:top]
            if one.step
        ],
        "left_out": [{"settings": dict(one.settings), "reason": one.reason} for one in answer.left_out],
    }
