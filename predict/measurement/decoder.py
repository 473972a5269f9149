"""A decoder in plain torch, the way people write one to train it, whole or as one pipeline stage.

With it stand the seed, the batch and the order of a training step, which every real step has in common. It shares no
code with the sampled operators: a measured step is to be an independent witness of a predicted one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from predict.layers.mamba import Mamba
from predict.measurement.mamba import MambaMixer
from predict.measurement.mixture import GroupedExperts, Mixture
from predict.model.spec import DENSE, LayerKind, ModelSpec
from predict.run.training_run import TrainingRun

ROPE_BASE = 10_000.0  # Su et al. 2021, "RoFormer", section 3.3
INIT_STD = 0.02  # Radford et al. 2019 (GPT-2)
LAYER_SCALE = 0.1  # InternViT-300M's layer_scale_init_value
NORM_EPS = 1e-5  # torch's LayerNorm default, and Llama 2's
RopeTables = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """Grouped-query attention over [batch, seq, hidden], causal but for encoders, whose tokens may see those of their own chunk alone; a
    tensor-parallel rank holds a share of the heads."""

    def __init__(self, spec: ModelSpec, *, chunk: int = 0) -> None:
        super().__init__()
        self.head_dim, self.chunk = spec.head_dim, chunk
        self.causal = not spec.bidirectional
        query, key_value = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        self.widths = [query, key_value, key_value]
        self.qkv = nn.Linear(spec.hidden, sum(self.widths), bias=spec.attention_bias) if spec.joint_qkv else None
        if not spec.joint_qkv:
            self.q = nn.Linear(spec.hidden, query, bias=spec.attention_bias)
            self.k = nn.Linear(spec.hidden, key_value, bias=spec.attention_bias)
            self.v = nn.Linear(spec.hidden, key_value, bias=spec.attention_bias)
        self.o = nn.Linear(query, spec.hidden, bias=spec.output_bias)
        self.q_norm = nn.RMSNorm(spec.head_dim, eps=NORM_EPS) if spec.qk_norm else None
        self.k_norm = nn.RMSNorm(spec.head_dim, eps=NORM_EPS) if spec.qk_norm else None

    def forward(self, x: Tensor, rope: RopeTables | None) -> Tensor:
        query, key, value = (self._heads(projected) for projected in self._projected(x))
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        if rope is not None:
            query, key = rotate(query, rope), rotate(key, rope)
        if self.chunk:
            mixed = in_chunks(query, key, value, self.chunk)
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal, enable_gqa=True)
        output: Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return output

    def _projected(self, x: Tensor) -> Sequence[Tensor]:
        if self.qkv is not None:
            return torch.split(self.qkv(x), self.widths, dim=-1)
        return self.q(x), self.k(x), self.v(x)

    def _heads(self, projected: Tensor) -> Tensor:
        """[batch, seq, heads · head_dim] → [batch, heads, seq, head_dim]."""
        batch, seq, _ = projected.shape
        return projected.view(batch, seq, -1, self.head_dim).transpose(1, 2)


def in_chunks(query: Tensor, key: Tensor, value: Tensor, chunk: int) -> Tensor:
    """Attention of [batch, heads, seq, head_dim] in which each token sees those of its own chunk; the last one may be shorter."""
    batch, heads, length, width = query.shape
    whole, found = length // chunk * chunk, []
    for part, size in ((slice(whole), chunk), (slice(whole, None), length - whole)):
        if query[:, :, part].numel():
            q, k, v = (
                each[:, :, part].reshape(batch, each.shape[1], -1, size, width).transpose(1, 2).flatten(0, 1)
                for each in (query, key, value)
            )
            mixed = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            found.append(mixed.reshape(batch, -1, heads, size, width).transpose(1, 2).flatten(2, 3))
    return torch.cat(found, dim=2)


class Scale(nn.Module):
    """A learnt factor for each output of a part of a layer (Touvron et al., arXiv 2103.17239, section 2: LayerScale)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), LAYER_SCALE))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Mlp(nn.Module):
    """SwiGLU of three matrices (Shazeer 2020), or GELU of two."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.gate = nn.Linear(spec.hidden, spec.ffn, bias=spec.mlp_bias) if spec.gated else None
        self.up = nn.Linear(spec.hidden, spec.ffn, bias=spec.mlp_bias)
        self.down = nn.Linear(spec.ffn, spec.hidden, bias=spec.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.gelu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x)
        output: Tensor = self.down(inner)
        return output


class Block(nn.Module):
    """One layer: norm, attention or Mamba-2, residual, norm, MLP or mixture of experts, residual; or one of these parts alone. With
    `norms_last` each norm follows the sum, as BERT has them; with four norms one follows each part too, before the sum, as Gemma 3 has
    them."""

    def __init__(self, spec: ModelSpec, kind: LayerKind = DENSE) -> None:
        super().__init__()
        self.norms_last = spec.bidirectional and not (spec.final_norm or spec.patches)
        mixer = spec.mixer(kind)
        self.attention_norm = make_norm(spec) if kind.has_mixer else None
        self.attention: nn.Module | None = None
        if kind.has_mixer:
            chunk = spec.window if kind.mixer == "chunked" else 0
            self.attention = MambaMixer(spec, mixer) if isinstance(mixer, Mamba) else Attention(spec, chunk=chunk)
        self.mlp_norm = make_norm(spec) if kind.has_feed_forward else None
        self.mlp: nn.Module | None = None
        if kind.has_feed_forward:
            self.mlp = Mixture(spec.hidden, spec.experts) if kind.sparse and spec.experts else Mlp(spec)
        self.after = nn.ModuleList(after_part(spec) for _ in range(2))

    def forward(self, x: Tensor, rope: RopeTables | None) -> Tensor:
        if self.attention is not None and self.attention_norm is not None:
            if self.norms_last:
                x = self.attention_norm(x + self.attention(x, rope))
            else:
                x = x + self.after[0](self.attention(self.attention_norm(x), rope))
        if self.mlp is not None and self.mlp_norm is not None:
            x = self.mlp_norm(x + self.mlp(x)) if self.norms_last else x + self.after[1](self.mlp(self.mlp_norm(x)))
        return x


def after_part(spec: ModelSpec) -> nn.Module:
    """The scale or norm, or nothing, that a part's result goes through before it joins the residual stream."""
    if spec.layer_scale:
        return Scale(spec.hidden)
    return make_norm(spec) if spec.norms_a_layer > 2 else nn.Identity()


class Decoder(nn.Module):
    """Layers [first, last) of a model, with the embedding if it begins there and norm and head if it ends there.

    Maps tokens [batch, seq] (or hidden states from the stage before) to logits [batch, seq, vocab] (or hidden states).
    """

    def __init__(
        self, spec: ModelSpec, *, first: int, last: int, seq_len: int, dtype: torch.dtype, recompute: bool, seed: int
    ) -> None:
        super().__init__()
        self.recompute, self.hidden = recompute, spec.hidden
        has_embedding, has_head = first == 0, last == spec.layers
        # A seed a part, so that every stage of every plan starts from the weights that the whole model starts from.
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(spec.vocab, spec.hidden) if has_embedding else None
        self.positions = (
            nn.Embedding(spec.max_positions, spec.hidden) if has_embedding and spec.learns_positions else None
        )
        self.token_types = nn.Embedding(spec.token_types, spec.hidden) if has_embedding and spec.token_types else None
        self.embedding_norm = make_norm(spec) if has_embedding and spec.embedding_norm else None
        self.apply(initialise)
        self.layers = nn.ModuleList(
            seeded_block(spec, seed + 1 + index, spec.kinds()[index]) for index in range(first, last)
        )
        torch.manual_seed(seed + 1 + spec.layers)
        self.transform = head_transform(spec).apply(initialise) if has_head and spec.head_transform else None
        self.norm = make_norm(spec) if has_head and spec.final_norm else None
        self.head = nn.Linear(spec.hidden, spec.vocab, bias=spec.head_transform) if has_head else None
        if self.head is not None:
            self.head.apply(initialise)
        self.tied = spec.tied and has_embedding and has_head
        self.tie()
        self.to(dtype)
        # Constants, and not buffers: DistributedDataParallel would broadcast buffers at every forward.
        self.rope_tables = rope_tables(seq_len, spec.head_dim, dtype) if spec.rope else None
        self.position_ids = torch.arange(seq_len).unsqueeze(0)

    def tie(self) -> None:
        """Make the head use the embedding's weight, where the model says so."""
        if self.tied and self.head is not None and self.embedding is not None:
            self.head.weight = self.embedding.weight

    def forward(self, x: Tensor, images: Tensor | None = None, added: Sequence[Tensor] = ()) -> Tensor:
        """`images` [batch, tokens, hidden] take the places of the first tokens, and each of `added` is added to them after a layer."""
        if self.embedding is not None:
            x = self.embedding(x)
        if images is not None:
            x = torch.cat((images, x[:, images.shape[1] :]), dim=1)
        if self.positions is not None:
            x = x + self.positions(self.position_ids)
        if self.token_types is not None:
            x = x + self.token_types(torch.zeros_like(self.position_ids))
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        x = run_layers(self.layers, x, self.rope_tables, recompute=self.recompute, added=added)
        for part in (self.norm, self.transform, self.head):
            if part is not None:
                x = part(x)
        return x


def run_layers(
    layers: Iterable[nn.Module],
    x: Tensor,
    rope: RopeTables | None,
    *,
    recompute: bool,
    added: Sequence[Tensor] = (),
    between: list[Tensor] | None = None,
) -> Tensor:
    """The hidden states after all layers, whose forwards the backward repeats with `recompute`. Each of `added` is added to the first
    tokens after one of the first layers; `between` takes the hidden states after each layer."""
    for place, layer in enumerate(layers):
        x = checkpoint(layer, x, rope, use_reentrant=False) if recompute else layer(x, rope)
        if place < len(added):
            tokens = added[place].shape[1]
            x = torch.cat((x[:, :tokens] + added[place], x[:, tokens:]), dim=1)
        if between is not None:
            between.append(x)
    return x


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy in fp32 of logits [batch, seq, vocab] against targets [batch, seq]."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def head_transform(spec: ModelSpec) -> nn.Module:
    """The product, activation and norm before the logits of an encoder's masked tokens."""
    return nn.Sequential(nn.Linear(spec.hidden, spec.hidden, bias=spec.mlp_bias), nn.GELU(), make_norm(spec))


def make_norm(spec: ModelSpec) -> nn.Module:
    norm = nn.RMSNorm if spec.norm == "rms" else nn.LayerNorm
    return norm(spec.hidden, eps=NORM_EPS)


def seeded_block(spec: ModelSpec, seed: int, kind: LayerKind) -> nn.Module:
    torch.manual_seed(seed)
    return Block(spec, kind).apply(initialise)


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INIT_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, GroupedExperts):
        nn.init.normal_(module.gate_up, std=INIT_STD)
        nn.init.normal_(module.down, std=INIT_STD)


def rope_tables(seq_len: int, head_dim: int, dtype: torch.dtype) -> RopeTables:
    """Cosines and sines [seq_len, head_dim] of the rotary embedding, each frequency twice (rotate-half layout)."""
    frequency = ROPE_BASE ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angle = torch.outer(torch.arange(seq_len).float(), frequency).repeat(1, 2)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, rope: RopeTables) -> Tensor:
    """Rotary embedding of x [..., head_dim], whose other dimensions those of the tables broadcast to."""
    cosine, sine = rope
    left, right = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-right, left), dim=-1) * sine


SEED = 0
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """`passes` runs forward and backward of the whole batch; it returns this rank's mean loss, None where it has none."""

    module: nn.Module
    optimizers: Sequence[Optimizer]
    passes: Callable[[], Tensor | None]
    parameters: int
    """Parameters that this rank holds."""

    def step(self) -> Tensor | None:
        """One whole training step, from clearing the gradients to the updated weights."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = self.passes()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss


def random_batch(run: TrainingRun, *, replica: int) -> tuple[Tensor, Tensor]:
    """Tokens and next tokens, [global batch / dp, seq] each: this replica's rows of one batch that all plans share.

    The same batch serves every step, so that a loss that falls shows that the step really trains.
    """
    batch = run.batch
    generator = torch.Generator().manual_seed(SEED)
    sequences = torch.randint(run.model.vocab, (batch.global_, batch.seq_len + 1), generator=generator)
    mine = sequences.chunk(run.plan.dp)[replica]
    return mine[:, :-1].contiguous(), mine[:, 1:].contiguous()
