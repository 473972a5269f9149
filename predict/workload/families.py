"""The architectures that a Hugging Face `config.json` may describe, by `model_type`: which key says what.

Names and defaults are those of the `transformers` configuration classes. Dropout is taken as 0, as pre-training sets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from predict.keys import LARGEST, Key, Scalar

GATED_ACTIVATIONS = ("silu", "swish")
PLAIN_ACTIVATIONS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")
OTHER_ACTIVATIONS = ("relu", "relu2", "gelu_10", "quick_gelu", "mish", "laplace", "tanh", "sigmoid")


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One `model_type`: the keys that set a field of ModelSpec, the fields that the architecture settles itself."""

    keys: Mapping[str, Key]
    """Field of ModelSpec (or `activation`) → the key that sets it."""
    fixed: Mapping[str, Scalar]
    """Fields that no key sets."""
    assumed: Mapping[str, Any] = field(default_factory=dict)
    """What `transformers` assumes for a key that decides whether a config can be modelled."""

    def names(self) -> list[str]:
        return [key.name for key in self.keys.values()]


def _size(name: str, *, required: bool = True, nullable: bool = False, maximum: int = LARGEST) -> Key:
    return Key(name=name, kind="integer", required=required, nullable=nullable, maximum=maximum)


def _switch(name: str, default: bool) -> Key:
    return Key(name=name, kind="boolean", default=default)


def _activation(name: str, allowed: tuple[str, ...], default: str) -> Key:
    others = (*GATED_ACTIVATIONS, *PLAIN_ACTIVATIONS, *OTHER_ACTIVATIONS)
    unmodelled = tuple(other for other in others if other not in allowed)
    return Key(name=name, kind="string", default=default, choices=lambda: allowed, unmodelled=unmodelled)


SIZES: Mapping[str, Key] = {
    "layers": _size("num_hidden_layers"),
    "hidden": _size("hidden_size"),
    "heads": _size("num_attention_heads"),
    "ffn": _size("intermediate_size"),
    "vocab": _size("vocab_size"),
    "max_positions": _size("max_position_embeddings", required=False),
}
LLAMA_LIKE: Mapping[str, Key] = {
    **SIZES,
    "kv_heads": _size("num_key_value_heads", nullable=True),
    "head_dim": _size("head_dim", required=False, nullable=True),
    "activation": _activation("hidden_act", GATED_ACTIVATIONS, "silu"),
    "tied": _switch("tie_word_embeddings", False),
}
LLAMA_BLOCK: Mapping[str, Scalar] = {"gated": True, "norm": "rms", "rope": True}
PLAIN_BLOCK: Mapping[str, Scalar] = {"gated": False, "norm": "layer", "mlp_bias": True}

FAMILIES: Mapping[str, Family] = {
    "llama": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": _size("num_key_value_heads", required=False, nullable=True),
            "attention_bias": _switch("attention_bias", False),
            "mlp_bias": _switch("mlp_bias", False),
        },
        fixed=LLAMA_BLOCK,
    ),
    "mistral": Family(
        keys=LLAMA_LIKE,
        fixed={**LLAMA_BLOCK, "attention_bias": False, "mlp_bias": False},
        assumed={"sliding_window": 4096},
    ),
    "qwen2": Family(
        keys=LLAMA_LIKE,
        fixed={**LLAMA_BLOCK, "attention_bias": True, "qkv_bias_only": True, "mlp_bias": False},
    ),
    "gpt2": Family(
        keys={
            "layers": _size("n_layer"),
            "hidden": _size("n_embd"),
            "heads": _size("n_head"),
            "ffn": _size("n_inner", required=False, nullable=True),
            "vocab": _size("vocab_size"),
            "max_positions": _size("n_positions"),
            "activation": _activation("activation_function", PLAIN_ACTIVATIONS, "gelu_new"),
            "tied": _switch("tie_word_embeddings", True),
        },
        fixed={**PLAIN_BLOCK, "rope": False, "attention_bias": True},
    ),
    "gpt_neox": Family(
        keys={
            **SIZES,
            "activation": _activation("hidden_act", PLAIN_ACTIVATIONS, "gelu"),
            "attention_bias": _switch("attention_bias", True),
            "tied": _switch("tie_word_embeddings", False),
        },
        fixed={**PLAIN_BLOCK, "rope": True},
        assumed={"use_parallel_residual": True, "rotary_pct": 0.25},
    ),
}

OTHER_NAMES: Mapping[str, str] = {
    "num_hidden_layers": "layers",
    "num_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "num_query_groups": "kv_heads",
    "kv_channels": "head_dim",
    "intermediate_size": "ffn",
    "ffn_hidden_size": "ffn",
    "max_position_embeddings": "max_positions",
    "hidden_act": "activation",
}
"""Names that stand for a family's own: those that `transformers` maps (`attribute_map`), and Megatron's."""
