"""PaLM's convention (Chowdhery et al., arXiv 2204.02311, appendix B): 6N FLOPs per token, and attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from predict.ledger.conventions.inputs import read_spec
from predict.model.spec import ModelSpec
from predict.run.model_flops import attention_flops_per_token


def palm(config: Mapping[str, Any], lengths: Sequence[int]) -> float:
    """6N per token plus 12·heads·head_dim·s per token and layer in a sequence of s tokens, not halved for causality.

    N is every parameter, embedding and norms too: with it PaLM 540B's 46.2 % follows from table 3 of the paper. Beyond the
    paper's dense layers, N is the active parameters of a mixture, a sliding layer counts the keys in its window, and a linear
    layer has no attention term. Raises ConfigError for a model that is not modelled.
    """
    return palm_of(read_spec(config, lengths, convention="PaLM"), lengths)


def palm_of(spec: ModelSpec, lengths: Sequence[int]) -> float:
    """`palm` by the model's shape."""
    attention = sum(length * attention_flops_per_token(spec, length) for length in lengths)
    return 6.0 * spec.active_parameters * sum(lengths) + attention
