"""A price list in which some calls have times of their own, restored from a benchmark of whole layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from predict.prices.cost_model import Asked
from predict.prices.price_list import Priced, PriceList
from regressors.bank.times import Times
from sampling.arithmetic.composite import add_terms, scale_terms
from sampling.call import Call, Counted, Phase
from sampling.errors import SkippedError
from sampling.hardware.cluster import Cluster


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredWork(Call):
    """The calls of a block, timed as one: `unit` is the layer kind, or the end of the model, that stands for it."""

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

    def build(self, device: Any) -> NoReturn:
        raise SkippedError(f"{self.unit}: was restored from a benchmark; time the whole layer instead")


class RestoredPrices(PriceList):
    """`inner`, but for the calls in `restored`; `told` says which benchmark they come from."""

    def __init__(self, inner: PriceList, restored: Mapping[Asked, Times], told: Mapping[str, Any]) -> None:
        # what it knows and how it learns are the inner list's, so none of its own state is set up
        self._inner = inner
        self._restored = restored
        self.profile_error = inner.profile_error
        self.contention_slowdown = inner.contention_slowdown
        self.provenance = {**inner.provenance, "benchmark": told}

    def glue_us(self, whole: Counted) -> None:
        """Whole layers were timed: what lies between their parts is in them."""

    def priced(self, counted: Iterable[Counted]) -> tuple[Priced, ...]:
        wanted = list(counted)
        self.learn(wanted)
        return tuple(unit for one in wanted for unit in self._one(one))

    def _one(self, one: Counted) -> tuple[Priced, ...]:
        time = self._restored.get((one.call, one.phase))
        if time is None:
            return self._inner.priced([one])
        return (Priced(call=one.call, phase=one.phase, count=one.count, time=time),)

    def parts(self, counted: Counted) -> tuple[Priced, ...]:
        return self._inner.parts(counted)

    def learn(self, counted: Iterable[Counted]) -> None:
        self._inner.learn(one for one in counted if (one.call, one.phase) not in self._restored)
