"""Fused attention in torch."""

from __future__ import annotations

import torch

from sampling.errors import SkippedError
from sampling.operators.attention import Attention
from sampling.torch_work.build import builds
from sampling.torch_work.kernels.attention import attention_kernel, torchs_choice
from sampling.torch_work.workload import AutogradWorkload, autograd_workload


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
