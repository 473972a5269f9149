"""The indexer of DeepSeek's sparse attention in torch."""

import torch

from sampling.operators.indexer import Indexer
from sampling.torch_work.build import builds
from sampling.torch_work.workload import AutogradWorkload, autograd_workload


@builds(Indexer)
def indexer(call: Indexer, device: torch.device) -> AutogradWorkload:
    later = torch.ones(call.seq_len, call.seq_len, dtype=torch.bool, device=device).triu(1)

    def pick(query: torch.Tensor, key: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        scores = torch.relu(query @ key.transpose(-1, -2).unsqueeze(1))
        summed = (weight.unsqueeze(-2) @ scores).squeeze(-2)
        chosen: torch.Tensor = summed.masked_fill(later, -torch.inf).topk(min(call.topk, call.seq_len), dim=-1).values
        return chosen.nan_to_num(neginf=0.0)

    tokens = (call.batch, call.seq_len)
    return autograd_workload(
        device,
        call.dtype,
        pick,
        inputs=[(*tokens, call.heads, call.head_dim), (*tokens, call.head_dim), (*tokens, call.heads)],
    )
