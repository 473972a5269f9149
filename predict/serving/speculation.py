"""Speculative decoding: drafts of further tokens that one step of the model verifies, and how many of them are accepted.

speculation: {kind: eagle, tokens: 3, acceptance: 0.75}   # a section of a serving config, and `rl.rollout.speculation`
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np

from predict.huggingface.config_json import load_model
from predict.layers.attention import Attention
from predict.layers.dense import Dense
from predict.model.shipped import shipped_model, shipped_models
from predict.model.spec import ModelSpec
from regressors.features.arrays import Floats, Ints
from sampling.errors import UserError
from sampling.files.disk import NotReadError, is_missing, read_bytes
from sampling.files.faults import Fault, did_you_mean, shown
from sampling.files.places import shipped_json
from sampling.files.schema import Key

NAME = "speculation"
"""The name of the section."""
MTP: Final = "mtp"
EAGLE: Final = "eagle"
NGRAM: Final = "ngram"
DRAFT: Final = "draft"
NONE: Final = "none"
MOST_TOKENS = 32
Probability = Annotated[float, Key(minimum=0, maximum=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Usual:
    """The acceptance of a kind of drafts where a config does not state it."""

    acceptance: float
    """Probability that a draft token is accepted, given that those before it are."""
    low: float
    high: float
    """What published figures of the kind lie between."""
    source: str
    later: float = 1.0
    """Acceptance of a token after the first, over that of the first."""


USUAL: Mapping[str, Usual] = {kind: Usual(**fields) for kind, fields in shipped_json("usual-acceptance.json").items()}
SHARE = r"(?:\d*\.)?\d+(?:e-?\d+)?"
LOGGED = re.compile(rf"Per-position acceptance rate:\s*({SHARE}(?:[,\s]+{SHARE})*)(?![\w.])")
"""A line of vLLM's log (vllm/v1/spec_decode/metrics.py): the share of drafts whose tokens up to a position are accepted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Speculation:
    """Drafts that each decode verifies."""

    kind: Literal["none", "mtp", "eagle", "ngram", "draft"] = NONE
    """none; mtp: the model's own layer of multi-token prediction; eagle: a head of one layer (EAGLE-3); ngram: what followed the
    same tokens earlier in the text; draft: a smaller model."""
    tokens: Annotated[int, Key(minimum=0, maximum=MOST_TOKENS)] = 1
    """Draft tokens of each step and request; 0 for no speculation."""
    acceptance: Probability | None = None
    """Probability that a draft token is accepted, given that those before it are; null for what is usual of the kind, with a wide
    interval."""
    by_position: tuple[Probability, ...] = ()
    """Share of the drafts of which the tokens up to each position are accepted, in place of `acceptance`: vLLM's log prints it as
    `Per-position acceptance rate`."""
    log: str = ""
    """A log of vLLM's that has such lines, relative to the config, in place of both: the mean of its lines is taken."""
    draft: str = ""
    """The draft model of `kind: draft`: a shipped model, or the path of a config.json relative to the config."""

    def contradictions(self) -> Iterator[Fault]:
        if bool(self.draft) != (self.kind == DRAFT):
            problem = "missing; name the draft model" if self.kind == DRAFT else f"needs kind: draft, not {self.kind}"
            yield Fault(path="draft", problem=problem)
        stated = [name for name in ("acceptance", "by_position", "log") if getattr(self, name) not in (None, (), "")]
        if len(stated) > 1:
            yield Fault(path=stated[1], problem=f"cannot be combined with {stated[0]}; keep one of the two")
        if self.by_position and len(self.by_position) < self.tokens:
            problem = f"{len(self.by_position)} shares for {self.tokens} tokens; give one for each"
            yield Fault(path="by_position", problem=problem)
        if list(self.by_position) != sorted(self.by_position, reverse=True):
            problem = "rises from one position to the next, but a token is accepted only with all before it; give falling shares"
            yield Fault(path="by_position", problem=problem)

    @property
    def drafts(self) -> int:
        """Draft tokens that a decode verifies."""
        return self.tokens if self.kind != NONE else 0

    @property
    def is_usual(self) -> bool:
        """Whether the acceptance is what is usual of the kind, since none is stated."""
        return bool(self.drafts) and not self.by_position and self.acceptance is None

    @property
    def accepted_shares(self) -> Floats:
        """Share of the drafts of which the tokens up to each position are accepted."""
        if self.by_position:
            return np.array(self.by_position[: self.drafts])
        if self.acceptance is not None:
            return _shares_at(self.acceptance, 1.0, self.drafts)
        usual = USUAL.get(self.kind)
        return _shares_at(usual.acceptance, usual.later, self.drafts) if usual else np.zeros(0)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a decode adds to its answer on average: one, and those of its drafts that are accepted; (1 − a^(k+1)) / (1 − a) for
        an acceptance a at each of k positions."""
        return 1.0 + float(self.accepted_shares.sum()) if self.drafts else 1.0

    @property
    def width(self) -> float:
        """Log half-width at 90 % of the tokens of a step: that of the usual acceptance where the config states none."""
        if not self.is_usual:
            return 0.0
        usual = USUAL[self.kind]
        low, high = (1.0 + float(_shares_at(each, usual.later, self.drafts).sum()) for each in (usual.low, usual.high))
        return float(np.log(high / low)) / 2


def _shares_at(first: float, later: float, drafts: int) -> Floats:
    """Share of the drafts whose tokens up to each position are accepted; `later` is the acceptance of the others over the first's."""
    shares: Floats = np.cumprod(np.array([first, *[later * first] * drafts])[:drafts])
    return shares


RING = 4096
"""Decodes after which the draws of accepted tokens begin anew."""
DRAW_SEED = 11


@lru_cache(maxsize=32)
def accepted_tokens(speculation: Speculation) -> Ints:
    """Accepted tokens of RING decodes in random order, in exactly the shares of the speculation, to one in RING."""
    if not speculation.drafts:
        return np.zeros(1, dtype=np.int64)
    places = (np.arange(RING) + 0.5) / RING
    accepted: Ints = (places[:, None] < speculation.accepted_shares[None, :]).sum(axis=1).astype(np.int64)
    return np.random.default_rng(DRAW_SEED).permutation(accepted)


def from_log(speculation: Speculation, folder: Path) -> Speculation:
    """The speculation with the acceptance of its log, where it names one. UserError for a log that has none."""
    if not speculation.log:
        return speculation
    path = folder / speculation.log
    try:
        text = read_bytes(path).decode("utf-8", errors="replace")
    except NotReadError as error:
        raise UserError(f"{shown(speculation.log)} (that is {shown(str(path))}): {error}") from None
    lines = [[float(each) for each in re.split(r"[,\s]+", found[1])] for found in LOGGED.finditer(text)]
    fewest = min((len(line) for line in lines), default=0)
    if fewest < speculation.drafts:
        has = f"{fewest} positions" if lines else "no line with `Per-position acceptance rate`"
        raise UserError(
            f"{shown(speculation.log)} has {has}; give a log of vLLM's with {speculation.drafts} draft tokens"
        )
    shares = np.minimum.accumulate(np.mean([line[:fewest] for line in lines], axis=0)).clip(0.0, 1.0)
    return replace(speculation, log="", by_position=tuple(map(float, shares)))


# The models that write drafts.


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A model that writes drafts, one token at each pass."""

    model: ModelSpec
    joined: int = 0
    """Hidden states of the large model, and embeddings, that its first product joins into one; 0 for a model that reads tokens."""
    shares_ends: bool = False
    """Embedding and head are those of the large model."""


HEAD_VOCABULARY = 32_000
"""Tokens that an EAGLE-3 head writes (`draft_vocab_size` of the published heads)."""
HEAD_JOINED, MTP_JOINED = 3, 2
"""EAGLE-3 joins hidden states of three layers; multi-token prediction the last one and the embedding (DeepSeek-V3, section 2.2)."""
WIDE = 4
"""Inner width of an EAGLE-3 head over the hidden one where the large model has no dense layers to copy."""


def draft_of(speculation: Speculation, model: ModelSpec, folder: Path) -> tuple[Draft | None, list[Fault]]:
    """The model that writes the drafts of a speculation, None where none does, and what stands against it."""
    if not speculation.drafts or speculation.kind == NGRAM:
        return None, []
    if speculation.kind == EAGLE:
        return Draft(model=_head_of(model), joined=HEAD_JOINED), []
    if speculation.kind == MTP:
        if not model.mtp_layers:
            problem = f"{model.name} has no layer of multi-token prediction (num_nextn_predict_layers); take eagle, draft or ngram"
            return None, [Fault(path="kind", problem=f"{MTP}, but {problem}")]
        layer = replace(
            model, name=f"{model.name}-mtp", layers=1, layer_kinds=(model.mtp_kind,), mtp_layers=0, window=0
        )
        return Draft(model=layer, joined=MTP_JOINED, shares_ends=True), []
    path = shipped_model(speculation.draft) or folder / speculation.draft
    if is_missing(path):
        near = did_you_mean(speculation.draft, shipped_models()) or "; see configs/models"
        problem = f"{shown(speculation.draft)} is neither a shipped model nor a file{near}"
        return None, [Fault(path="draft", problem=problem)]
    return Draft(model=load_model(path)), []


def _head_of(model: ModelSpec) -> ModelSpec:
    """An EAGLE-3 head: one layer of a dense Llama as wide as the model, with a small vocabulary."""
    kv_heads = model.kv_heads if model.attention.IS_PLAIN else max(1, model.heads // 8)
    return replace(
        model,
        name=f"{model.name}-eagle",
        layers=1,
        layer_kinds=(),
        mtp_layers=0,
        window=0,
        experts=None,
        sparse=None,
        mixers=(Attention(),),
        mlp=Dense(),
        kv_heads=kv_heads,
        head_dim=model.head_dim if model.attention.IS_PLAIN else model.hidden // model.heads,
        ffn=model.ffn or WIDE * model.hidden,
        vocab=min(model.vocab, HEAD_VOCABULARY),
        tied=False,
    )
