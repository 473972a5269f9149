"""The two ends of a model on one rank: the embedding, and the head with its loss."""

from __future__ import annotations

from predict.rank.module import Exchange, Module
from predict.rank.share import RankShare
from predict.rank.tensor_parallel import TP, entering
from predict.rank.weights import embedding_weights, head_weights, padded_vocabulary
from predict.workload.layers.launches import launchings_of_end
from predict.workload.layers.layer import LayerBlocks, blocks_of, layer_modules
from sampling.operators.elementwise import ResidualAdd
from sampling.operators.streaming import Stream
from sampling.operators.vocabulary import CrossEntropy, Embedding

LOSS_REDUCTIONS = 3
"""The vocabulary-parallel loss reduces three fp32 numbers a token: the largest logit, the sum of exponentials, the
target's logit (Megatron-LM's `vocab_parallel_cross_entropy`)."""
GATHERED_COPIES = 2
"""Copies of all logits after a gathering to each rank: NCCL's buffer to one tensor per rank (torch, ProcessGroupNCCL::allgather), and
those joined along the vocabulary (torch.cat)."""


def embedding_blocks(rank: RankShare) -> LayerBlocks:
    model, group = rank.model, rank.groups.tp
    own = Embedding(
        dtype=rank.dtype,
        batch=rank.run.batch.micro,
        seq_len=rank.run.batch.seq_len // rank.plan.cp,
        vocab=padded_vocabulary(model.vocab, rank.plan.tp) // rank.plan.tp,
        hidden=model.hidden,
        tp=1,
        sp=False,
    )
    size = rank.hidden_bytes
    leaving = Exchange(
        heading=TP,
        forward=group.reduce_scatter(size) if rank.plan.sp else group.all_reduce(size),
        backward=group.all_gather(size) if rank.plan.sp else (),
    )
    works: tuple[tuple[Embedding | ResidualAdd, float], ...] = ((own, 1),)
    if not model.rope:
        works += ((ResidualAdd(dtype=rank.dtype, tokens=rank.rows, hidden=model.hidden), 1),)
    modules = (Module(name="embedding", works=works, exchanges=(leaving,)),)
    return blocks_of(rank, modules, embedding_weights(model, rank.plan), launched=launchings_of_end(rank, "embedding"))


def head_blocks(rank: RankShare, *, shares_embedding: bool) -> LayerBlocks:
    """The final norm, the logits, their loss; for every further token that is predicted, a layer and a head again."""
    modules = _head(rank)
    for _ in range(rank.model.mtp_layers):
        modules += (_joining(rank), *layer_modules(rank, rank.model.mtp_kind), *_head(rank))
    weights = head_weights(rank.model, rank.plan, shares_embedding=shares_embedding)
    return blocks_of(rank, modules, weights, launched=launchings_of_end(rank, "head"))


def _head(rank: RankShare) -> tuple[Module, ...]:
    model, group = rank.model, rank.groups.tp
    vocabulary = padded_vocabulary(model.vocab, rank.plan.tp)
    width = vocabulary // rank.plan.tp
    of_loss = width if rank.execution.split_loss else vocabulary
    reductions = group.all_reduce(4 * rank.tokens) * LOSS_REDUCTIONS
    gathered = group.all_gather(rank.item_bytes * rank.tokens * vocabulary)
    loss = Exchange(heading=TP, forward=reductions if rank.execution.split_loss else gathered, backward=())
    whole = rank.item_bytes * rank.tokens * of_loss
    passes = bool(model.logit_cap) + (GATHERED_COPIES if of_loss > width else 0)
    between = ((Stream(dtype=rank.dtype, size_bytes=2 * whole), passes),) if passes else ()
    # the head stays in the wider precision where only the layers' products are in fp8
    logits = rank.gemm(width, model.hidden, dtype=rank.dtype)
    return (
        Module(name="layernorm", works=((rank.norm(), 1),)),
        Module(name="head", works=((logits, 1),), exchanges=entering(rank)),
        Module(
            name="loss",
            works=(*between, (CrossEntropy(dtype=rank.dtype, tokens=rank.tokens, vocab=of_loss), 1)),
            exchanges=(loss,),
        ),
    )


def _joining(rank: RankShare) -> Module:
    """Hidden state and the next token's embedding become one (DeepSeek-AI, arXiv 2412.19437, section 2.2)."""
    model = rank.model
    product = rank.gemm(model.hidden // rank.plan.tp, 2 * model.hidden)
    return Module(name="mtp", works=((rank.norm(), 2), (product, 1)))
