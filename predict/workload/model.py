"""A dense decoder model by its shape, read from a Hugging Face `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """What of a model decides its cost. Every projection's shape follows from these fields.

    Linear weights are [out, in]: query [q_width, hidden], key and value [kv_width, hidden], output [hidden, q_width],
    up (and gate) [ffn, hidden], down [hidden, ffn], embedding and head [vocab, hidden].
    """

    name: str
    layers: int
    """Transformer layers."""
    hidden: int
    """Width of the residual stream."""
    heads: int
    """Query heads of attention."""
    kv_heads: int
    """Key and value heads; fewer than `heads` with grouped queries."""
    head_dim: int
    """Width of one attention head."""
    ffn: int
    """Inner width of the MLP."""
    vocab: int
    """Rows of the embedding and of the output head; never padded here."""
    gated: bool
    """SwiGLU-like MLP of three matrices, else GELU-like of two."""
    norm: str
    """rms or layer."""
    rope: bool
    """Rotary position embedding; False means learnt positions added to the embedding."""
    attention_bias: bool
    """Bias on the query, key and value projections, and on the output's unless `qkv_bias_only`."""
    qkv_bias_only: bool = False
    """The output projection has no bias although query, key and value do, as in Qwen2."""
    mlp_bias: bool
    """Bias on every matrix of the MLP."""
    tied: bool
    """Output head shares the embedding's weight."""
    max_positions: int
    """Rows of the learnt position table; unused with rope."""

    @classmethod
    def from_hf_config(cls, source: Path | str | Mapping[str, Any]) -> ModelSpec:
        """Read a `config.json`, or its keys as a mapping.

        Raises ConfigError, listing every fault, for a file or value that is wrong or an architecture not modelled yet.
        """
        from predict.workload.huggingface import load_model

        return load_model(source)

    @property
    def q_width(self) -> int:
        """Output features of the query projection."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Output features of the key projection, and of the value's."""
        return self.kv_heads * self.head_dim

    @property
    def output_bias(self) -> bool:
        """Whether attention's output projection has a bias."""
        return self.attention_bias and not self.qkv_bias_only

    @property
    def norm_parameters(self) -> int:
        """One norm: a scale, and in LayerNorm a shift."""
        return self.hidden * (2 if self.norm == "layer" else 1)

    @property
    def attention_parameters(self) -> int:
        """The four projections of one layer, with their biases."""
        weights = self.hidden * (2 * self.q_width + 2 * self.kv_width)
        qkv_bias = (self.q_width + 2 * self.kv_width) * self.attention_bias
        return weights + qkv_bias + self.hidden * self.output_bias

    @property
    def mlp_parameters(self) -> int:
        """The two or three matrices of one layer's MLP, with their biases."""
        into_ffn = 2 if self.gated else 1
        weights = (into_ffn + 1) * self.hidden * self.ffn
        return weights + (into_ffn * self.ffn + self.hidden) * self.mlp_bias

    @property
    def layer_parameters(self) -> int:
        """One whole layer: attention, MLP and two norms."""
        return self.attention_parameters + self.mlp_parameters + 2 * self.norm_parameters

    @property
    def embedding_parameters(self) -> int:
        """Token embedding and, without rope, the learnt positions."""
        positions = 0 if self.rope else self.max_positions
        return (self.vocab + positions) * self.hidden

    @property
    def final_norm_parameters(self) -> int:
        """The norm before the output head."""
        return self.norm_parameters

    @property
    def head_parameters(self) -> int:
        """The output head's own matrix; 0 where it shares the embedding's."""
        return 0 if self.tied else self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """Trainable parameters of the whole model, shared ones once."""
        layers = self.layers * self.layer_parameters
        return self.embedding_parameters + layers + self.final_norm_parameters + self.head_parameters
