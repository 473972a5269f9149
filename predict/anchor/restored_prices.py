"""A price list in which some calls have times restored from a benchmark of whole layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from predict.prices.cost_model import Asked
from predict.prices.price_list import Priced, Prices
from regressors.bank.times import Times
from sampling.arithmetic.composite import add_terms, scale_terms
from sampling.call import Call, Counted, Phase
from sampling.hardware.cluster import Cluster


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredWork(Call):
    """The calls of a block, timed as one; `unit` (a kind of layer, embedding or head) is the module that stands for it."""

    NAME: ClassVar[str] = "restored"
    PHASES: ClassVar[tuple[Phase, ...]] = ("forward", "backward", "backward_input", "backward_weight")

    unit: str
    calls: tuple[Counted, ...]

    def parts(self, phase: Phase) -> Sequence[Counted]:
        return self.calls

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return add_terms(*(scale_terms(each.call.terms(each.phase, cluster), each.count) for each in self.calls))

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return self.terms(phase, cluster)


class RestoredPrices:
    """The prices of `inner`, except for the calls in `restored`, which come from the `benchmark` described. `notes` say what the
    benchmark's device has to do with the run's; with `elsewhere` it is another one, and nothing counts as measured."""

    def __init__(
        self,
        inner: Prices,
        restored: Mapping[Asked, Times],
        benchmark: Mapping[str, Any],
        *,
        notes: Sequence[str] = (),
        elsewhere: bool = False,
    ) -> None:
        self._inner = inner
        self._restored = restored
        self._elsewhere = elsewhere
        self.profile_error = inner.profile_error
        self.transfer_error = inner.transfer_error
        self.launch_floors = inner.launch_floors
        self.sampled_contention = inner.sampled_contention
        all_notes = [*inner.provenance.get("notes", ()), *notes]
        self.provenance: Mapping[str, Any] = {**inner.provenance, "notes": all_notes, "benchmark": benchmark}

    def glue_us(self, whole: Counted) -> None:
        """Nothing: whole layers were timed, with the time between their parts."""

    def priced(self, counted: Iterable[Counted]) -> tuple[Priced, ...]:
        wanted = list(counted)
        self.learn(wanted)
        return tuple(unit for one in wanted for unit in self._one(one))

    def _one(self, one: Counted) -> tuple[Priced, ...]:
        time = self._restored.get((one.call, one.phase))
        if time is None:
            return self._inner.priced([one])
        if self._elsewhere:
            time = replace(time, source="transferred")
        return (Priced(call=one.call, phase=one.phase, count=one.count, time=time),)

    def parts(self, counted: Counted) -> tuple[Priced, ...]:
        return self._inner.parts(counted)

    def learn(self, counted: Iterable[Counted]) -> None:
        self._inner.learn(one for one in counted if (one.call, one.phase) not in self._restored)
