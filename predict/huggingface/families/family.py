"""Description of an architecture: the keys of its `config.json`, and which of its layers differ.

A key sets a field of ModelSpec, of one of its parts (`experts.topk`), or of the pattern of its layers (`pattern.interval`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from predict.model.patches import Patches
from predict.model.spec import LayerKind
from sampling.files.places import shipped_json
from sampling.files.schema import LARGEST, Key, Scalar

GATED_ACTIVATIONS = ("silu", "swish")
PLAIN_ACTIVATIONS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")
OTHER_ACTIVATIONS = ("relu", "relu2", "gelu_10", "quick_gelu", "mish", "laplace", "tanh", "sigmoid")
MOST_LAYERS = 100_000
"""Far more than any model has; the kind of each layer is kept in memory."""
MOST_PREDICTED_AHEAD = 16
"""Layers of multi-token prediction: DeepSeek-V3 has one, and each further one runs the head again."""

LAYER_TYPES = "layer_types"
DENSE_LAYERS = "mlp_only_layers"
FEED_FORWARD_TYPES = "mlp_layer_types"
FEED_FORWARDS: Mapping[str, bool] = {"dense": False, "sparse": True}
"""Names of the types in `mlp_layer_types` → whether the layer is a mixture of experts."""
FULL_ATTENTION = "full_attention"
BLOCK_TYPES = ("layers_block_type", "hybrid_override_pattern")
"""Keys that name the one part that each layer is: a list of names, or a text of letters."""
MIXERS: Mapping[str, str] = {
    FULL_ATTENTION: "full",
    "sliding_attention": "sliding",
    "linear_attention": "linear",
    "chunked_attention": "chunked",
}
"""Names of the types in `layer_types`."""
Choice = Callable[[int, Mapping[str, Any]], bool]
"""Whether the layer of an index (from 0) is chosen, given the family's fields."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerPattern:
    """Which layers differ from full attention with a dense MLP."""

    mixer: str = "full"
    """The mixer of the layers that are not full attention."""
    full: Choice = lambda index, fields: True
    """Whether a layer is full attention all the same, where the config does not name each layer's type."""
    typed: bool = False
    """The config may name each layer's type."""
    full_called: str = ""
    """The name that its layers of full attention have among the types instead."""
    full_named: str = ""
    """The key that lists the layers of full attention; the others have `mixer`."""
    mixer_named: str = ""
    """The key that lists the layers that have `mixer`; the others are full attention."""
    sparse: Choice = lambda index, fields: False
    """Whether a layer is a mixture of experts."""
    dense_named: bool = False
    """The config may name layers that are dense although `sparse` chooses them."""
    blocks: Mapping[str, LayerKind] = field(default_factory=dict)
    """Names and letters of layers that are one part alone, which the config lists under one of BLOCK_TYPES."""
    alone: Choice = lambda index, fields: False
    """Whether a layer is a mixer alone."""
    gated: Choice = lambda index, fields: False
    """Whether learnt numbers gate what a layer of full attention adds to the residual stream."""
    gates_mixer: bool = False
    """They gate what layers that have `mixer` add."""
    sparse_typed: bool = False
    """The config may name each layer's feed-forward, which then decides instead of `sparse`."""


class Number(NamedTuple):
    """A value that is not a whole number, under the names that configs give it."""

    names: tuple[str, ...]
    default: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One `model_type`: the keys that set a field, and the fields that the architecture settles itself."""

    keys: Mapping[str, Key]
    """Field (or `activation`) → the key that sets it."""
    fixed: Mapping[str, Scalar]
    """Fields that no key sets."""
    pattern: LayerPattern = field(default_factory=LayerPattern)
    rotary: Number | None = None
    """The rotated share of a head's width; None where it is always the whole head."""
    caps: Mapping[str, Number] = field(default_factory=dict)
    """Field of ModelSpec → the bound that switches it on."""
    adjust: Callable[[dict[str, Scalar]], None] | None = None
    """Arithmetic of the architecture that makes sizes of those that the config states."""
    choices: Mapping[str, Mapping[str | bool | None, Mapping[str, Scalar]]] = field(default_factory=dict)
    """Key → the fields that each of its values sets; None is the value where the key is absent or null. Other values are refused."""
    neutral: frozenset[str] = frozenset()
    """Keys of this family's configs that change no cost, although they may elsewhere."""
    patches: Callable[[Mapping[str, Any]], Patches] | None = None
    """What a model without a vocabulary reads and writes, by its fields; those called `patches.…` are sizes of patches alone."""
    positions_are_stretched: bool = False
    """Its positions count what the scaling of rotary embeddings adds."""
    nested: bool = False
    """Configs of the whole vision-language model hold these keys under `text_config`."""

    def names(self) -> list[str]:
        return [key.name for key in self.keys.values()]

    def reads(self) -> Iterable[str]:
        """Every key that is read, or known to change nothing."""
        yield from self.names()
        yield from self.neutral
        for number in (*self.caps.values(), *filter(None, [self.rotary])):
            yield from number.names
        if self.pattern.typed:
            yield LAYER_TYPES
        if self.pattern.dense_named:
            yield DENSE_LAYERS
        yield from filter(None, [self.pattern.full_named, self.pattern.mixer_named])
        if self.pattern.blocks:
            yield from BLOCK_TYPES
        yield from self.choices
        if self.pattern.sparse_typed:
            yield FEED_FORWARD_TYPES

    def has(self, part: str) -> bool:
        """Whether the family has the fields of a part (`experts`, `latent`, `linear`)."""
        return any(name.startswith(f"{part}.") for name in self.keys)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tower:
    """The vision tower, or the encoder, of the models of one `model_type`."""

    family: Family
    """Its keys."""
    section: str = "vision_config"
    """The section that holds them; empty where they stand beside the decoder's."""
    patches: Callable[[Mapping[str, Any], int], Patches]
    """What it reads and writes, by its fields and the width of the text."""
    beside: tuple[Key, ...] = ()
    """Keys around `vision_config` that say something of it; among the fields they have their own names."""
    neutral: frozenset[str] = frozenset()
    """Keys around it that change no cost."""

    def around(self) -> Iterable[str]:
        """Every key around `vision_config` that is read, or known to change nothing."""
        yield from (key.name for key in self.beside)
        yield from self.neutral


MODEL_KEYS: Mapping[str, Any] = shipped_json("model-keys.json")
"""Keys of `config.json` by what is said of them."""


def unused(family: str) -> frozenset[str]:
    """Keys of a family's configs that change no cost, of which there are many."""
    return frozenset(MODEL_KEYS["unused"][family].split())


def size(
    name: str,
    *,
    required: bool = True,
    nullable: bool = False,
    default: int | None = None,
    minimum: int = 1,
    maximum: int = LARGEST,
) -> Key:
    return Key(
        name=name,
        kind="integer",
        required=required and default is None,
        nullable=nullable,
        default=default,
        minimum=minimum,
        maximum=maximum,
    )


def switch(name: str, default: bool) -> Key:
    return Key(name=name, kind="boolean", default=default)


def activation(name: str, allowed: tuple[str, ...], default: str) -> Key:
    others = (*GATED_ACTIVATIONS, *PLAIN_ACTIVATIONS, *OTHER_ACTIVATIONS)
    unmodelled = tuple(other for other in others if other not in allowed)
    return Key(name=name, kind="string", default=default, choices=lambda: allowed, unmodelled=unmodelled)


def never(index: int, fields: Mapping[str, Any]) -> bool:
    return False


def always(index: int, fields: Mapping[str, Any]) -> bool:
    return True


def first_of_two(index: int, fields: Mapping[str, Any]) -> bool:
    return index % 2 == 0


def last_of_interval(index: int, fields: Mapping[str, Any]) -> bool:
    return (index + 1) % int(fields["pattern.interval"]) == 0


def before_windows(index: int, fields: Mapping[str, Any]) -> bool:
    return index < int(fields["pattern.full_before"])


def second_or_beyond_windows(index: int, fields: Mapping[str, Any]) -> bool:
    return index % 2 == 1 or index >= int(fields["pattern.full_from"])


def last_of_step(index: int, fields: Mapping[str, Any]) -> bool:
    return (index + 1) % int(fields["pattern.step"]) == 0


def after_dense(index: int, fields: Mapping[str, Any]) -> bool:
    return index >= int(fields["pattern.dense_before"])


SIZES: Mapping[str, Key] = {
    "layers": size("num_hidden_layers", maximum=MOST_LAYERS),
    "hidden": size("hidden_size"),
    "heads": size("num_attention_heads"),
    "ffn": size("intermediate_size"),
    "vocab": size("vocab_size"),
    "max_positions": size("max_position_embeddings", required=False),
}
LLAMA_LIKE: Mapping[str, Key] = {
    **SIZES,
    "kv_heads": size("num_key_value_heads", nullable=True),
    "head_dim": size("head_dim", required=False, nullable=True),
    "activation": activation("hidden_act", GATED_ACTIVATIONS, "silu"),
    "tied": switch("tie_word_embeddings", False),
}
LLAMA_BLOCK: Mapping[str, Scalar] = {"gated": True, "norm": "rms", "rope": True}
NO_BIAS: Mapping[str, Scalar] = {"attention_bias": False, "mlp_bias": False}
PLAIN_BLOCK: Mapping[str, Scalar] = {"gated": False, "norm": "layer", "mlp_bias": True}
ATTENTION_BIAS = switch("attention_bias", False)
QUARTER_ROTARY = Number(names=("partial_rotary_factor",), default=0.25)
WINDOW = size("sliding_window", required=False, nullable=True, minimum=0)
EVERY_LAYER_SLIDES = LayerPattern(mixer="sliding", full=never)
