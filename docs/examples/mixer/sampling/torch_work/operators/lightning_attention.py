"""Lightning attention in torch, block by block."""

from __future__ import annotations

import torch

from sampling.operators.lightning_attention import LightningRecurrence
from sampling.torch_work.build import builds
from sampling.torch_work.workload import AutogradWorkload, autograd_workload

DECAY = 0.99


@builds(LightningRecurrence)
def lightning_recurrence(call: LightningRecurrence, device: torch.device) -> AutogradWorkload:
    shape = (call.batch, call.heads, call.seq_len, call.head_dim)

    def forward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(call.batch, call.heads, call.head_dim, call.head_dim, dtype=query.dtype, device=device)
        outputs = []
        for start in range(0, call.seq_len, call.block):
            own_query, own_key, own_value = (each[:, :, start : start + call.block] for each in (query, key, value))
            scores = (own_query @ own_key.transpose(-1, -2)).tril()
            outputs.append(own_query @ state + scores @ own_value)
            state = DECAY * state + own_key.transpose(-1, -2) @ own_value
        return torch.cat(outputs, dim=2)

    return autograd_workload(device, call.dtype, forward, inputs=[shape, shape, shape])
