"""A decoder model by its shape, read from a Hugging Face `config.json`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from predict.model.parts.attention import Attention
from predict.model.parts.dense import Dense
from predict.model.parts.latent_attention import LatentAttention
from predict.model.parts.linear_attention import LinearAttention
from predict.model.parts.mixture import Experts
from predict.model.parts.part import FeedForward, LayerPart, Mixer


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerKind:
    """The traits by which layers of one model differ."""

    mixer: str = "full"
    """Attention over all earlier tokens (full), over the last `window` of them (sliding), linear attention (linear), or the
    name of another mixer in `predict/model/parts`."""
    sparse: bool = False
    """The feed-forward is a mixture of experts, or whichever the model has in place of the dense MLP."""

    @property
    def name(self) -> str:
        """The name in benchmarks and reports: full_dense, full_moe, sliding_dense, …"""
        return f"{self.mixer}_{'moe' if self.sparse else 'dense'}"


DENSE = LayerKind()


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """The sizes of a model that decide its cost.

    Layers that are not full attention with a dense MLP are listed in `layer_kinds`; their shapes are `latent`, `linear`,
    `experts` and `further`. `mixer` and `feed_forward` give the matrices of each kind; embedding and head are [vocab, hidden].
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
    """Width of one attention head; of its queries and keys in latent attention."""
    ffn: int
    """Inner width of the dense MLP; unused, and 0 where the config gives none, if every layer is sparse."""
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
    layer_kinds: tuple[LayerKind, ...] = ()
    """One per layer; () means that all are full attention with a dense MLP."""
    window: int = 0
    """Keys that a query of a sliding layer sees, its own included; 0 without such layers."""
    qk_norm: bool = False
    """A norm of `head_dim` on each head's queries, and one on its keys."""
    qk_norm_all_heads: bool = False
    """These norms span all heads together, as in OLMo 2, rather than each head."""
    query_gate: bool = False
    """The query projection is twice as wide: its other half gates attention's output, as in Qwen3-Next."""
    sinks: bool = False
    """A learnt logit a head joins the softmax, as in GPT-OSS."""
    scaled_rope: bool = False
    """The rotary embedding scales what it turns, as YaRN asks for and as in GPT-OSS; fused kernels do not (Megatron-LM, rope_utils.py)."""
    norms_a_layer: int = 2
    """4 in Gemma 2 and 3, which norm the outputs of attention and MLP as well."""
    rotary_dim: int = 0
    """Width of a head that is rotated; 0 for the whole head."""
    attention_cap: bool = False
    """A tanh bounds the logits of attention, as in Gemma 2."""
    logit_cap: bool = False
    """A tanh bounds the output logits."""
    parallel_residual: bool = False
    """Attention and MLP both read the layer's input, and their outputs are added to it together."""
    mtp_layers: int = 0
    """Layers of multi-token prediction after the last; not in `parameters`."""
    latent: LatentAttention | None = None
    """Shape of attention where it is latent: that of the full layers."""
    linear: LinearAttention | None = None
    """Shape of the linear layers."""
    experts: Experts | None = None
    """Shape of the sparse layers' mixture."""
    further: tuple[LayerPart, ...] = ()
    """Shapes of the mixers, and of the feed-forward of sparse layers, that have files of their own beside those above."""

    def __post_init__(self) -> None:
        if len(self.layer_kinds) not in (0, self.layers):
            raise ValueError(
                f"{self.name}: {len(self.layer_kinds)} layer_kinds for {self.layers} layers; give one per layer"
            )
        lacking = {
            "window": any(kind.mixer == "sliding" for kind in self.layer_kinds) and not self.window,
            "linear": any(kind.mixer == "linear" for kind in self.layer_kinds) and self.linear is None,
            "experts": any(kind.sparse for kind in self.layer_kinds) and self._sparse_feed_forward is None,
        }
        if any(lacking.values()):
            named = ", ".join(field for field, lacks in lacking.items() if lacks)
            raise ValueError(f"{self.name}: layer_kinds need {named}, which is not given")

    def __hash__(self) -> int:
        """A hash of a few sizes: what is kept by model looks it up for every plan, and its further fields are long."""
        return hash((self.name, self.layers, self.hidden, self.vocab))

    def kinds(self) -> tuple[LayerKind, ...]:
        """The kind of each layer, first to last."""
        return self.layer_kinds or (DENSE,) * self.layers

    @property
    def q_width(self) -> int:
        """Output features of the query projection, its gate not counted."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Output features of the key projection, and of the value's."""
        return self.kv_heads * self.head_dim

    def mixer(self, kind: LayerKind) -> Mixer:
        """The shape of what mixes the tokens in a layer of a kind."""
        if kind.mixer in ("full", "sliding"):
            return self.latent or Attention()
        found: LayerPart | None = self.linear
        if kind.mixer != "linear":
            found = next((part for part in self.further if kind.mixer == part.NAME), None)
        if not isinstance(found, Mixer):
            raise ValueError(f"{self.name} has no {kind.mixer} layers")
        return found

    def feed_forward(self, kind: LayerKind) -> FeedForward:
        """The shape of the MLP, or of what stands in its place, in a layer of a kind."""
        if not kind.sparse:
            return Dense()
        if self._sparse_feed_forward is None:
            raise ValueError(f"{self.name} has no mixture of experts")
        return self._sparse_feed_forward

    @property
    def _sparse_feed_forward(self) -> FeedForward | None:
        return self.experts or next((part for part in self.further if isinstance(part, FeedForward)), None)

    @property
    def output_bias(self) -> bool:
        """Whether attention's output projection has a bias."""
        return self.attention_bias and not self.qkv_bias_only

    @property
    def norm_parameters(self) -> int:
        """One norm: a scale, and in LayerNorm a shift."""
        return self.hidden * (2 if self.norm == "layer" else 1)

    def layer_parameters_of(self, kind: LayerKind) -> int:
        """One whole layer of a kind: mixer, feed-forward and norms."""
        parts = (self.mixer(kind), self.feed_forward(kind))
        return sum(part.parameters(self) for part in parts) + self.norms_a_layer * self.norm_parameters

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
        """Trainable parameters of the whole model, shared ones once, without multi-token prediction."""
        layers = sum(count * self.layer_parameters_of(kind) for kind, count in Counter(self.kinds()).items())
        return self.embedding_parameters + layers + self.final_norm_parameters + self.head_parameters

    @property
    def active_parameters(self) -> int:
        """`parameters` without the routed experts that one token is not sent to."""
        kinds = Counter(self.kinds())
        return self.parameters - sum(
            count * self.feed_forward(kind).idle_parameters(self) for kind, count in kinds.items()
        )

    @property
    def mtp_kind(self) -> LayerKind:
        """A layer of multi-token prediction: full attention, and an MLP like the last layer's."""
        return LayerKind(mixer="full", sparse=self.kinds()[-1].sparse)
