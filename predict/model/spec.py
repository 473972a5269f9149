"""A decoder model by its shape, and what the shapes of its layers' parts answer.

The parts themselves are in `predict/layers`, one file each; `predict/huggingface` reads a model of a `config.json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from predict.model.patches import Patches
from sampling.cells.matrices import Matrix

NO_MIXER = "none"
CROSS = "cross"
"""Attention to the text beside the sequence, as `LayerKind.mixer` names it."""
VECTORS_A_PART = 3
"""Vectors by which a part is scaled, shifted and gated (Peebles and Xie, arXiv 2212.09748, section 3.2: adaLN-Zero)."""
WINDOWED = ("sliding", "chunked")
"""Mixers that see no more than `ModelSpec.window` keys."""


def chunks_of(length: int, chunk: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Number and tokens of the whole chunks of a sequence, and of what is left, each of which may be 0: tokens of a chunk see no other one.
    Training, its FLOPs and servers all count by them."""
    return (length // chunk, chunk), (1, length % chunk)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerKind:
    """The traits by which layers of one model differ."""

    mixer: str = "full"
    """Attention over all earlier tokens (full), over the last `window` of them (sliding), over those of the token's own chunk of
    `window` (chunked), linear attention (linear), the name of another mixer in `predict/layers`, or `none` for a layer that is a
    feed-forward alone."""
    sparse: bool = False
    """The feed-forward is a mixture of experts, or whichever the model has in place of the dense MLP."""
    has_feed_forward: bool = True
    """False for a layer that is a mixer alone, as in Nemotron-H."""
    wide: bool = False
    """Its products run in the dtype of the activations, whatever the run's precision."""
    gated: bool = False
    """A learnt number for each part gates what it adds to the residual stream, as in Llama 3.2 Vision."""

    @property
    def name(self) -> str:
        """The name in benchmarks and reports: full_dense, full_moe, sliding_dense, full_dense_wide, mamba, …"""
        mixer = self.mixer if self.has_mixer else ""
        feed_forward = ("moe" if self.sparse else "dense") if self.has_feed_forward else ""
        traits = ("wide" if self.wide else "", "gated" if self.gated else "")
        return "_".join(part for part in (mixer, feed_forward, *traits) if part)

    @property
    def has_mixer(self) -> bool:
        return self.mixer != NO_MIXER

    @property
    def parts(self) -> int:
        """Mixer and feed-forward, or one of them."""
        return self.has_mixer + self.has_feed_forward


DENSE = LayerKind()


class LayerShape:
    """The shape of a mixer or a feed-forward. Parameters are those of one whole layer, before anything divides them."""

    __slots__ = ()
    NAME: ClassVar[str]
    """The prefix of its sizes among a family's keys."""

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """The weights that multiply every token."""
        raise NotImplementedError

    def other_parameters(self, model: ModelSpec) -> int:
        """Parameters outside of all matrices, such as the scales of inner norms; tensor parallelism divides them."""
        return 0

    def parameters(self, model: ModelSpec) -> int:
        return sum(matrix.parameters for matrix in self.matrices(model)) + self.other_parameters(model)

    def elements_per_token(self, model: ModelSpec) -> int:
        """Elements of the matrices that multiply one token."""
        return sum(matrix.elements for matrix in self.matrices(model))


class MixerShape(LayerShape):
    """The part of a layer in which tokens of a sequence meet."""

    __slots__ = ()
    KINDS: ClassVar[tuple[str, ...]]
    """The kinds of layer that it mixes, as `LayerKind.mixer` names them."""
    TITLE: ClassVar[str] = "attention"
    """Its name in sentences."""
    IS_PLAIN: ClassVar[bool] = False
    """It is attention with grouped queries, which whole-layer modules have."""
    IS_ATTENTION: ClassVar[bool] = False
    """It mixes the full layers."""
    GROUPED_ROUTER: ClassVar[bool] = False
    """The mixtures of its models have DeepSeek's router: fp32 sigmoids, and a choice of groups first."""
    IS_RECURRENT: ClassVar[bool] = False
    """It keeps a state of its sequence rather than all keys."""
    ZERO_CENTRED_NORMS: ClassVar[bool] = False
    """The norms of its models scale by 1 + weight, as those of Qwen3-Next do."""
    LEDGER: ClassVar[str] = ""
    """The prefix of its parts in the ledger of FLOPs; empty where the ledger does not count it."""
    RECOMPUTABLE: ClassVar[tuple[str, ...]] = ()
    """Modules that it alone has and that selective recomputation may name."""

    @property
    def query_dim(self) -> int:
        """Width of a head's queries, and of its keys, where the mixer decides it; 0 where the model states it."""
        return 0

    @property
    def compressed_width(self) -> int:
        """Width of the compressed vectors that it norms inside."""
        return 0

    def score_width(self, model: ModelSpec) -> int:
        """Width, over all heads, of the scores of a query with a key and of the values they weigh; 0 without attention."""
        return 0

    def rotary_width(self, model: ModelSpec) -> int:
        """Width of a head that is rotated."""
        return model.rotary_dim or model.head_dim

    def value_dim_of(self, model: ModelSpec) -> int:
        """Width of a head's values."""
        return model.head_dim

    def recurrence_flops(self, model: ModelSpec) -> float:
        """Forward and backward FLOPs per token of a recurrence's state."""
        return 0.0

    def core_flops(self, model: ModelSpec, length: int, window: int) -> int:
        """Forward FLOPs in which a sequence's tokens meet: scores and the values they weigh, each query of at most `window` keys; 0 for
        all."""
        keys = min(length, window) if window else length
        pairs = keys * (keys + 1) // 2 + (length - keys) * keys
        if model.bidirectional:
            # a window lies half before and half after its token
            further = min(window // 2, length - 1) if window else length - 1
            pairs = length * (2 * further + 1) - further * (further + 1)
        return 2 * pairs * self.score_width(model)

    def reach(self, model: ModelSpec, kind: LayerKind) -> int:
        """Keys that a query sees at most in a layer of a kind; 0 for all."""
        return model.window if kind.mixer in WINDOWED else 0

    def attending_to(self, tokens: int) -> MixerShape:
        """The mixer beside a sequence of so many tokens, which only attention to another sequence sees."""
        return self

    @property
    def lacks_tokens(self) -> bool:
        """Whether it attends to another sequence whose length is not known."""
        return False

    def elements_beside(self, model: ModelSpec) -> int:
        """Elements of the matrices that multiply each token of the sequence beside; 0 without one."""
        return 0

    def tokens_beside(self, product: str) -> int:
        """Tokens of the sequence beside that a product multiplies; 0 for a product of the model's own tokens."""
        return 0

    def index_width(self, model: ModelSpec) -> int:
        """Width of the scores by which each query picks the keys that it sees; 0 without a choice."""
        return 0

    def repeated_share(self, model: ModelSpec, module: str) -> float:
        """Share of its projections that recomputing a module of `RECOMPUTABLE` repeats."""
        return 0.0


class NoMixer(MixerShape):
    """The mixer of a layer that is a feed-forward alone: no weights and no work."""

    __slots__ = ()
    KINDS: ClassVar[tuple[str, ...]] = (NO_MIXER,)

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        return ()


class FeedForwardShape(LayerShape):
    """The part of a layer that sees one token at a time."""

    __slots__ = ()

    def expert_matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        """The weights of one routed expert; none without experts."""
        return ()

    def routed_parameters(self, model: ModelSpec) -> int:
        """All routed experts."""
        return 0

    def idle_parameters(self, model: ModelSpec) -> int:
        """Those of the routed experts that one token is not sent to."""
        return 0

    def parameters(self, model: ModelSpec) -> int:
        return LayerShape.parameters(self, model) + self.routed_parameters(model)


class NoFeedForward(FeedForwardShape):
    """The feed-forward of a layer that is a mixer alone."""

    __slots__ = ()

    def matrices(self, model: ModelSpec) -> tuple[Matrix, ...]:
        return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Experts(FeedForwardShape):
    """The sizes of a mixture that plans, searches and reports read: `count` MLPs, `topk` of which a token visits, and shared ones that see
    every token. `predict/layers/mixture.py` has the mixture itself."""

    count: int
    """Experts; a token is sent to `topk` of them."""
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
    clamped: bool = False
    """The activation's inputs are clamped first (`swiglu_limit` of GPT-OSS)."""
    groups: int = 1
    """Groups of experts in order; the router first chooses some of them (`n_group` of DeepSeek's config.json)."""
    topk_groups: int = 1
    """Groups that each token's experts come from (`topk_group`)."""
    latent: int = 0
    """Width to which a token is compressed on its way to its experts, as in Nemotron 3 Super; 0 where they see it whole."""

    def width_of(self, model: ModelSpec) -> int:
        """Width of what routed experts read and write."""
        return self.latent or model.hidden

    @property
    def into(self) -> int:
        """Matrices of an expert from the hidden width to its own."""
        return 2 if self.gated else 1

    def sliced_ffn(self, slices: int) -> int:
        """Inner width of the part of an expert that one of so many GPUs holds."""
        return max(1, self.ffn // slices)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """The sizes of a model that decide its cost.

    Layers that are not full attention with a dense MLP are listed in `layer_kinds`; `mixer` and `feed_forward` give the parts of
    each kind, with their matrices; embedding and head are [vocab, hidden].
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
    """Width of a head's queries, and of its keys; of its values too, unless the mixer says otherwise."""
    ffn: int
    """Inner width of the dense MLP; unused, and 0 where the config gives none, if every layer is sparse."""
    vocab: int
    """Rows of the embedding and of the output head; never padded here."""
    gated: bool
    """SwiGLU-like MLP of three matrices, else GELU-like of two."""
    norm: str
    """rms or layer."""
    rope: bool
    """Rotary position embedding; False means learnt positions added to the embedding, unless `no_positions`."""
    no_positions: bool = False
    """Neither: the order of tokens comes from recurrences alone, as in Nemotron-H."""
    attention_bias: bool
    """Bias on the query, key and value projections, and on the output's unless `qkv_bias_only`."""
    key_bias: bool = True
    """The key projection has a bias where the query's has; Whisper's has not."""
    qkv_bias_only: bool = False
    """The output projection has no bias although query, key and value do, as in Qwen2."""
    mlp_bias: bool
    """Bias on every matrix of the MLP."""
    relu: bool = False
    """The MLP's activation is ReLU, whose backward needs its result alone."""
    tied: bool
    """Output head shares the embedding's weight."""
    max_positions: int
    """Rows of the learnt position table; unused with rope."""
    layer_kinds: tuple[LayerKind, ...] = ()
    """One per layer; () means that all are full attention with a dense MLP."""
    window: int = 0
    """Keys that a query of a sliding layer sees, its own included, or tokens of a chunk; 0 without such layers."""
    qk_norm: bool = False
    """A norm of `head_dim` on each head's queries, and one on its keys."""
    qk_norm_all_heads: bool = False
    """These norms span all heads together, as in OLMo 2, rather than each head."""
    scales_in_fp32: bool = False
    """The weights of norms multiply before the result is rounded to 16 bits, as in OLMo 2 and Nemotron-H."""
    query_gate: bool = False
    """The query projection is twice as wide: its other half gates attention's output, as in Qwen3-Next."""
    sinks: bool = False
    """A learnt logit a head joins the softmax, as in GPT-OSS."""
    scaled_rope: bool = False
    """The rotary embedding scales what it turns, as YaRN asks for and as in GPT-OSS; fused kernels do not (Megatron-LM, rope_utils.py)."""
    norms_a_layer: int = 2
    """4 in Gemma 2 and 3, which norm the outputs of attention and MLP as well."""
    relative_buckets: int = 0
    """Rows of a table of a number for each head, which attention adds to its scores by the distance of query and key, as in T5."""
    rotary_dim: int = 0
    """Width of a head that is rotated; 0 for the whole head."""
    attention_cap: bool = False
    """A tanh bounds the logits of attention, as in Gemma 2."""
    logit_cap: bool = False
    """A tanh bounds the output logits."""
    parallel_residual: bool = False
    """Attention and MLP both read the layer's input, and their outputs are added to it together."""
    bidirectional: bool = False
    """An encoder: each token sees later ones too, and the loss is that of masked tokens."""
    token_types: int = 0
    """Rows of a table of token types, as BERT adds to the embedding."""
    further_rows: int = 0
    """Rows of the embedding that the head has not: those of tokens that stand for images in Llama 3.2 Vision."""
    embedding_norm: bool = False
    """A norm follows the embedding."""
    final_norm: bool = True
    """A norm precedes the head; BERT's layers end with one each instead."""
    norm_shift: bool = True
    """LayerNorm adds a shift to its scale."""
    head_transform: bool = False
    """A product [hidden, hidden] with its activation and a norm precede the output matrix, whose logits have a bias each, as in BERT."""
    mtp_layers: int = 0
    """Layers of multi-token prediction after the last; not in `parameters`."""
    mixers: tuple[MixerShape, ...]
    """Shapes of what mixes the tokens; full attention's is first."""
    mlp: FeedForwardShape
    """Shape of the feed-forward of layers that are not sparse."""
    experts: Experts | None = None
    """Shape of the sparse layers' mixture."""
    sparse: FeedForwardShape | None = None
    """Shape of the sparse layers' feed-forward where that is not a mixture of experts."""
    layer_scale: bool = False
    """A learnt factor for each channel scales what attention and MLP add to the residual stream, as in InternVL's tower."""
    norm_scale: bool = True
    """Norms of the residual stream have weights; those of diffusion transformers have none."""
    modulation: str = ""
    """Each part of a layer is scaled, shifted and gated by vectors that a product of the sample's condition makes in each layer (product,
    as in DiT), or that are a table of the layer's own plus one product for all layers (table, as in Wan); empty for none."""
    queries_by_head: bool = False
    """Queries are laid out head by head before attention, whose output is copied to be projected, as in Whisper."""
    modulates_in_fp32: bool = False
    """Norms of the residual stream, scales, shifts and gates are computed in fp32 whatever the run's dtype, as in Wan."""
    streams: int = 1
    """Streams of tokens, of an image and of a text, each with weights of its own in layers of attention and MLP, as in Flux; all of them
    attend to one another."""
    joint_qkv: bool = False
    """Query, key and value are one product in every framework, whose result the values keep as a whole."""
    patches: Patches | None = None
    """What it reads and writes in place of a vocabulary, where it is a vision tower."""
    tower: ModelSpec | None = None
    """The vision tower whose output takes the place of some of its tokens, or the encoder whose output its layers attend to; not in
    `parameters`."""

    def __post_init__(self) -> None:
        if len(self.layer_kinds) not in (0, self.layers):
            raise ValueError(
                f"{self.name}: {len(self.layer_kinds)} layer_kinds for {self.layers} layers; give one per layer"
            )
        mixed = {NO_MIXER, *(name for mixer in self.mixers for name in mixer.KINDS)}
        lacking = {
            "window": any(kind.mixer in WINDOWED for kind in self.layer_kinds) and not self.window,
            **{kind.mixer: kind.mixer not in mixed for kind in self.layer_kinds},
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

    def kind_counts(self) -> Mapping[LayerKind, int]:
        """The number of layers of each kind, in the order of the first of each."""
        return _kind_counts(self)

    def with_wide_ends(self, first: int, last: int) -> ModelSpec:
        """The model whose first and last layers are wide."""
        if not (first or last):
            return self
        kinds = (
            replace(kind, wide=place < first or place >= self.layers - last) for place, kind in enumerate(self.kinds())
        )
        return replace(self, layer_kinds=tuple(kinds))

    def attending_to(self, tokens: int) -> ModelSpec:
        """The model whose attention to another sequence sees so many tokens."""
        return replace(self, mixers=tuple(mixer.attending_to(tokens) for mixer in self.mixers))

    @property
    def encoder(self) -> Patches | None:
        """The encoder's input and output, to which layers attend; None without one."""
        patches = self.tower.patches if self.tower else None
        return patches if patches and patches.attended else None

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether its encoder reads a sequence beside each of its own, rather than images."""
        return self.encoder is not None and self.encoder.of_sequences

    def scales_branches(self, kind: LayerKind) -> bool:
        """Whether learnt factors scale what the parts of a layer of a kind add to the residual stream."""
        return self.layer_scale or kind.gated

    @property
    def learns_positions(self) -> bool:
        """Whether a table of positions is added to the embedding."""
        return not (self.rope or self.no_positions)

    @property
    def q_width(self) -> int:
        """Output features of the query projection, its gate not counted."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Output features of the key projection, and of the value's."""
        return self.kv_heads * self.head_dim

    @property
    def attention(self) -> MixerShape:
        """The shape of the full layers' attention."""
        return self.mixers[0]

    def mixer(self, kind: LayerKind) -> MixerShape:
        """The shape of what mixes the tokens in a layer of a kind."""
        if not kind.has_mixer:
            return _NO_MIXER
        return next(mixer for mixer in self.mixers if kind.mixer in mixer.KINDS)

    def feed_forward(self, kind: LayerKind) -> FeedForwardShape:
        """The shape of the MLP, or of what stands in its place, in a layer of a kind."""
        if not kind.has_feed_forward:
            return _NO_FEED_FORWARD
        if not kind.sparse:
            return self.mlp
        if self._sparse_feed_forward is None:
            raise ValueError(f"{self.name} has no mixture of experts")
        return self._sparse_feed_forward

    @property
    def _sparse_feed_forward(self) -> FeedForwardShape | None:
        return self.experts or self.sparse

    @property
    def output_bias(self) -> bool:
        """Whether attention's output projection has a bias."""
        return self.attention_bias and not self.qkv_bias_only

    @property
    def norm_parameters(self) -> int:
        """One norm: a scale, and in LayerNorm a shift."""
        return self.hidden * (self.norm_scale + (self.norm == "layer" and self.norm_shift))

    def layer_parameters_of(self, kind: LayerKind) -> int:
        """One whole layer of a kind: mixer, feed-forward and norms."""
        parts = (self.mixer(kind), self.feed_forward(kind))
        return self.streams_of(kind) * sum(part.parameters(self) for part in parts) + self.beside_parts_of(kind)

    def beside_parts_of(self, kind: LayerKind) -> int:
        """Norms of the residual stream in a layer of a kind, the factors of what joins it, and what makes those that modulate it."""
        factors = kind.parts * (self.layer_scale * self.hidden + kind.gated)
        made_of = self.hidden + 1 if self.modulation == "product" else 1
        vectors = VECTORS_A_PART * self.modulated_parts(kind) * self.streams_of(kind) * self.hidden
        return self.norms_of(kind) * self.norm_parameters + factors + vectors * made_of

    def modulated_parts(self, kind: LayerKind) -> int:
        """Parts of a layer that the sample's condition modulates; attention to the text is none."""
        return kind.parts - (kind.mixer == CROSS) if self.modulation else 0

    def streams_of(self, kind: LayerKind) -> int:
        """Streams of tokens with weights of their own in a layer of a kind."""
        return self.streams if kind.parts > 1 else 1

    def norms_of(self, kind: LayerKind) -> int:
        """Norms of the residual stream in a layer of a kind."""
        return self.norms_a_layer * kind.parts // 2

    @property
    def embedding_parameters(self) -> int:
        """Token embedding, and the positions where the model learns any; of a tower the product over pixels."""
        beside = self.embedding_norm * self.norm_parameters + self.relative_buckets * self.heads
        if self.patches:
            return self.patches.input_parameters(self.hidden) + beside
        positions = self.max_positions if self.learns_positions else 0
        return (self.vocab + self.further_rows + positions + self.token_types) * self.hidden + beside

    @property
    def rows_looked_up(self) -> int:
        """Rows of the table that embeds its tokens; 0 where pixels are multiplied instead."""
        return self.patches.table if self.patches else self.vocab + self.further_rows

    @property
    def final_norm_parameters(self) -> int:
        """The norm before the output head, and of an encoder what else there is before its logits."""
        norm = self.final_norm * self.norm_parameters
        if not self.head_transform:
            return norm
        return norm + self.hidden * (self.hidden + self.mlp_bias) + self.norm_parameters + self.vocab

    @property
    def head_parameters(self) -> int:
        """The output head's own matrix; 0 where it shares the embedding's. Of a tower the projectors."""
        if self.patches:
            return self.patches.output_parameters
        return 0 if self.tied else self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """Trainable parameters of the model, shared ones once, without multi-token prediction and a vision tower."""
        layers = sum(count * self.layer_parameters_of(kind) for kind, count in self.kind_counts().items())
        return self.embedding_parameters + layers + self.final_norm_parameters + self.head_parameters

    @property
    def parameters_with_tower(self) -> int:
        """`parameters`, and those of the vision tower and its projectors, or of the encoder."""
        return self.parameters + (self.tower.parameters if self.tower else 0)

    @property
    def active_parameters(self) -> int:
        """`parameters` without the routed experts that one token is not sent to."""
        kinds = self.kind_counts()
        return self.parameters - sum(
            count * self.feed_forward(kind).idle_parameters(self) for kind, count in kinds.items()
        )

    @property
    def mtp_kind(self) -> LayerKind:
        """A layer of multi-token prediction: full attention, and an MLP like the last layer's."""
        return LayerKind(mixer="full", sparse=self.kinds()[-1].sparse)


_NO_MIXER, _NO_FEED_FORWARD = NoMixer(), NoFeedForward()


@lru_cache(maxsize=256)
def _kind_counts(model: ModelSpec) -> Mapping[LayerKind, int]:
    return Counter(model.kinds())
