"""Exact count of the FLOPs that a model requires, and with recomputation those that the hardware does (HFU).

Counted are the products of `predict.ledger.conventions.parts`. Backward is twice forward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from predict.ledger.conventions.inputs import read_spec
from predict.ledger.conventions.parts import CORES, ENDS, Sequences, forward_parts, sequences_of
from predict.model.spec import ModelSpec
from sampling.files.faults import Fault, config_error, did_you_mean, shown

RECOMPUTED = ("none", "selective", "full")


def exact(config: Mapping[str, Any], lengths: Sequence[int], *, mtp: bool = False) -> float:
    """FLOPs required, each token attending to itself and to the earlier tokens it may see.

    `mtp` adds the layers of multi-token prediction, each with its joining projection and another pass of the head; whether a
    run trains them, its config.json does not say. Raises ConfigError for a model that is not modelled.
    """
    spec = read_spec(config, lengths, convention="exact")
    return exact_of(spec, sequences_of(lengths), mtp=mtp)


def exact_of(spec: ModelSpec, sequences: Sequences, *, mtp: bool) -> float:
    """`exact` by the model's shape."""
    return 3.0 * sum(part.forward for part in forward_parts(spec, sequences, mtp=mtp))


def hfu(config: Mapping[str, Any], lengths: Sequence[int], *, recompute: str = "none", mtp: bool = False) -> float:
    """`exact` plus the forward work that recomputation repeats: of every layer (`full`), or of attention's core (`selective`,
    Korthikanti et al., arXiv 2205.05198). The head is never repeated, nor are the scores that a flash-attention kernel rebuilds in
    its backward. Raises ConfigError for any other `recompute`, and as `exact` does.
    """
    if recompute not in RECOMPUTED:
        known = f"is not one of {', '.join(RECOMPUTED)}{did_you_mean(recompute, RECOMPUTED)}"
        raise config_error([Fault(path="recompute", problem=f"{shown(recompute)} {known}")], {"": "plan"})
    spec, sequences = read_spec(config, lengths, convention="HFU"), sequences_of(lengths)
    required = exact_of(spec, sequences, mtp=mtp)
    if recompute == "none":
        return required
    layers = forward_parts(spec, sequences, mtp=False)
    if mtp:
        layers += forward_parts(_further_layers(spec), sequences, mtp=False)
    return required + sum(
        part.forward for part in layers if (part.part not in ENDS if recompute == "full" else part.part in CORES)
    )


def _further_layers(spec: ModelSpec) -> ModelSpec:
    """A model of the layers of multi-token prediction alone."""
    return replace(spec, layers=spec.mtp_layers, layer_kinds=(spec.mtp_kind,) * spec.mtp_layers)
