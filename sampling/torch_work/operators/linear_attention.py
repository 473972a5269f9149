"""The Gated DeltaNet recurrence by the kernel of flash-linear-attention."""

import importlib

import torch
from torch.nn import functional

from sampling.errors import SkippedError
from sampling.operators.linear_attention import GatedDelta
from sampling.torch_work.build import builds
from sampling.torch_work.workload import AutogradWorkload, Copy, leaf


@builds(GatedDelta)
def gated_delta(call: GatedDelta, device: torch.device) -> AutogradWorkload:
    try:
        chunk_gated_delta_rule = importlib.import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
    except ImportError as error:
        raise SkippedError(
            f"{call.NAME}: needs flash-linear-attention (pip install it to time this): {error}"
        ) from None

    def copy() -> Copy:
        keys = (device, call.dtype, call.batch, call.seq_len, call.heads, call.head_dim)
        query, key = leaf(*keys), leaf(*keys)
        value = leaf(device, call.dtype, call.batch, call.seq_len, call.value_heads, call.value_dim)
        gates = (call.batch, call.seq_len, call.value_heads)
        decay = functional.logsigmoid(torch.randn(*gates, device=device)).requires_grad_()
        beta = leaf(device, call.dtype, *gates)

        def forward() -> torch.Tensor:
            repeats = call.value_heads // call.heads
            own_query, own_key = (one.repeat_interleave(repeats, dim=2) if repeats > 1 else one for one in (query, key))
            output: torch.Tensor = chunk_gated_delta_rule(
                own_query, own_key, value, g=decay, beta=beta.sigmoid(), use_qk_l2norm_in_kernel=True
            )[0]
            return output

        return Copy(forward=forward, inputs=[query, key, value, decay, beta])

    return AutogradWorkload(copy)
