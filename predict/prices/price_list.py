"""PriceList: the times of counted calls, measured where a regressor knows the call, its parts where it knows those, else analytic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from predict.prices.conditions import Conditions, Factor
from predict.prices.contention import CONTENTION_SLOWDOWN
from predict.prices.cost_model import Asked, CostModel
from regressors.bank.times import Times
from sampling.arithmetic.operator import Operator
from sampling.call import Call, Counted, Phase
from sampling.hardware.cluster import Cluster

UNCHANGED = Factor()
HALVES: tuple[Phase, Phase] = ("backward_input", "backward_weight")


@dataclass(frozen=True, kw_only=True, slots=True)
class Priced:
    """A counted call with its time. `call` may be a part of the call that was asked for, where only parts are known."""

    call: Call
    phase: Phase
    count: float
    time: Times

    @property
    def total_us(self) -> float:
        return self.count * self.time.median_us


class PriceList:
    """The times of calls on one cluster under the first of `models` that knows each; equal calls are asked for once.

    `profile_error` is the half-width in log time, at 90 %, of what adding up exact times would still miss; None where
    no run of the profile tells; `contention_slowdown` the share of hidden communication that compute beside it loses.
    """

    def __init__(
        self,
        models: Sequence[CostModel],
        cluster: Cluster,
        *,
        profile_error: float | None,
        conditions: Conditions | None = None,
        contention_slowdown: float = CONTENTION_SLOWDOWN,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        self._models = models
        self._conditions = conditions
        self.contention_slowdown = contention_slowdown
        self._cluster = cluster
        self.profile_error = profile_error
        self.provenance: Mapping[str, Any] = provenance or {"samples": None}
        self._known: dict[Asked, tuple[Priced, ...]] = {}

    def priced(self, counted: Iterable[Counted]) -> tuple[Priced, ...]:
        """Each counted call as one or more priced ones. Raises LookupError if no model knows an atomic call."""
        wanted = list(counted)
        if any((one.call, one.phase) not in self._known for one in wanted):
            self.learn(wanted)
        return tuple(
            Priced(call=unit.call, phase=unit.phase, count=unit.count * one.count, time=unit.time)
            for one in wanted
            for unit in self._known[one.call, one.phase]
        )

    def glue_us(self, whole: Counted) -> float | None:
        """Time of a call in one piece beyond the sum of its parts; None where it was never sampled whole."""
        (priced, *more) = self.priced([whole])
        if more or priced.call != whole.call:
            return None
        return priced.total_us - sum(part.total_us for part in self.parts(whole))

    def parts(self, counted: Counted) -> tuple[Priced, ...]:
        """The priced parts of a call, however it is itself known; () for an atomic one."""
        return self.priced(
            Counted(call=part.call, phase=part.phase, count=part.count * counted.count)
            for part in counted.call.parts(counted.phase)
        )

    def learn(self, counted: Iterable[Counted]) -> None:
        """Ask for everything that is not known yet, in one batch."""
        asked = dict.fromkeys(kin for one in counted for kin in _with_kin((one.call, one.phase)))
        unknown = [one for one in asked if one not in self._known]
        if not unknown:
            return
        measured, analytic = self._models[:-1], self._models[-1]
        left = unknown
        for model in measured:
            answers = model.times(left, self._cluster)
            self._keep(left, answers)
            left = [one for one, time in zip(left, answers, strict=True) if time is None]
        left = self._split_wholes(left)
        composite = [one for one in left if one[0].parts(one[1]) and not one[0].OVERHEAD]
        in_parts = set(composite)
        atomic = [one for one in left if one not in in_parts]
        self._keep(atomic, analytic.times(atomic, self._cluster))
        for call, phase in composite:
            self._known[call, phase] = self.priced(call.parts(phase))

    def _split_wholes(self, left: Sequence[Asked]) -> list[Asked]:
        """Price both halves of a cell's backward, where only the whole was sampled, as its shares by FLOPs; return the rest.

        Their parts would cost less than the whole does in one piece, and the split would look like a gain.
        """
        priced = set()
        for call in dict.fromkeys(call for call, phase in left if phase in HALVES and call.parts(phase)):
            whole = self._known.get((call, "backward"), ())
            if isinstance(call, Operator) and whole and whole[0].call == call:
                both = sum(call.flops(half) for half in HALVES)
                for half in HALVES:
                    share = call.flops(half) / both
                    self._known[call, half] = (Priced(call=call, phase="backward", count=share, time=whole[0].time),)
                    priced.add((call, half))
        return [one for one in left if one not in priced]

    def _keep(self, asked: Sequence[Asked], answers: Sequence[Times | None]) -> None:
        for (call, phase), time in zip(asked, answers, strict=True):
            if time is not None:
                priced = Priced(call=call, phase=phase, count=1.0, time=self._under_conditions(call, time))
                self._known[call, phase] = (priced,)

    def _under_conditions(self, call: Call, time: Times) -> Times:
        factor = self._conditions.factor(call, time.source) if self._conditions else UNCHANGED
        if factor == UNCHANGED:
            return time
        above, below = math.log(time.high_us / time.median_us), math.log(time.median_us / time.low_us)
        median_us = time.median_us * factor.value
        return Times(
            median_us=median_us,
            low_us=median_us / math.exp(math.hypot(below, factor.half_width)),
            high_us=median_us * math.exp(math.hypot(above, factor.half_width)),
            source=time.source,
        )


def _with_kin(asked: Asked) -> tuple[Asked, ...]:
    """A cell's half of a backward is asked for with the other half and the whole, against which it is checked."""
    call, phase = asked
    if phase not in HALVES or not call.parts(phase):
        return (asked,)
    return asked, (call, "backward"), *((call, half) for half in HALVES)
