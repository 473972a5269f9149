"""Token embedding, cross-entropy and the choice of the next token in torch."""

import torch
from torch.nn import functional

from sampling.operators.vocabulary import CrossEntropy, Embedding, RankedLogits, TokenDraw
from sampling.torch_work.build import builds, torch_dtype
from sampling.torch_work.collectives.tensor_parallel import parallel_embedding
from sampling.torch_work.workload import AutogradWorkload, Copy, autograd_workload, leaf


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


TOP_P = 0.9


@builds(TokenDraw)
def token_draw(call: TokenDraw, device: torch.device) -> AutogradWorkload:
    def draw(logits: torch.Tensor) -> torch.Tensor:
        chances = (logits.float() / 0.6).softmax(dim=-1)
        return (chances / torch.empty_like(chances).exponential_()).argmax(dim=-1)

    return autograd_workload(device, call.dtype, draw, inputs=[(call.requests, call.vocab)])


@builds(RankedLogits)
def ranked_logits(call: RankedLogits, device: torch.device) -> AutogradWorkload:
    return autograd_workload(device, call.dtype, within_top_p, inputs=[(call.requests, call.vocab)])


def within_top_p(logits: torch.Tensor) -> torch.Tensor:
    """The logits [requests, vocab], −∞ for the tokens beyond the likeliest ones that have TOP_P of the probability together."""
    ranked, places = logits.float().sort(dim=-1)
    beyond = ranked.softmax(dim=-1).cumsum(dim=-1) <= 1 - TOP_P
    return torch.empty_like(ranked).scatter(-1, places, ranked.masked_fill(beyond, -torch.inf))
