"""The kinds of layer that a decoder may mix, and what their parts weigh: each counts parameters of one whole layer.

`matrices` are the weights that multiply each token, `parameters` all that is trained. Nothing is divided over ranks here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mixer = Literal["full", "sliding", "linear"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerKind:
    """What sets one layer apart from another of the same model."""

    mixer: Mixer = "full"
    """Attention over all earlier tokens, over the last `window` of them, or a linear recurrence."""
    sparse: bool = False
    """The MLP is a mixture of experts."""

    @property
    def name(self) -> str:
        """The name in benchmarks and reports: full_dense, full_moe, sliding_dense, …"""
        return f"{self.mixer}_{'moe' if self.sparse else 'dense'}"


DENSE = LayerKind()


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention:
    """Multi-head latent attention of DeepSeek: queries, keys and values from projections of low rank.

    Weights are [out, in]: query down [q_rank, hidden] and up [heads · (nope + rope), q_rank], or one [heads · (nope + rope),
    hidden]; key and value down [kv_rank + rope, hidden] and up [heads · (nope + value), kv_rank]; output [hidden, heads · value].
    """

    q_rank: int
    """Width of the compressed queries; 0 where they are not compressed."""
    kv_rank: int
    """Width of the compressed keys and values."""
    nope_dim: int
    """Width of a head's queries and keys without position."""
    rope_dim: int
    """Width of a head's rotated queries, and of the one rotated key that all heads share."""
    value_dim: int
    """Width of a head's values."""

    @property
    def query_dim(self) -> int:
        """Width of a head's queries, and of its keys."""
        return self.nope_dim + self.rope_dim

    def matrices(self, hidden: int, heads: int) -> int:
        queries = heads * self.query_dim
        to_queries = self.q_rank * (hidden + queries) if self.q_rank else hidden * queries
        down = hidden * (self.kv_rank + self.rope_dim)
        up = self.kv_rank * heads * (self.nope_dim + self.value_dim)
        return to_queries + down + up + heads * self.value_dim * hidden

    def parameters(self, hidden: int, heads: int, *, bias: bool) -> int:
        """With the norms of the compressed, and with `bias` one on both down-projections and on the output's."""
        biases = (self.q_rank + self.kv_rank + self.rope_dim + hidden) * bias
        return self.matrices(hidden, heads) + self.q_rank + self.kv_rank + biases


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearAttention:
    """Gated DeltaNet: a short causal convolution of queries, keys and values, then a recurrence with a state a head.

    Weights are [out, in]: query, key, value and output gate [2 · key_width + 2 · value_width, hidden], decay and step
    [2 · value_heads, hidden], convolution [conv_width, conv], output [hidden, value_width].
    """

    key_heads: int
    """Heads of the queries, and of the keys."""
    value_heads: int
    """Heads of the values, each with a state [key_dim, value_dim]; a multiple of `key_heads`."""
    key_dim: int
    value_dim: int
    conv: int
    """Tokens that the convolution spans."""

    @property
    def key_width(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_width + self.value_width

    def matrices(self, hidden: int) -> int:
        """With the convolution, each of whose weights multiplies once a token too."""
        projections = hidden * (2 * self.key_width + 3 * self.value_width + 2 * self.value_heads)
        return projections + self.conv * self.conv_width

    def parameters(self, hidden: int) -> int:
        """With a decay rate and a step bias a head, and the scale of the norm of the outputs."""
        return self.matrices(hidden) + 2 * self.value_heads + self.value_dim


@dataclass(frozen=True, kw_only=True, slots=True)
class Experts:
    """A mixture of experts in place of the MLP: a router, `count` MLPs of which a token sees `topk`, and shared ones.

    Weights of an expert are [out, in]: up (and gate) [ffn, hidden], down [hidden, ffn]; the router is [count, hidden].
    """

    count: int
    topk: int
    """Experts that each token is sent to."""
    ffn: int
    """Inner width of one expert."""
    shared_ffn: int = 0
    """Inner width of the experts that see every token, all of them together; 0 without any."""
    gated: bool = True
    """SwiGLU-like experts of three matrices, else of two."""
    shared_gate: bool = False
    """A gate [1, hidden] weighs the shared experts' output."""
    bias: bool = False
    """Biases on the matrices of the experts."""
    router_bias: bool = False

    @property
    def into(self) -> int:
        """Matrices of an expert from the hidden width to its own."""
        return 2 if self.gated else 1

    def matrices(self, hidden: int) -> int:
        """Those that multiply one token: `topk` of the experts."""
        return (self.into + 1) * hidden * (self.topk * self.ffn + self.shared_ffn) + self._routing(hidden)

    def expert_parameters(self, hidden: int) -> int:
        """One of the routed experts."""
        return (self.into + 1) * hidden * self.ffn + (self.into * self.ffn + hidden) * self.bias

    def shared_parameters(self, hidden: int) -> int:
        """The shared experts, without their gate."""
        return (self.into + 1) * hidden * self.shared_ffn

    def router_parameters(self, hidden: int) -> int:
        """The router, and the shared experts' gate."""
        return self._routing(hidden) + self.count * self.router_bias

    def parameters(self, hidden: int) -> int:
        routed = self.count * self.expert_parameters(hidden)
        return routed + self.shared_parameters(hidden) + self.router_parameters(hidden)

    def idle_parameters(self, hidden: int) -> int:
        """Those of the routed experts that one token is not sent to."""
        return (self.count - self.topk) * self.expert_parameters(hidden)

    def _routing(self, hidden: int) -> int:
        return hidden * (self.count + self.shared_gate)
