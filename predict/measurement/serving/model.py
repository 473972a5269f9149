"""A decoder in plain torch as a server runs it: all tokens of a step in one row, keys and values in a paged cache.

Its products are fused as serving engines fuse them: query, key and value into one, gate and up into one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from predict.measurement.decoder import INIT_STD, NORM_EPS, SEED, rope_tables, rotate
from predict.measurement.serving.scheduler import Turn
from predict.model.spec import ModelSpec
from sampling.torch_work.kernels.attention import chunk_mask, decode_mask, paged_chunk, paged_decode


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkPlan:
    """The place of a chunk among a step's tokens, its blocks, and the keys that each of its tokens sees."""

    rows: slice
    table: Tensor
    mask: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPlan:
    """A step as tensors: chunks first, then decodes; `slots` are the places of the tokens in the cache."""

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    last: Tensor
    """The last token of each turn, and its drafts."""
    chunks: Sequence[ChunkPlan]
    decodes: slice
    table: Tensor
    mask: Tensor


def step_plan(turns: Sequence[Turn], block: int) -> StepPlan:
    """The tensors of a step whose chunks stand before its decodes."""
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    last: list[int] = []
    chunks: list[ChunkPlan] = []
    for turn in turns:
        own, blocks, start = [*turn.request.tokens, *turn.drafts], turn.request.blocks, len(tokens)
        for place in range(turn.context, turn.context + turn.tokens + len(turn.drafts)):
            tokens.append(own[place])
            positions.append(place)
            slots.append(blocks[place // block] * block + place % block)
        last += range(len(tokens) - 1 - len(turn.drafts), len(tokens))
        if not turn.decode:
            held = -(-(turn.context + turn.tokens) // block)
            mask = chunk_mask(turn.tokens, turn.context, held * block, torch.device("cpu"))
            chunks.append(ChunkPlan(rows=slice(start, len(tokens)), table=torch.tensor(blocks[:held]), mask=mask))
    # a draft is a decode of its own, which sees those before it
    decoding = [(turn, draft) for turn in turns if turn.decode for draft in range(1 + len(turn.drafts))]
    keys = [turn.context + draft + 1 for turn, draft in decoding]
    widest = -(-max(keys, default=0) // block)
    table = [(turn.request.blocks + [0] * widest)[:widest] for turn, _ in decoding]
    return StepPlan(
        tokens=torch.tensor(tokens),
        positions=torch.tensor(positions),
        slots=torch.tensor(slots),
        last=torch.tensor(last),
        chunks=chunks,
        decodes=slice(len(tokens) - len(decoding), len(tokens)),
        table=torch.tensor(table, dtype=torch.long),
        mask=decode_mask(torch.tensor(keys, dtype=torch.long), widest * block),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """The weights of one layer, and its cache [blocks, block, kv_heads, d]."""

    attention_norm: Tensor
    qkv: Tensor
    proj: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    keys: Tensor
    values: Tensor


class ServedModel:
    """A model with random weights, and its cache."""

    def __init__(self, spec: ModelSpec, *, blocks: int, block: int, positions: int, dtype: torch.dtype) -> None:
        self.spec, self.block, self.positions = spec, block, positions
        generator = torch.Generator().manual_seed(SEED)
        cache = (blocks, block, spec.kv_heads, spec.head_dim)

        def weight(outputs: int, inputs: int) -> Tensor:
            return torch.randn(outputs, inputs, generator=generator).mul_(INIT_STD).to(dtype)

        def layer() -> Layer:
            return Layer(
                attention_norm=torch.ones(spec.hidden, dtype=dtype),
                qkv=weight(spec.q_width + 2 * spec.kv_width, spec.hidden),
                proj=weight(spec.hidden, spec.q_width),
                mlp_norm=torch.ones(spec.hidden, dtype=dtype),
                gate_up=weight(2 * spec.ffn, spec.hidden),
                down=weight(spec.hidden, spec.ffn),
                # touched now, so that no step waits for the first use of a page
                keys=torch.zeros(cache, dtype=dtype).add_(0.0),
                values=torch.zeros(cache, dtype=dtype).add_(0.0),
            )

        self.embedding = weight(spec.vocab, spec.hidden)
        self.layers = [layer() for _ in range(spec.layers)]
        self.norm = torch.ones(spec.hidden, dtype=dtype)
        self.head = self.embedding if spec.tied else weight(spec.vocab, spec.hidden)
        self.cosine, self.sine = rope_tables(positions, spec.head_dim, dtype)

    def next_tokens(self, turns: Sequence[Turn]) -> list[list[int]]:
        """The most likely next token after each turn and after each of its drafts, chunks before decodes; keys and values are kept in the
        cache."""
        plan = step_plan(turns, self.block)
        rope = self.cosine[plan.positions].unsqueeze(1), self.sine[plan.positions].unsqueeze(1)
        x = F.embedding(plan.tokens, self.embedding)
        for layer in self.layers:
            x = x + self._attention(layer, self._norm(x, layer.attention_norm), plan, rope)
            gate, up = F.linear(self._norm(x, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        logits = F.linear(self._norm(x[plan.last], self.norm), self.head)
        found = iter(logits.argmax(dim=-1).tolist())
        return [[next(found) for _ in range(1 + len(turn.drafts))] for turn in turns]

    def kept(self, blocks: Sequence[int], tokens: int) -> bytes:
        """Keys and values of the first tokens in these blocks, layer by layer."""
        return (
            torch.stack([each[self._slots(blocks, tokens)] for each in self._caches])
            .view(torch.uint8)
            .numpy()
            .tobytes()
        )

    def keep(self, blocks: Sequence[int], kept: bytes) -> None:
        """Put what `kept` gave into blocks of the cache."""
        caches = self._caches
        found = torch.frombuffer(bytearray(kept), dtype=self.embedding.dtype).view(
            len(caches), -1, *caches[0].shape[1:]
        )
        slots = self._slots(blocks, found.shape[1])
        for cache, tokens in zip(caches, found, strict=True):
            cache[slots] = tokens

    @property
    def _caches(self) -> list[Tensor]:
        """Keys and values of each layer, [tokens, kv_heads, d]."""
        return [cache.flatten(0, 1) for layer in self.layers for cache in (layer.keys, layer.values)]

    def _slots(self, blocks: Sequence[int], tokens: int) -> Tensor:
        """The places of the first tokens in the cache."""
        places = [blocks[place // self.block] * self.block + place % self.block for place in range(tokens)]
        return torch.tensor(places, dtype=torch.long)

    def _attention(self, layer: Layer, x: Tensor, plan: StepPlan, rope: tuple[Tensor, Tensor]) -> Tensor:
        spec = self.spec
        query, key, value = (
            part.view(len(x), -1, spec.head_dim)
            for part in torch.split(F.linear(x, layer.qkv), [spec.q_width, spec.kv_width, spec.kv_width], dim=-1)
        )
        query, key = (rotate(part, rope) for part in (query, key))
        layer.keys.flatten(0, 1)[plan.slots] = key
        layer.values.flatten(0, 1)[plan.slots] = value
        mixed = torch.empty_like(query)
        for chunk in plan.chunks:
            mixed[chunk.rows] = paged_chunk(query[chunk.rows], layer.keys, layer.values, chunk.table, chunk.mask)
        if plan.decodes.start < plan.decodes.stop:
            mixed[plan.decodes] = paged_decode(query[plan.decodes], layer.keys, layer.values, plan.table, plan.mask)
        return F.linear(mixed.flatten(1), layer.proj)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (self.spec.hidden,), weight, NORM_EPS)
