"""Kernels of attention: torch's own choice, one of its backends by name, or one with sliding windows."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from sampling.errors import SkippedError

if TYPE_CHECKING:
    from sampling.operators.attention import Attention


Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Query, key and value [batch, seq, heads, d], the layout of projections → [batch, heads, seq, d] or [batch, seq, heads, d]."""

FLASH_ATTN = "flash_attn"
FLEX, MASK = "flex", "mask"
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


def attention_kernel(call: Attention, device: torch.device) -> tuple[Attend, str, str]:
    """The kernel, a note on it, and its name, both empty for torch's own choice. SkippedError for one that is not available."""
    windowed = 0 < call.window < call.seq_len
    if call.kernel and call.kernel not in (FLASH_ATTN, *BACKENDS):
        known = ", ".join([*BACKENDS, FLASH_ATTN])
        raise SkippedError(f"attention: kernel {call.kernel!r} is not available here ({known})")
    if call.kernel == FLASH_ATTN:
        return _flash_attn(call, windowed), "", FLASH_ATTN
    if not windowed:
        return partial(_torch_attention, call, None), "", call.kernel
    if call.kernel or device.type == "cpu":
        mask = _band(call, device)
        return partial(_torch_attention, call, mask), "sliding windows run as a mask, which skips no products", MASK
    if call.causal and call.dtype in ("bf16", "fp16") and importlib.util.find_spec(FLASH_ATTN):
        return _flash_attn(call, windowed), "sliding windows run through flash_attn", FLASH_ATTN
    return _flex(call, device), "sliding windows run through torch's flex_attention", FLEX


def torchs_choice(call: Attention, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> str:
    """The backend that torch chooses for tensors in the layout of projections, as named in BACKENDS; empty if it does not say."""
    choose: Callable[..., int] | None = getattr(torch, "_fused_sdp_choice", None)
    if choose is None:
        return ""
    heads_first = (tensor.transpose(1, 2) for tensor in (query, key, value))
    chosen = SDPBackend(
        choose(*heads_first, None, 0.0, call.causal, scale=None, enable_gqa=call.kv_heads != call.heads)
    )
    return next((name for name, backend in BACKENDS.items() if backend == chosen), "")


def _torch_attention(
    call: Attention, mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    attend = partial(
        scaled_dot_product_attention,
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        is_causal=call.causal and mask is None,
        enable_gqa=call.kv_heads != call.heads,
    )
    if not call.kernel:
        return attend()
    with sdpa_kernel(BACKENDS[call.kernel]):
        return attend()


def _flash_attn(call: Attention, windowed: bool) -> Attend:
    try:
        flash_attn_func = importlib.import_module(FLASH_ATTN).flash_attn_func
    except (ImportError, AttributeError) as error:
        raise SkippedError(f"attention: needs flash_attn (pip install flash-attn to time this): {error}") from None
    if windowed and not call.causal:
        raise SkippedError("attention: flash_attn has sliding windows only where attention is causal")
    window = (call.window - 1, 0) if windowed else (-1, -1)
    attend: Attend = partial(flash_attn_func, causal=call.causal, window_size=window)
    return attend


def _band(call: Attention, device: torch.device) -> torch.Tensor:
    """True [seq, seq] where the query attends to the key: `window` keys, fewer only at the start of a causal sequence."""
    query = torch.arange(call.seq_len, device=device).unsqueeze(1)
    return _sees(call, query, torch.arange(call.seq_len, device=device).unsqueeze(0))


def _sees(call: Attention, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    if call.causal:
        return (key <= query) & (query - key < call.window)
    first = (query - call.window // 2).clamp(0, call.seq_len - call.window)
    return (key >= first) & (key - first < call.window)


def _flex(call: Attention, device: torch.device) -> Attend:
    from torch.nn.attention import flex_attention as flex

    from sampling.torch_work.build import compiled

    def sees(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return _sees(call, query, key)

    blocks = flex.create_block_mask(sees, None, None, call.seq_len, call.seq_len, device=device)
    kernel: Callable[..., Any] = compiled(flex.flex_attention)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        heads_first = (tensor.transpose(1, 2) for tensor in (query, key, value))
        output: torch.Tensor = kernel(*heads_first, block_mask=blocks, enable_gqa=call.kv_heads != call.heads)
        return output

    return attend


def decode_mask(keys: Tensor, most: int) -> Tensor:
    """True [batch, 1, 1, most] where a sequence has the key."""
    place = torch.arange(most, device=keys.device)
    return (place < keys.unsqueeze(1))[:, None, None, :]


def chunk_mask(tokens: int, context: int, most: int, device: torch.device) -> Tensor:
    """True [tokens, most] where the token at `context` + row sees the key: its own and those before it."""
    place = torch.arange(most, device=device)
    own = torch.arange(context, context + tokens, device=device)
    return place <= own.unsqueeze(1)


def paged_decode(query: Tensor, keys: Tensor, values: Tensor, table: Tensor, mask: Tensor) -> Tensor:
    """Attention of one token each of a batch: query [batch, heads, d], caches [blocks, block, kv_heads, d], table [batch, blocks of each].

    The keys of all sequences are gathered up to the longest table, and a mask hides what lies beyond each one's end.
    Heads that share keys are rows of one product, so that keys are read once.
    """
    batch, heads, size = query.shape
    key, value = (cache[table].flatten(1, 2).transpose(1, 2) for cache in (keys, values))
    kv_heads = key.shape[1]
    rows = query.view(batch, kv_heads, heads // kv_heads, size)
    return scaled_dot_product_attention(rows, key, value, attn_mask=mask).flatten(1, 2)


def paged_chunk(query: Tensor, keys: Tensor, values: Tensor, table: Tensor, mask: Tensor) -> Tensor:
    """Some tokens of one prompt: query [tokens, heads, d], table [blocks], mask [tokens, keys]."""
    key, value = (cache[table].flatten(0, 1).transpose(0, 1).unsqueeze(0) for cache in (keys, values))
    rows = query.transpose(0, 1).unsqueeze(0)
    shared = query.shape[1] != key.shape[1]
    mixed = scaled_dot_product_attention(rows, key, value, attn_mask=mask, enable_gqa=shared)
    return mixed[0].transpose(0, 1)
