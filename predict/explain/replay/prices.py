"""Prices of a replay: operators at the paces of a trace, and layers as the sums of theirs with the host's time between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from predict.explain.replay.pace import TraceFactors
from predict.explain.trace.naming import direction
from predict.interval import Interval
from predict.prices.price_list import Priced, Prices
from predict.rank.blocks import Message
from predict.step.breakdown import CP, DP, EP, HOST, P2P, TP
from predict.step.priced_block import total_us
from regressors.bank.times import Source
from sampling.call import Call, Counted, Phase
from sampling.cells.gradient_cell import GradientCell
from sampling.collectives.kinds import Collective, SendRecv


class ReplayedPrices:
    """The prices of `inner` with the factors of a trace.

    A layer is the sum of its operators, of the host's time beside each, and of its messages. Where the trace does not show such layers (they
    are spread over ranks and those of the trace are not, or the other way round), a sampled whole takes at least what its sample says. What
    a question asks for multiplies the parts of that, however long the whole is.
    """

    def __init__(self, inner: Prices, factors: TraceFactors) -> None:
        self._inner = inner
        self.factors = factors
        self._unasked = ReplayedPrices(inner, factors.unasked) if factors != factors.unasked else self
        self._known: dict[tuple[Call, Phase], float] = {}
        self.profile_error = inner.profile_error
        self.transfer_error = inner.transfer_error
        self.launch_floors = inner.launch_floors
        self.sampled_contention = inner.sampled_contention
        self.provenance: Mapping[str, Any] = inner.provenance

    def priced(self, counted: Iterable[Counted]) -> tuple[Priced, ...]:
        return tuple(
            self._at_pace(unit, of_messages=_heading_of_messages(one))
            for one in counted
            for unit in self._inner.priced([one])
        )

    def parts(self, counted: Counted) -> tuple[Priced, ...]:
        heading = _heading_of_messages(counted)
        hidden = self.factors.exposed_reduction if heading == DP else 1.0
        found = [self._at_pace(unit, of_messages=heading) for unit in self._inner.parts(counted)]
        return tuple(_times(unit, hidden) if isinstance(unit.call, Collective) else unit for unit in found)

    def glue_us(self, whole: Counted) -> float | None:
        return None if self.factors.wholes is None else self._inner.glue_us(whole)

    def learn(self, counted: Iterable[Counted]) -> None:
        self._inner.learn(counted)

    def _at_pace(self, unit: Priced, *, of_messages: str) -> Priced:
        time_us = unit.time.median_us
        if not time_us:
            return unit
        if isinstance(unit.call, Collective):
            factor, _ = self.factors.of_messages(of_messages)
        elif unit.call.HEADING == P2P:
            factor, _ = self.factors.of_messages(P2P)
        elif is_whole(unit):
            factor = self._whole_us(unit) / time_us
        else:
            factor, _ = self.factors.of(unit.call, direction(unit.phase))
            factor += self.factors.host_beside_us(unit.call) / time_us
        return _times(unit, factor, self._source(unit))

    def _source(self, unit: Priced) -> Source:
        """A trace measured what it sets the pace of; without one, a whole is as sure as the least sure of its parts."""
        if self.factors.seen:
            return "measured"
        parts = self._inner.parts(Counted(call=unit.call, phase=unit.phase)) if is_whole(unit) else ()
        summed = self.factors.wholes is None
        return "analytic" if summed and any(part.time.source == "analytic" for part in parts) else unit.time.source

    def _whole_us(self, unit: Priced) -> float:
        """Time of one run of a call that has parts."""
        key = unit.call, unit.phase
        if key not in self._known:
            before = self._unasked.parts(Counted(call=unit.call, phase=unit.phase))
            asked = self.parts(Counted(call=unit.call, phase=unit.phase))
            least_us = unit.time.median_us * self._share_of_whole(unit, before)
            beyond_us = max(0.0, least_us - total_us(before))
            self._known[key] = total_us(asked) + beyond_us * self._asked_beyond(unit, before, asked)
        return self._known[key]

    def _asked_beyond(self, unit: Priced, before: Sequence[Priced], asked: Sequence[Priced]) -> float:
        """The factor asked for on what a sampled whole takes beyond its parts: that of those which the ledger gives it to."""
        places = [place for place, part in enumerate(before) if self._takes_the_rest(unit, part, before)]
        before_us = total_us([before[place] for place in places])
        return total_us([asked[place] for place in places]) / before_us if before_us else 1.0

    def _takes_the_rest(self, unit: Priced, part: Priced, parts: Sequence[Priced]) -> bool:
        """Whether the rest of a whole is the part's: a reduction's messages', else of a layer on one rank its guessed operators'."""
        is_message = isinstance(part.call, Collective)
        if isinstance(unit.call, GradientCell):
            return is_message
        return part.time.source == "analytic" and not _spread(parts)

    def _share_of_whole(self, unit: Priced, parts: Iterable[Priced]) -> float:
        """The factor on a sampled whole below which its parts may not add up; 0 where the trace shows all of such layers."""
        if self.factors.wholes is not None:
            return self.factors.wholes
        kind = DP if isinstance(unit.call, GradientCell) else TP if _spread(parts) else HOST
        return 1.0 if self.factors.seen and kind not in self.factors.complete else 0.0


def is_whole(unit: Priced) -> bool:
    """Whether a call is priced as the sum of others."""
    return not unit.call.HEADING and bool(unit.call.parts(unit.phase))


def _times(unit: Priced, factor: float, source: Source | None = None) -> Priced:
    time = Interval.of(unit.time).scaled(factor).in_place_of(unit.time)
    return replace(unit, time=replace(time, source=source) if source else time)


def _spread(parts: Iterable[Priced]) -> bool:
    """Whether a call's parts are spread over ranks, which exchange messages."""
    return any(isinstance(part.call, Collective) for part in parts)


def _heading_of_messages(one: Counted) -> str:
    """The ledger's heading of a call's collectives: by the group that runs them, or by the call that holds them."""
    if isinstance(one, Message):
        sends = P2P if isinstance(one.call, SendRecv) else DP
        return one.group if one.group in (TP, CP, EP) else sends
    return DP if isinstance(one.call, GradientCell) else one.call.HEADING or TP
