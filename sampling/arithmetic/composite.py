"""Cells: several operators and their collectives timed as one, so that what lies between the parts is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase
from sampling.hardware.cluster import Cluster


@dataclass(frozen=True, kw_only=True, slots=True)
class Composite(Operator):
    """An operator whose FLOPs, bytes and roofline terms are the sums of its parts'."""

    def flops(self, phase: Phase) -> float:
        return sum(part.count * part.call.flops(part.phase) for part in self._operators(phase))

    def bytes_moved(self, phase: Phase) -> float:
        return sum(part.count * part.call.bytes_moved(part.phase) for part in self._operators(phase))

    def _operators(self, phase: Phase) -> list[_CountedOperator]:
        return [
            _CountedOperator(part.call, part.phase, part.count)
            for part in self.parts(phase)
            if isinstance(part.call, Operator)
        ]

    def terms(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return add_terms(*(scale_terms(part.call.terms(part.phase, cluster), part.count) for part in self.parts(phase)))

    def features(self, phase: Phase, cluster: Cluster) -> dict[str, float]:
        return composite_features(self, phase, cluster)


@dataclass(frozen=True, slots=True)
class _CountedOperator:
    call: Operator
    phase: Phase
    count: float


def composite_features(call: Call, phase: Phase, cluster: Cluster) -> dict[str, float]:
    """The log of each roofline term and its share: few numbers, since cells have few samples."""
    terms = call.terms(phase, cluster)
    total = sum(terms.values())
    features = {f"log2_{name}_us": math.log2(value + 1e-3) for name, value in terms.items()}
    features |= {f"share_{name}": value / total for name, value in terms.items()}
    features |= {name: float(value) for name, value in said_bools(call).items()}
    features |= {
        f"log2_{name}": math.log2(call.fields()[name])
        for name in ("batch", "seq_len", "hidden")
        if name in call.fields()
    }
    return features


def said_bools(call: Call) -> dict[str, bool]:
    """The call's yes-or-no fields. One with a default is a column of a kind where it holds, and none where it does not:
    it may be younger than what was fitted."""
    said = {name: value for name, value in call.fields().items() if isinstance(value, bool)}
    younger = {field.name for field in fields(call) if field.default is False}
    return {
        f"{name}=yes" if name in younger else name: value
        for name, value in said.items()
        if value or name not in younger
    }


def phase_of(phases: Sequence[Phase], phase: Phase) -> Phase | None:
    """The phase of a part that runs in `phase` of the whole; operators without weights have no backward halves."""
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
