"""Operators made of parts, whose arithmetic is the sum of theirs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase
from sampling.hardware.cluster import Cluster


@dataclass(frozen=True, kw_only=True, slots=True)
class Composite(Operator):
    """An operator whose FLOPs, bytes and roofline terms are the sums of those of its parts."""

    def flops(self, phase: Phase) -> float:
        return self._sum_of_operators(phase, lambda operator, own: operator.flops(own))

    def bytes_moved(self, phase: Phase) -> float:
        return self._sum_of_operators(phase, lambda operator, own: operator.bytes_moved(own))

    def _sum_of_operators(self, phase: Phase, quantity: Callable[[Operator, Phase], float]) -> float:
        return sum(
            part.count * quantity(part.call, part.phase)
            for part in self.parts(phase)
            if isinstance(part.call, Operator)
        )

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return add_terms(*(scale_terms(part.call.terms(part.phase, cluster), part.count) for part in self.parts(phase)))

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return composite_features(self, phase, cluster)


def composite_features(call: Call, phase: Phase, cluster: Cluster) -> dict[str, float]:
    """The logarithm and the share of each roofline term: few columns, since cells have few samples."""
    terms = call.terms(phase, cluster)
    total = sum(terms.values())
    features = {f"log2_{name}_us": math.log2(value + 1e-3) for name, value in terms.items()}
    features |= {f"share_{name}": value / total for name, value in terms.items()}
    features |= {name: float(value) for name, value in _flags(call).items()}
    features |= {
        f"log2_{name}": math.log2(call.fields()[name])
        for name in ("batch", "seq_len", "hidden")
        if name in call.fields()
    }
    return features


def _flags(call: Call) -> dict[str, bool]:
    """The yes-or-no fields. One that is False by default is a column only where it is True, as if it were a kind of call:
    the field may be younger than the fitted model."""
    flags = {}
    for field in fields(call):
        value = getattr(call, field.name)
        if isinstance(value, bool) and field.default is not False:
            flags[field.name] = value
        elif value is True:
            flags[f"{field.name}=yes"] = value
    return flags


def phase_of(phases: Sequence[Phase], phase: Phase) -> Phase | None:
    """The phase of a part with these phases that runs in `phase` of the whole; None if none does.

    The backward of a part without weights counts as backward-input.
    """
    if phase in phases:
        return phase
    if phase == "backward_accumulate" or (phase == "backward_input" and "backward_weight" not in phases):
        return "backward" if "backward" in phases else None
    return None


def add_terms(*many: Mapping[str, float]) -> dict[str, float]:
    """Sum of several term dictionaries, key by key."""
    total: dict[str, float] = {}
    for terms in many:
        for name, value in terms.items():
            total[name] = total.get(name, 0.0) + value
    return total


def scale_terms(terms: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: value * factor for name, value in terms.items()}
