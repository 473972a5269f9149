"""Attention in torch: fused, over a cache in one piece or in blocks, and as two products with a softmax between."""

from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from sampling.arithmetic.operator import COPIES
from sampling.errors import SkippedError
from sampling.operators.attention import Attention, DecodeAttention, UnfusedAttention
from sampling.torch_work.build import builds, products_in
from sampling.torch_work.kernels.attention import attention_kernel, decode_mask, paged_decode, torchs_choice
from sampling.torch_work.operators.memory_bound import softmax_of
from sampling.torch_work.workload import AutogradWorkload, Copy, PhaseWorkload, autograd_workload, leaf


@builds(Attention)
def attention(call: Attention, device: torch.device) -> AutogradWorkload:
    attend, note, kernel = attention_kernel(call, device)
    query = (call.batch, call.seq_len, call.heads, call.head_dim)
    key = (call.batch, call.seq_len, call.kv_heads, call.head_dim)
    value = (call.batch, call.seq_len, call.kv_heads, call.value_head_dim)
    workload = autograd_workload(device, call.dtype, attend, inputs=[query, key, value], note=note)
    workload.ran_kernel = kernel or torchs_choice(call, *workload.inputs)
    if call.kernel:
        _refuse_unless_it_runs(call, workload)
    return workload


def _refuse_unless_it_runs(call: Attention, workload: AutogradWorkload) -> None:
    """A named kernel has limits of its own, such as head sizes, and reports them only when it is run."""
    try:
        workload.run("forward")
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise SkippedError(f"{call.NAME}: the {call.kernel} kernel does not take {call}: {reason}") from None


@builds(DecodeAttention)
def decode_attention(call: DecodeAttention, device: torch.device) -> AutogradWorkload | PhaseWorkload:
    def attend(query: torch.Tensor, key: torch.Tensor, *apart: torch.Tensor) -> torch.Tensor:
        value = apart[0] if apart else key[..., : call.value_dim]
        return scaled_dot_product_attention(query, key, value, enable_gqa=call.heads != call.kv_heads)

    if call.kernel:
        raise SkippedError(f"{call.NAME}: kernel {call.kernel!r} is a serving engine's own, which torch does not have")
    if call.block:
        return PhaseWorkload([{"forward": _over_blocks(call, device)} for _ in range(COPIES)])
    query = (call.batch, call.heads, 1, call.head_dim)
    cached = (call.batch, call.kv_heads, call.seen, call.head_dim)
    return autograd_workload(
        device, call.dtype, attend, inputs=[query, cached] if call.values_in_keys else [query, cached, cached]
    )


def _over_blocks(call: DecodeAttention, device: torch.device) -> Callable[[], torch.Tensor]:
    """The attention of one layer, in whose cache the blocks of the sequences lie in no order."""
    each = -(-call.seen // call.block)
    blocks = call.batch * each
    cache = (blocks, call.block, call.kv_heads, call.head_dim)
    keys = leaf(device, call.dtype, *cache).detach()
    values = keys[..., : call.value_dim] if call.values_in_keys else leaf(device, call.dtype, *cache).detach()
    query = leaf(device, call.dtype, call.batch, call.heads, call.head_dim).detach()
    table = torch.randperm(blocks, device=device).view(call.batch, each)
    mask = decode_mask(torch.full((call.batch,), call.seen, device=device), each * call.block)

    def attend() -> torch.Tensor:
        with torch.inference_mode():
            return paged_decode(query, keys, values, table, mask)

    return attend


@builds(UnfusedAttention)
def unfused_attention(call: UnfusedAttention, device: torch.device) -> AutogradWorkload:
    softmax = softmax_of(device, call.seq_len, fused=call.fused_softmax)

    def copy() -> Copy:
        shape = (device, call.dtype, call.matrices, call.seq_len, call.head_dim)
        query, key, value = leaf(*shape), leaf(*shape), leaf(*shape)
        onto = torch.empty(call.matrices, call.seq_len, call.seq_len, device=device, dtype=query.dtype)

        def forward() -> torch.Tensor:
            scores = torch.baddbmm(onto, query, key.transpose(1, 2), beta=0.0, alpha=call.head_dim**-0.5)
            return torch.bmm(softmax(scores), value)

        return Copy(forward=forward, inputs=[query, key, value])

    return AutogradWorkload(copy, context=products_in(call.dtype))
