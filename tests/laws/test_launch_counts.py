"""Launches of a layer and of a model's ends, counted from the operators that torch dispatches."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from predict.measurement.decoder import Block, rope_tables
from predict.workload.layer import ON_ONE_RANK, SPREAD, Launches
from tests.tiny_runs import LLAMA

WITHOUT_A_KERNEL = {"detach", "_unsafe_view", "empty", "ones_like"}
"""Operators that launch nothing; `ones_like` is where this backward begins."""
BATCH, SEQ, HEADS, HIDDEN, VOCAB = 2, 8, 4, LLAMA.hidden, 96
INNER = 4 * HIDDEN
TOKENS = torch.randint(VOCAB, (BATCH, SEQ))


class Dispatched(TorchDispatchMode):
    """The number of operators that are dispatched and are no views."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        self.count += not func.is_view and name not in WITHOUT_A_KERNEL
        return func(*args, **(kwargs or {}))


def counted(part: Callable[..., Tensor], *inputs: Tensor) -> tuple[int, int]:
    """Launches of a part's forward and backward, whose gradients are added to those of an earlier microbatch."""
    with Dispatched() as forward:
        output = part(*inputs)
    with Dispatched() as backward:
        output.backward(torch.ones_like(output))
    return forward.count, backward.count


def weight(*shape: int) -> nn.Parameter:
    made = nn.Parameter(torch.randn(*shape))
    made.grad = torch.zeros(shape)
    return made


def one_launch(forward: Callable[..., Tensor], backward: Callable[..., Any]) -> Callable[..., Tensor]:
    """A kernel or a collective that stands outside of torch, each way as many launches as it copies."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Tensor:
            return forward(*args)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            return backward(gradient)

    applied: Callable[..., Tensor] = Kernel.apply
    return applied


REDUCED = one_launch(lambda x: x.clone(), lambda g: g)
COPIED = one_launch(lambda x: x.view_as(x), lambda g: g.clone())
SOFTMAX = one_launch(lambda x: x.clone(), lambda g: g.clone())
BIAS_GELU = one_launch(lambda x, bias: x.clone(), lambda g: (g.clone(), g.sum((0, 1))))
BIAS_DROPOUT_ADD = one_launch(lambda y, bias, x: y.clone(), lambda g: (g.clone(), g.sum((0, 1)), g))


def norm() -> Callable[[Tensor], Tensor]:
    scale, shift = weight(HIDDEN), weight(HIDDEN)
    return lambda x: F.layer_norm(x, (HIDDEN,), scale, shift)


def megatron_layer() -> Callable[[Tensor], Tensor]:
    """The layer of Megatron-LM 2.5 (model/transformer.py): products, fused softmax, bias and GELU, bias with dropout and the residual."""
    first, second = norm(), norm()
    of_qkv, of_output, up, down = (
        weight(3 * HIDDEN, HIDDEN),
        weight(HIDDEN, HIDDEN),
        weight(INNER, HIDDEN),
        weight(HIDDEN, INNER),
    )
    qkv_bias, output_bias, up_bias, down_bias = (weight(width) for width in (3 * HIDDEN, HIDDEN, INNER, HIDDEN))

    def run(x: Tensor) -> Tensor:
        qkv = torch.matmul(COPIED(first(x)), of_qkv.t()) + qkv_bias
        parts = qkv.view(SEQ, BATCH, HEADS, 3 * HIDDEN // HEADS).chunk(3, dim=-1)
        query, key, value = (part.reshape(SEQ, BATCH * HEADS, -1).transpose(0, 1) for part in parts)
        scores = torch.baddbmm(torch.empty(BATCH * HEADS, SEQ, SEQ), query, key.transpose(1, 2), beta=0.0)
        kept, _ = torch.native_dropout(SOFTMAX(scores), 0.1, True)
        context = torch.bmm(kept, value).view(BATCH, HEADS, SEQ, -1).permute(2, 0, 1, 3).contiguous().flatten(2)
        x = BIAS_DROPOUT_ADD(REDUCED(torch.matmul(context, of_output.t())), output_bias, x)
        inner = BIAS_GELU(torch.matmul(COPIED(second(x)), up.t()), up_bias)
        return BIAS_DROPOUT_ADD(REDUCED(torch.matmul(inner, down.t())), down_bias, x)

    return run


def megatron_embedding() -> Callable[[], Tensor]:
    """The embedding (mpu/layers.py: VocabParallelEmbedding; model/language_model.py), with positions and dropout."""
    table, of_positions, places = weight(VOCAB, HIDDEN), weight(SEQ, HIDDEN), TOKENS % SEQ

    def run() -> Tensor:
        outside = (TOKENS < 0) | (TOKENS >= VOCAB)
        own = TOKENS.clone() - 0
        own[outside] = 0
        found = F.embedding(own, table)
        found[outside, :] = 0.0
        found = REDUCED(found) + F.embedding(places, of_positions)
        return torch.native_dropout(found, 0.1, True)[0].transpose(0, 1).contiguous()

    return run


class ParallelLoss(torch.autograd.Function):
    """The loss of a spread vocabulary (mpu/cross_entropy.py); each `clone` of a maximum or a sum is its all-reduce."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        logits.sub_(logits.max(dim=-1)[0].clone().unsqueeze(-1))
        outside = (TOKENS < 0) | (TOKENS >= VOCAB)
        own = TOKENS.clone() - 0
        own[outside] = 0
        of_target = logits.view(-1, VOCAB)[torch.arange(BATCH * SEQ), own.view(-1)].clone().view(BATCH, SEQ)
        of_target[outside] = 0.0
        of_target = of_target.clone()
        torch.exp(logits, out=logits)
        total = logits.sum(dim=-1).clone()
        loss = torch.log(total) - of_target
        logits.div_(total.unsqueeze(-1))
        ctx.save_for_backward(logits, outside, own)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        shares, outside, own = ctx.saved_tensors
        shares.view(-1, VOCAB)[torch.arange(BATCH * SEQ), own.view(-1)] -= 1.0 - outside.view(-1).float()
        shares.mul_(gradient.unsqueeze(-1))
        return shares


def megatron_head() -> Callable[[Tensor], Tensor]:
    """The head: the last norm, the logits in fp32, the loss of a spread vocabulary and its mean under a mask."""
    last, table, mask = norm(), weight(VOCAB, HIDDEN), torch.ones(BATCH * SEQ)

    def run(x: Tensor) -> Tensor:
        logits = torch.matmul(COPIED(last(x).transpose(0, 1).contiguous()), table.t())
        losses = ParallelLoss.apply(logits.double()).view(-1)  # the wider precision, as fp32 is to fp16
        return torch.sum(losses * mask) / mask.sum()

    return run


def plain_head() -> Callable[[Tensor], Tensor]:
    last, table = norm(), weight(VOCAB, HIDDEN)
    return lambda x: F.cross_entropy(
        torch.matmul(last(x), table.t()).double().flatten(0, 1), TOKENS.flatten()
    )  # the wider precision, as fp32 is to bf16


def plain_embedding() -> Callable[[], Tensor]:
    table = weight(VOCAB, HIDDEN)
    return lambda: F.embedding(TOKENS, table)


def plain_layer() -> Callable[[Tensor], Tensor]:
    block = Block(replace(LLAMA, kv_heads=LLAMA.heads, norm="layer"))
    for parameter in block.parameters():
        parameter.grad = torch.zeros_like(parameter)
    tables = rope_tables(BATCH, LLAMA.head_dim, torch.float32)
    return lambda x: block(x, tables)


@pytest.mark.parametrize(
    ("expected", "layer", "embedding", "head"),
    [
        (ON_ONE_RANK, plain_layer, plain_embedding, plain_head),
        (SPREAD, megatron_layer, megatron_embedding, megatron_head),
    ],
    ids=["on one rank", "spread"],
)
def test_launches_are_those_that_torch_dispatches(
    expected: Launches,
    layer: Callable[[], Callable[[Tensor], Tensor]],
    embedding: Callable[[], Callable[[], Tensor]],
    head: Callable[[], Callable[[Tensor], Tensor]],
) -> None:
    of_layer, of_head = (counted(part(), torch.randn(SEQ, BATCH, HIDDEN, requires_grad=True)) for part in (layer, head))
    assert Launches(layer=of_layer, embedding=counted(embedding()), head=of_head) == expected
