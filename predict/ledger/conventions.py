"""Model FLOPs of forward and backward by convention: the same run has a different MFU in each, so a figure names its own.

Every function takes the keys of a Hugging Face `config.json` and the lengths of a batch's sequences, and returns the FLOPs of one
forward and backward pass over that batch. A model that a convention does not know is a ConfigError, never 0.

| function | attention | embedding look-up | recurrence | recomputation |
|---|---|---|---|---|
| `palm` | every pair of tokens, the later ones too | counted | left out | left out |
| `megatron` | half of the pairs | left out | counted | left out |
| `verl` | half of the pairs | counted | counted | left out |
| `exact` | each token with itself and the earlier ones | left out | counted | left out |
| `hfu` | as `exact` | left out | counted | counted |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from predict.huggingface.config_json import load_model
from predict.layers.linear import LinearAttention
from predict.layers.mamba import SCAN_FLOPS, Mamba
from predict.layers.mixture import Mixture
from predict.model.spec import VECTORS_A_PART, LayerKind, MixerShape, ModelSpec, chunks_of
from predict.run.model_flops import attention_flops_per_token
from sampling.cells.matrices import Matrix
from sampling.files.faults import Fault, config_error, did_you_mean, join, shown

# Model and batch as every convention takes them, checked.


def require_lengths(lengths: Sequence[int], *, name: str = "lengths") -> None:
    """ConfigError, with every fault, unless each sequence has one token or more."""
    faults = [
        Fault(
            path=f"{name}[{place}]",
            problem=f"{shown(length)} is not a number of tokens; give an integer from 1 to {MOST}",
        )
        for place, length in enumerate(lengths)
        if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= MOST
    ]
    if faults:
        raise config_error(faults, {"": "batch"})


def require_batch(lengths: Sequence[int]) -> None:
    """`require_lengths`, and ConfigError for a batch without a sequence."""
    if not lengths:
        raise config_error([Fault(path="lengths", problem="empty; give one length per sequence")], {"": "batch"})
    require_lengths(lengths)


def read_spec(config: Mapping[str, Any], lengths: Sequence[int], *, convention: str) -> ModelSpec:
    """The model's shape, for a convention that counts full, sliding and linear layers. Raises ConfigError for an unsound batch,
    wherever `load_model` does, and as `require_counted` and `without_encoder` do."""
    require_batch(lengths)
    spec = without_encoder(load_model(config), convention)
    require_counted(spec, convention)
    return spec


def without_encoder(spec: ModelSpec, convention: str) -> ModelSpec:
    """The model, for a convention that takes the lengths of one kind of sequences; ConfigError for an encoder–decoder, which has two."""
    if spec.is_encoder_decoder:
        problem = f"{shown(spec.name)} has an encoder, whose sequences the {convention} convention does not count"
        raise config_error([Fault(path="model_type", problem=problem)], {"": "model"})
    return spec


def require_counted(spec: ModelSpec, convention: str) -> None:
    """ConfigError for a model with mixers that no part of the ledger counts."""
    kinds = [kind for kind in spec.kinds() if kind.has_mixer]
    others = sorted({kind.mixer for kind in kinds if spec.mixer(kind).LEDGER not in OF_MIXERS})
    if others:
        problem = f"{shown(spec.name)} has {', '.join(others)} layers, which the {convention} convention does not count"
        raise config_error([Fault(path="model_type", problem=problem)], {"": "model"})


MOST = 2**40
"""Largest size that is read; far above any model's, and small enough that no count overflows."""


class ConfigKeys:
    """The keys of one section. A missing or unsound key adds a fault and reads as 1, so that one pass finds them all."""

    def __init__(self, values: Mapping[str, Any], *, section: str = "", faults: list[Fault] | None = None) -> None:
        self.values = values
        self.faults: list[Fault] = [] if faults is None else faults
        self._section = section

    def size(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """An integer from `least` to MOST; a key that is absent or null has the default, and without one is a fault."""
        value = self.values.get(key)
        value = default if value is None else value
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST:
            return value
        self._fault(
            key, "missing; add it" if value is None else f"{shown(value)} is not an integer from {least} to {MOST}"
        )
        return 1

    def layer_types(self) -> list[str]:
        """The kind of every layer; [] where the key is absent, null or empty."""
        value = self.values.get("layer_types") or []
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return value
        self._fault("layer_types", f"{shown(value)} is not a list of names; give one per layer")
        return []

    def entries(self, key: str) -> int:
        """Entries of a list; 0 where the key is absent or null."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            self._fault(key, f"{shown(value)} is not a list")
        return len(value) if isinstance(value, list) else 0

    def section(self, key: str) -> ConfigKeys:
        """The keys inside a section; a fault, and no keys, where it is missing."""
        value = self.values.get(key)
        if not isinstance(value, Mapping):
            self._fault(key, "missing; add the section" if value is None else f"{shown(value)} is not a mapping")
            return ConfigKeys({}, section=key)
        return ConfigKeys(value, section=join(self._section, key), faults=self.faults)

    def require_sound(self) -> None:
        """ConfigError with every fault, if there is one."""
        if self.faults:
            raise config_error(self.faults, {"": "model"})

    def _fault(self, key: str, problem: str) -> None:
        self.faults.append(Fault(path=join(self._section, key), problem=problem))


# Parts of a model's forward pass, and the FLOPs of the products in each: what `exact` and the compute book add up.
#
# Counted are all products: projections, router, experts that a token is sent to, convolution, chunks of Gated DeltaNet, the head.
# Left out are norms, activations, softmax, loss and the embedding look-up, which are not products.

Part = Literal[
    "embedding",
    "attention_projections",
    "attention_core",
    "gated_deltanet_projections",
    "gated_deltanet_core",
    "mamba_projections",
    "mamba_core",
    "short_conv_projections",
    "short_conv_core",
    "cross_attention_projections",
    "cross_attention_core",
    "modulation",
    "dense_feed_forward",
    "router",
    "expert_feed_forward",
    "shared_expert",
    "mtp",
    "head_and_loss",
    "vision_tower",
    "vision_projector",
    "encoder",
]
OF_MIXERS: Mapping[str, tuple[Part, Part]] = {
    "attention": ("attention_projections", "attention_core"),
    "gated_deltanet": ("gated_deltanet_projections", "gated_deltanet_core"),
    "mamba": ("mamba_projections", "mamba_core"),
    "short_conv": ("short_conv_projections", "short_conv_core"),
    "cross_attention": ("cross_attention_projections", "cross_attention_core"),
}
"""Prefix of a mixer's parts → its projections, and the work in which tokens meet."""
CORES: tuple[Part, ...] = tuple(core for _, core in OF_MIXERS.values())
ENDS: tuple[Part, ...] = ("embedding", "head_and_loss")
Sequences = Mapping[int, int]
"""Length of a sequence → how many there are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartFlops:
    """FLOPs of one part's forward, over all sequences of a batch and all layers of a kind."""

    part: Part
    layer: str
    """Name of the kind of layer; empty outside of layers."""
    layers: int
    """Layers of that kind; 1 outside of layers."""
    forward: int


def sequences_of(lengths: Sequence[int]) -> Sequences:
    return Counter(lengths)


def in_chunks(sequences: Sequences, chunk: int) -> Sequences:
    """The chunks of sequences, whose tokens see no other one."""
    found: Counter[int] = Counter()
    for length, count in sequences.items():
        for many, tokens in chunks_of(length, chunk):
            found[tokens] += many * count
    return {length: count for length, count in found.items() if length and count}


def forward_parts(spec: ModelSpec, sequences: Sequences, *, mtp: bool) -> tuple[PartFlops, ...]:
    """All parts of one forward pass, in the order in which they run; `mtp` adds the layers of multi-token prediction. Of a vision tower the
    product over pixels is the embedding, and the projectors are the head."""
    tokens = sum(length * count for length, count in sequences.items())
    head = 2 * tokens * (spec.vocab + spec.head_transform * spec.hidden) * spec.hidden
    pixels = 0
    if spec.patches:
        merged = sum(spec.patches.tokens_of(length) * count for length, count in sequences.items())
        patches = sum(spec.patches.with_pixels(length) * count for length, count in sequences.items())
        pixels = 2 * patches * spec.patches.pixels * spec.hidden
        pixels += 2 * sum(spec.patches.stem_elements(length) * count for length, count in sequences.items())
        if spec.patches.conditioning:
            pixels += 2 * sum(sequences.values()) * spec.patches.conditioning.elements
        head = 2 * merged * spec.patches.output_elements
    found = [PartFlops(part="embedding", layer="", layers=1, forward=pixels)]
    for kind, layers in spec.kind_counts().items():
        found += [
            PartFlops(part=part, layer=kind.name, layers=layers, forward=layers * flops)
            for part, flops in _layer_parts(spec, kind, sequences)
        ]
    if mtp and spec.mtp_layers:
        # a layer, a head, and the projection [hidden, 2·hidden] that joins the next token's embedding
        layer = sum(flops for _, flops in _layer_parts(spec, spec.mtp_kind, sequences))
        further = spec.mtp_layers * (layer + head + 2 * tokens * 2 * spec.hidden**2)
        found.append(PartFlops(part="mtp", layer=spec.mtp_kind.name, layers=spec.mtp_layers, forward=further))
    return (*found, PartFlops(part="head_and_loss", layer="", layers=1, forward=head))


def _layer_parts(spec: ModelSpec, kind: LayerKind, sequences: Sequences) -> Iterator[tuple[Part, int]]:
    """The parts of one layer with their FLOPs."""
    tokens = sum(length * count for length, count in sequences.items())
    mixer, feed_forward = spec.mixer(kind), spec.feed_forward(kind)
    if spec.modulation == "product":
        vectors = VECTORS_A_PART * spec.modulated_parts(kind) * spec.streams_of(kind)
        yield "modulation", 2 * sum(sequences.values()) * vectors * spec.hidden**2
    if kind.has_mixer:
        window = spec.window if kind.mixer == "sliding" else 0
        seen = in_chunks(sequences, spec.window) if kind.mixer == "chunked" else sequences
        projections, core = OF_MIXERS[mixer.LEDGER]
        yield projections, 2 * tokens * mixer.elements_per_token(spec)
        yield core, sum(count * mixer.core_flops(spec, length, window) for length, count in seen.items())
    if not isinstance(feed_forward, Mixture):
        if kind.has_feed_forward:
            yield "dense_feed_forward", 2 * tokens * feed_forward.elements_per_token(spec)
        return
    router, *gate = feed_forward.routers(spec)
    yield "router", 2 * tokens * router.elements
    routed = feed_forward.topk * _elements(feed_forward.expert_matrices(spec))
    yield "expert_feed_forward", 2 * tokens * (routed + _elements(feed_forward.latent_matrices(spec)))
    if feed_forward.shared_ffn:
        yield "shared_expert", 2 * tokens * _elements([*feed_forward.shared_matrices(spec), *gate])


def _elements(matrices: Iterable[Matrix]) -> int:
    return sum(matrix.elements for matrix in matrices)


# Exact count of the FLOPs that a model requires, and with recomputation those that the hardware does (HFU).
#
# Counted are the products of `predict.ledger.conventions`. Backward is twice forward.

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


def hfu(config: Mapping[str, Any], lengths: Sequence[int], *, recompute: str = "none") -> float:
    """`exact` plus the forward work that recomputation repeats: of every layer (`full`), or of attention's core (`selective`,
    Korthikanti et al., arXiv 2205.05198). The head is never repeated, nor are the scores that a flash-attention kernel rebuilds in
    its backward. Raises ConfigError for any other `recompute`, and as `exact` does.
    """
    if recompute not in RECOMPUTED:
        known = f"is not one of {', '.join(RECOMPUTED)}{did_you_mean(recompute, RECOMPUTED)}"
        raise config_error([Fault(path="recompute", problem=f"{shown(recompute)} {known}")], {"": "plan"})
    spec, sequences = read_spec(config, lengths, convention="HFU"), sequences_of(lengths)
    required = exact_of(spec, sequences, mtp=False)
    if recompute == "none":
        return required
    layers = forward_parts(spec, sequences, mtp=False)
    return required + sum(
        part.forward for part in layers if (part.part not in ENDS if recompute == "full" else part.part in CORES)
    )


# PaLM's convention (Chowdhery et al., arXiv 2204.02311, appendix B): 6N FLOPs per token, and attention.


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


# Megatron-LM's convention: `num_floating_point_operations` of megatron/training/training.py (commit 001b00c2).
#
# Departures from an exact count, kept because Megatron-LM reports them:
#
# - half of a sequence's square is counted for attention, in sliding layers too, whatever their window;
# - the router and the gate of shared experts are left out;
# - the recurrence of Gated DeltaNet is 4·dᵥ² products per token and value head, whatever the width of the keys;
# - where attention compresses, as DeepSeek's does, each norm of a compressed vector counts as a product, and so do three norms per layer of multi-token prediction;
# - of the convolution of Mamba-2, and its chunks, nothing is counted but 7 FLOPs per token and element of the states (`mamba_layer_flops`);
# - with linear layers at a fixed interval, a layer of multi-token prediction is full or linear by that interval.
#
# The vocabulary is config.json's: padding to a multiple for tensor parallelism is not stated there.


def megatron(config: Mapping[str, Any], lengths: Sequence[int]) -> float:
    """FLOPs as Megatron-LM counts them, one sequence at a time: its own formula takes a batch of equal lengths.

    Multi-token prediction is counted where config.json has it. Raises ConfigError for a model that is not modelled.
    """
    return megatron_of(read_spec(config, lengths, convention="Megatron"), lengths)


def megatron_of(spec: ModelSpec, lengths: Sequence[int]) -> float:
    """`megatron` by the model's shape."""
    linear_layers = _linear_layers(spec)
    kinds = spec.kinds()
    further = [spec.mixer(kind) for kind in kinds if kind.mixer != "linear" and spec.mixer(kind).IS_RECURRENT]
    without = sum(not kind.has_mixer for kind in kinds)
    full_layers = spec.layers + spec.mtp_layers - linear_layers - len(further) - without
    products: float = _feed_forward(spec) + spec.vocab * spec.hidden * (spec.mtp_layers + 1)
    products += full_layers * _projections(spec)
    products += spec.mtp_layers * (3 * spec.hidden + 2 * spec.hidden**2)
    linear = next((mixer for mixer in spec.mixers if isinstance(mixer, LinearAttention)), None)
    if linear is not None:
        products += linear_layers * _delta_net(spec, linear)
    products += sum(_of_recurrence(spec, mixer) for mixer in further)
    squares = sum(length * length for length in lengths)
    return 6.0 * sum(lengths) * products + 3.0 * squares * full_layers * spec.attention.score_width(spec)


def _feed_forward(spec: ModelSpec) -> int:
    """Products per token of all dense layers and mixtures; an expert without a gate has two matrices."""
    kinds = [*spec.kinds(), *[spec.mtp_kind] * spec.mtp_layers]
    sparse = sum(kind.sparse for kind in kinds)
    matrices = 3 if spec.gated else 2
    widths = (sum(kind.has_feed_forward for kind in kinds) - sparse) * spec.ffn
    experts = spec.experts
    if experts is None:
        return matrices * spec.hidden * widths
    if experts.latent:
        of_layer = matrices * experts.topk * experts.ffn * experts.latent + 2 * spec.hidden * experts.latent
        return matrices * spec.hidden * (widths + sparse * experts.shared_ffn) + sparse * of_layer
    widths += sparse * (experts.topk * experts.ffn + experts.shared_ffn)
    return matrices * spec.hidden * widths


def _projections(spec: ModelSpec) -> int:
    """Products per token of the projections of one layer of attention."""
    return spec.attention.elements_per_token(spec) + spec.attention.compressed_width


def _delta_net(spec: ModelSpec, linear: LinearAttention) -> int:
    """Products per token of one layer of Gated DeltaNet: into it, convolution, recurrence, out of it."""
    into = spec.hidden * (2 * linear.key_width + 2 * linear.value_width + 2 * linear.value_heads)
    recurrence = linear.value_heads * linear.value_dim**2 * 4
    return into + linear.conv * linear.conv_width + recurrence + spec.hidden * linear.value_width


def _of_recurrence(spec: ModelSpec, mixer: MixerShape) -> float:
    """Products per token of one layer with a recurrence: of Mamba-2 into it, its states, and out of it; of another all matrices."""
    if not isinstance(mixer, Mamba):
        return mixer.elements_per_token(spec)
    return _state_space(spec, mixer)


def _state_space(spec: ModelSpec, mamba: Mamba) -> float:
    into = spec.hidden * (2 * mamba.width + 2 * mamba.groups * mamba.state + mamba.heads)
    return into + SCAN_FLOPS / 2 * mamba.width * mamba.state + spec.hidden * mamba.width


def _linear_layers(spec: ModelSpec) -> int:
    """Linear layers, those of multi-token prediction counted as full unless every n-th layer is full and they are not one."""
    linear = [kind.mixer == "linear" for kind in spec.kinds()]
    interval = linear.index(False) + 1 if False in linear else 0
    if not interval or linear != [(layer + 1) % interval != 0 for layer in range(spec.layers)]:
        return sum(linear)
    return sum((layer + 1) % interval != 0 for layer in range(spec.layers + spec.mtp_layers))
