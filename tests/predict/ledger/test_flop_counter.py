"""The exact count is what torch's FlopCounterMode counts on the module that transformers builds, for every family that is read."""

from __future__ import annotations

from typing import Any

import pytest

from predict.huggingface.config_json import load_model
from predict.layers.linear import CHUNK, LinearAttention
from predict.ledger import conventions
from predict.model.spec import ModelSpec
from tests.predict.huggingface.family_configs import TINY, transformers_config

SEQUENCES, LENGTH = 2, 24


def _counted(config: dict[str, Any]) -> int:
    """FLOPs of a forward, with attention and experts in torch's own products."""
    decoder = transformers_config(config)
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    decoder._attn_implementation = decoder._experts_implementation = "eager"
    torch.manual_seed(0)
    module = transformers.AutoModelForCausalLM.from_config(decoder).eval()
    ids = torch.randint(0, decoder.vocab_size, (SEQUENCES, LENGTH))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(input_ids=ids, use_cache=False)
    return counter.get_total_flops()


def _masked(spec: ModelSpec) -> int:
    """FLOPs on pairs of tokens that the mask leaves out, which products of whole matrices do all the same."""
    found = 0
    for kind in spec.kinds():
        if kind.mixer != "linear":
            reach = min(spec.window, LENGTH) if kind.mixer == "sliding" else LENGTH
            seen = sum(min(token, reach) for token in range(1, LENGTH + 1))
            found += 2 * SEQUENCES * (LENGTH**2 - seen) * spec.mixer(kind).score_width(spec)
    return found


def _solved(spec: ModelSpec) -> int:
    """FLOPs of Gated DeltaNet's triangular solve, which torch does row by row without a product."""
    linear = next((mixer for mixer in spec.mixers if isinstance(mixer, LinearAttention)), None)
    if linear is None:
        return 0
    layers = sum(kind.mixer == "linear" for kind in spec.kinds())
    padded = -(-LENGTH // CHUNK) * CHUNK
    of_layer = linear.value_heads * padded * CHUNK * (linear.key_dim + linear.value_dim)
    return SEQUENCES * layers * of_layer


@pytest.mark.parametrize("name", TINY)
def test_exact_is_what_torch_counts(name: str) -> None:
    """But for Gated DeltaNet to the digit: there torch counts the convolution's overhang too, 0.04 % of these widths."""
    config = TINY[name]
    spec = load_model(config)
    forward = conventions.exact(config, [LENGTH] * SEQUENCES) / 3
    exact = forward + _masked(spec) - _solved(spec)
    assert _counted(config) == pytest.approx(exact, rel=1e-12 if spec.attention is spec.mixers[-1] else 1e-3)
