"""Token embedding and cross-entropy in torch."""

from __future__ import annotations

import torch
from torch.nn import functional

from sampling.operators.vocabulary import CrossEntropy, Embedding
from sampling.torch_work.build import builds, torch_dtype
from sampling.torch_work.collectives.tensor_parallel import parallel_embedding
from sampling.torch_work.workload import AutogradWorkload, Copy, leaf


@builds(Embedding)
def embedding(call: Embedding, device: torch.device) -> AutogradWorkload:
    def copy() -> Copy:
        table = torch.nn.Embedding(call.vocab, call.hidden, device=device, dtype=torch_dtype(call.dtype))
        module = parallel_embedding(table, device, call.tp, call.sp)
        ids = torch.randint(call.vocab, (call.batch, call.seq_len), device=device)
        return Copy(forward=lambda: module(ids), weights=list(module.parameters()))

    return AutogradWorkload(copy)


@builds(CrossEntropy)
def cross_entropy(call: CrossEntropy, device: torch.device) -> AutogradWorkload:
    def copy() -> Copy:
        logits = leaf(device, call.dtype, call.tokens, call.vocab)
        target = torch.randint(call.vocab, (call.tokens,), device=device)
        return Copy(forward=lambda: functional.cross_entropy(logits.float(), target), inputs=[logits])

    return AutogradWorkload(copy)
