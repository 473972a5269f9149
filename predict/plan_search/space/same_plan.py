"""Plans that are the same as another one of the space: a key differs that says nothing there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from predict.config.rules.rule import Problems, Rule
from predict.model.spec import ModelSpec
from predict.plan_search.space.axes import Axis


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """The condition under which a key says nothing, in words and as a function of the values that it needs."""

    path: str
    because: str
    needs: tuple[str, ...]
    holds: Callable[..., bool]
    stand_in: Any = None
    """The value that stands for all; None for the first of the axis."""


def _no_exchange(ep: int, etp: int, model: ModelSpec) -> bool:
    return model.experts is None or ep * etp == 1


SILENCES = (
    Silence(path="plan.cp_method", because="cp is 1", needs=("cp",), holds=lambda cp: cp == 1),
    Silence(path="plan.shard", because="zero is 0", needs=("zero",), holds=lambda zero: zero == 0),
    Silence(
        path="plan.shard",
        because="these are all replicas",
        needs=("shard", "dp", "cp"),
        holds=lambda shard, dp, cp: shard == dp * cp,
        stand_in=0,
    ),
    Silence(
        path="plan.recompute_modules",
        because="recompute is not selective",
        needs=("recompute",),
        holds=lambda recompute: recompute != "selective",
    ),
    *(
        Silence(path=path, because="pp is 1", needs=("pp",), holds=lambda pp: pp == 1)
        for path in ("plan.count_embedding", "plan.count_loss", "execution.overlap_p2p", "execution.split_p2p")
    ),
    Silence(path="execution.overlap_tp", because="tp is 1", needs=("tp",), holds=lambda tp: tp == 1),
    *(
        Silence(path=path, because="experts are not spread", needs=("ep", "etp", "model"), holds=_no_exchange)
        for path in ("execution.dispatch", "execution.overlap_ep")
    ),
    Silence(
        path="plan.schedule",
        because="interleaved 1F1B of one chunk is 1F1B",
        needs=("vpp", "schedule"),
        holds=lambda vpp, schedule: vpp == 1 and schedule == "interleaved-1f1b",
        stand_in="1f1b",
    ),
)
"""Whichever value a key has under its condition, the run is the same: one of its values stands for all."""


def same_plan_rules(axes: Sequence[Axis]) -> list[Rule]:
    """Rules that leave one of the plans that are the same, for the axes that are searched."""
    by_path: Mapping[str, Axis] = {axis.path: axis for axis in axes if len(axis.values) > 1}
    silent = [silence for silence in SILENCES if silence.path in by_path]
    return [
        _rule(silence, axis, axis.values[0] if silence.stand_in is None else silence.stand_in)
        for silence in silent
        for axis in (by_path[silence.path],)
        if silence.stand_in is None or silence.stand_in in axis.values
    ]


def _rule(silence: Silence, axis: Axis, stand_in: Any) -> Rule:
    def check(*values: Any) -> Problems:
        own, *needed = values
        if own != stand_in and silence.holds(*needed):
            yield f"{own}; {stand_in} stands for both"

    check.__name__ = f"the same plan as another one, since {silence.because}"
    return Rule(path=axis.path, needs=(axis.name, *silence.needs), check=check)
