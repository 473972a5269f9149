"""PriceList: the times of counted calls, measured where a regressor knows the call, its parts where it knows those, else analytic."""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from predict.interval import Interval
from predict.prices.conditions import Conditions, Factor
from predict.prices.cost_model import CallPhase, CostModel
from predict.prices.gloo import wait_after
from regressors.bank.times import Times
from sampling.arithmetic.operator import Operator
from sampling.call import Call, Counted, Phase
from sampling.collectives.kinds import Collective
from sampling.hardware.cluster import Cluster

UNCHANGED = Factor()
HALVES: tuple[Phase, Phase] = ("backward_input", "backward_weight")
MOST_KNOWN = 20_000
"""Calls whose prices a list keeps, about 10 MB; a plan asks for some hundred."""


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


class Prices(Protocol):
    """The times of calls on one cluster, as the steps of a prediction ask for them."""

    @property
    def profile_error(self) -> float | None:
        """Half-width in log time, at 90 %, of what adding up exact times would still miss; None where no run of the profile
        shows."""

    @property
    def transfer_error(self) -> float:
        """Half-width in log time, at 90 %, that rows of another CPU add to a step; 0 for rows of the device itself."""

    @property
    def pace_spread(self) -> float:
        """Half-width in log time, at 90 %, of the machine's pace at a moment about the reference pace of its rows; 0 where nothing is
        known of it, and for the pace of a moment that was measured."""

    @property
    def sampled_contention(self) -> float | None:
        """Share of hidden communication that the overlapping compute loses, by samples; None where there are none."""

    @property
    def launch_floors(self) -> Mapping[Phase, Times]:
        """Times in which the host launches a layer's phase, where samples show."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The samples, the hardware file and the benchmark that the times come from."""

    def priced(self, counted: Iterable[Counted]) -> tuple[Priced, ...]:
        """Each counted call as one or more priced ones. Raises LookupError if no model knows an atomic call."""

    def parts(self, counted: Counted) -> tuple[Priced, ...]:
        """The priced parts of a call, however it is itself known; () for an atomic one."""

    def glue_us(self, whole: Counted) -> float | None:
        """Time of a call in one piece beyond the sum of its parts; None where it was never sampled whole."""

    def learn(self, counted: Iterable[Counted]) -> None:
        """Ask for everything that is not known yet, in one batch."""


Known: TypeAlias = dict[CallPhase, tuple[Priced, ...]]


class PriceList:
    """The times of calls on one cluster under the first of `models` that knows each; equal calls are asked for once.

    Threads may share a list: what one of them adds to it is whole, and the same whoever adds it.
    """

    def __init__(
        self,
        models: Sequence[CostModel],
        cluster: Cluster,
        *,
        profile_error: float | None,
        transfer_error: float = 0.0,
        pace_spread: float = 0.0,
        conditions: Conditions | None = None,
        launch_floors: Mapping[Phase, Times] | None = None,
        sampled_contention: float | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        self._models = models
        self._conditions = conditions
        self.launch_floors = launch_floors or {}
        self.sampled_contention = sampled_contention
        self._cluster = cluster
        self.profile_error = profile_error
        self.transfer_error = transfer_error
        self.pace_spread = pace_spread
        self.provenance: Mapping[str, Any] = provenance or {"samples": None}
        self._known: Known = {}

    def priced(self, counted: Iterable[Counted]) -> tuple[Priced, ...]:
        wanted = tuple(counted)
        try:
            found = self._units(wanted, self._known)
        except KeyError:
            found = self._units(wanted, self._knowing(wanted))
        return tuple(found)

    @staticmethod
    def _units(wanted: Sequence[Counted], known: Known) -> list[Priced]:
        """The priced units of known calls; of a call that counts once, the known ones themselves. KeyError for an unknown call."""
        found: list[Priced] = []
        for one in wanted:
            units, count = known[one.call, one.phase], one.count
            if count == 1:
                found += units
            else:
                found += [
                    Priced(call=unit.call, phase=unit.phase, count=unit.count * count, time=unit.time) for unit in units
                ]
        return found

    def glue_us(self, whole: Counted) -> float | None:
        (priced, *more) = self.priced([whole])
        if more or priced.call != whole.call:
            return None
        return priced.total_us - sum(part.total_us for part in self.parts(whole))

    def parts(self, counted: Counted) -> tuple[Priced, ...]:
        return self.priced(
            Counted(call=part.call, phase=part.phase, count=part.count * counted.count)
            for part in counted.call.parts(counted.phase)
        )

    def learn(self, counted: Iterable[Counted]) -> None:
        self._knowing(list(counted))

    def _knowing(self, wanted: Sequence[Counted]) -> Known:
        """The known prices, including all that are wanted. A full list starts anew; other threads go on with the old one."""
        known = self._known
        if all((one.call, one.phase) in known for one in wanted):
            return known
        if len(known) > MOST_KNOWN:
            known = self._known = {}
        family = dict.fromkeys(kin for one in wanted for kin in _with_kin((one.call, one.phase)))
        unknown = [one for one in family if one not in known]
        # only when it is whole, so that no other thread reads a half that its other half will replace
        known.update(self._ask(unknown, known))
        return known

    def _ask(self, unknown: Sequence[CallPhase], known: Known) -> Known:
        measured, analytic = self._models[:-1], self._models[-1]
        found: Known = {}
        left = unknown
        for model in measured:
            answers = model.times(left, self._cluster)
            found |= self._prices(left, answers)
            left = [one for one, time in zip(left, answers, strict=True) if time is None]
        found |= _split_wholes(left, ChainMap(found, known))
        left = [one for one in left if one not in found]
        composite = [one for one in left if one[0].parts(one[1]) and not one[0].OVERHEAD]
        in_parts = set(composite)
        atomic = [one for one in left if one not in in_parts]
        found |= self._prices(atomic, analytic.times(atomic, self._cluster))
        return found | {(call, phase): self._in_parts(call, phase) for call, phase in composite}

    def _in_parts(self, call: Call, phase: Phase) -> tuple[Priced, ...]:
        """The priced parts of a call that no model knows whole; between ranks of a CPU with the waits of its collectives. Those of half a
        backward are the whole one's, so that a split does not look like a gain."""
        parts = call.parts(phase)
        priced = self.priced(parts)
        messages = self.priced(part for part in parts if isinstance(part.call, Collective) and part.call.ranks > 1)
        if self._cluster.gpu.kind != "cpu" or not messages:
            return priced
        whole = self.priced(call.parts("backward")) if phase in HALVES else priced
        compute_us = sum(part.total_us for part in whole if not isinstance(part.call, Collective))
        wait = wait_after(compute_us / sum(message.count for message in messages))
        waits = [replace(message, time=self._under_conditions(message.call, wait)) for message in messages]
        return (*priced, *waits)

    def _prices(self, wanted: Sequence[CallPhase], answers: Sequence[Times | None]) -> Known:
        return {
            (call, phase): (Priced(call=call, phase=phase, count=1.0, time=self._under_conditions(call, time)),)
            for (call, phase), time in zip(wanted, answers, strict=True)
            if time is not None
        }

    def _under_conditions(self, call: Call, time: Times) -> Times:
        factor = self._conditions.factor(call, time) if self._conditions else UNCHANGED
        if factor == UNCHANGED:
            return time
        return Interval.of(time).widened(factor.half_width).scaled(factor.value).in_place_of(time)


def _with_kin(wanted: CallPhase) -> tuple[CallPhase, ...]:
    """A cell's half of a backward is asked for with the other half and the whole, against which it is checked."""
    call, phase = wanted
    if phase not in HALVES or not call.parts(phase):
        return (wanted,)
    return wanted, (call, "backward"), *((call, half) for half in HALVES)


def _split_wholes(left: Sequence[CallPhase], known: Mapping[CallPhase, tuple[Priced, ...]]) -> Known:
    """Both halves of a cell's backward, where only the whole was sampled, as its shares by FLOPs.

    Their parts would cost less than the whole does in one piece, and the split would look like a gain.
    """
    halves: Known = {}
    for call in dict.fromkeys(call for call, phase in left if phase in HALVES and call.parts(phase)):
        whole = known.get((call, "backward"), ())
        if isinstance(call, Operator) and whole and whole[0].call == call:
            both = sum(call.flops(half) for half in HALVES)
            for half in HALVES:
                share = call.flops(half) / both
                halves[call, half] = (Priced(call=call, phase="backward", count=share, time=whole[0].time),)
    return halves
