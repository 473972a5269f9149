"""The common ground of mixers and feed-forwards: what each has besides its shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from predict.layers.saved_tensors import Saved, Sizes
from predict.layers.served import GroupedCall, LayerCache, ServerShare, served_products
from predict.model.spec import FeedForwardShape, LayerKind, MixerShape, ModelSpec, NoFeedForward, NoMixer
from predict.rank.module import Module
from predict.rank.share import RankShare
from sampling.call import Call
from sampling.collectives.kinds import Collective
from sampling.files.faults import Fault
from sampling.files.schema import Scalar

CONVOLUTION = "conv"
"""Name of the weights of a causal convolution over tokens, among a mixer's matrices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MegatronArguments:
    """The arguments of Megatron-LM that state a mixer's sizes (megatron/training/arguments.py)."""

    switch: str
    """The argument that chooses the mixer."""
    sizes: Mapping[str, str]
    """Argument → the size that it states."""
    defaults: Mapping[str, int]
    """Argument → its value where it is not given; one of 0 is left out where the size is 0."""


class Mixer(MixerShape):
    """The part of a layer in which tokens of a sequence meet."""

    __slots__ = ()
    MEGATRON: ClassVar[MegatronArguments | None] = None
    """Its arguments in Megatron-LM, if it is there in place of plain attention."""

    @classmethod
    def of_text(cls, text: str) -> Mixer | None:
        """The mixer whose sizes a published table states in words; None where the text does not."""
        return None

    @classmethod
    def derived(cls, fields: dict[str, Scalar], names: Mapping[str, str]) -> Iterator[Fault]:
        """Fill in the model's fields that follow from the mixer's own, with a fault where they cannot; `names` are the keys of a
        `config.json` by field."""
        yield from ()

    def modules(self, rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
        """Its operators and exchanges in training, between the norm before it and what adds it to the residual stream."""
        raise NotImplementedError

    def saved_tensors(self, sizes: Sizes) -> Saved:
        """The tensors that its forward keeps for the backward, from the norm before it to its last one."""
        raise NotImplementedError

    @classmethod
    def is_served(cls) -> bool:
        """Whether servers with such layers are modelled: whether the class says what a layer keeps of a sequence."""
        return cls.cache is not Mixer.cache

    def cache(self, share: ServerShare) -> LayerCache:
        """The bytes that one layer keeps of a sequence on a server's GPU."""
        raise NotImplementedError

    def token_calls(self, share: ServerShare, tokens: int) -> Iterator[GroupedCall]:
        """Its kernels in a server's step whose work depends on the number of tokens alone."""
        yield from served_products(share, self.matrices(share.model), tokens)

    def decode_calls(self, share: ServerShare, decodes: int, keys: int) -> Iterator[Call]:
        """The calls that read the cache for one new token of each of `decodes` sequences with so many keys."""
        raise NotImplementedError

    def prefill_calls(self, share: ServerShare, tokens: int) -> Iterator[Call]:
        """The calls that mix the tokens of a prompt that is computed in one chunk."""
        raise NotImplementedError

    def decode_score_width(self, share: ServerShare) -> float:
        """Width of queries and of weighed values, all heads of one GPU together: a decode has twice as many FLOPs per key that it sees."""
        return self.score_width(share.model) / share.tp

    def reads_of_key(self, share: ServerShare) -> float:
        """Times that a decode's kernel reads each key of the cache."""
        return 1.0

    def keys_seen(self, share: ServerShare) -> int:
        """Most keys that a query attends to; 0 for all."""
        return share.most_seen

    def index_bytes(self, share: ServerShare) -> float:
        """Bytes of a token in the cache that decodes read of every token, to pick the keys that they attend to; 0 without a choice."""
        return 0.0


class FeedForward(FeedForwardShape):
    """The part of a layer that sees one token at a time."""

    __slots__ = ()

    def modules(self, rank: RankShare, kind: LayerKind) -> tuple[Module, ...]:
        """Its operators and exchanges in training, between the norm before it and what adds it to the residual stream."""
        raise NotImplementedError

    def saved_tensors(self, sizes: Sizes) -> Saved:
        """The tensors that its forward keeps for the backward, from the norm before it to its last one."""
        raise NotImplementedError

    def token_calls(self, share: ServerShare, tokens: int) -> Iterator[GroupedCall]:
        """Its kernels, and what its GPUs exchange among replicas, in a server's step of so many tokens."""
        yield from served_products(share, self.matrices(share.model), tokens)

    def served_exchange(self, share: ServerShare, tokens: int) -> Iterator[Collective]:
        """The exchanges of its GPUs among replicas in such a step; none where it computes each token where it is."""
        return iter(())


def parts_of(model: ModelSpec, kind: LayerKind) -> tuple[Mixer | FeedForward, ...]:
    """The mixer and the feed-forward of a layer of a kind, those of them that it has."""
    found = (mixer_of(model, kind), feed_forward_of(model, kind))
    return tuple(part for part in found if part is not None)


def mixer_of(model: ModelSpec, kind: LayerKind) -> Mixer | None:
    """The mixer of a layer of a kind, None for a layer without one."""
    mixer = model.mixer(kind)
    assert isinstance(mixer, Mixer | NoMixer)  # who makes a model takes its parts of predict/layers
    return mixer if isinstance(mixer, Mixer) else None


def feed_forward_of(model: ModelSpec, kind: LayerKind) -> FeedForward | None:
    """The feed-forward of a layer of a kind, None for a layer without one."""
    feed_forward = model.feed_forward(kind)
    assert isinstance(feed_forward, FeedForward | NoFeedForward)
    return feed_forward if isinstance(feed_forward, FeedForward) else None
