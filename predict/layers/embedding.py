"""The embedding, or what a vision tower has in its place: its calls in training, and the tensors that it keeps."""

from predict.layers.norms import norm
from predict.layers.patches import patch_modules, saved_by_patches
from predict.layers.saved_tensors import INDEX, Saved, SavedTensors, Sizes
from predict.rank.exchanges import TP
from predict.rank.module import Exchange, Module, Works
from predict.rank.share import RankShare
from sampling.operators.memory_bound import ResidualAdd
from sampling.operators.vocabulary import Embedding


def embedding_modules(rank: RankShare) -> tuple[Module, ...]:
    """Its operators and exchanges in training."""
    model, group = rank.model, rank.groups.tp
    if not model.rows_looked_up:
        return patch_modules(rank)
    own = Embedding(
        dtype=rank.dtype,
        batch=rank.run.batch.micro,
        seq_len=rank.run.batch.seq_len // rank.plan.cp,
        vocab=rank.padded(model.rows_looked_up) // rank.plan.tp,
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
    works: Works = ((own, 1),)
    added = model.learns_positions + bool(model.token_types)
    if added:
        works += ((ResidualAdd(dtype=rank.dtype, tokens=rank.rows, hidden=model.hidden), added),)
    if model.embedding_norm:
        works += ((rank.norm(), 1),)
    return (Module(name="embedding", works=works, exchanges=(leaving,)),)


def saved_by_embedding(sizes: Sizes) -> Saved:
    """Token indices, 8T bytes, and those of learnt positions, 8·S; the output is the first norm's input. Megatron-LM's embedding,
    split over tp, also keeps the mask of other ranks' tokens (tensor_parallel/layers.py); dropout keeps a byte per element."""
    if not sizes.model.rows_looked_up:
        return saved_by_patches(sizes)
    rank = sizes.rank
    kept = float(INDEX * sizes.tokens)
    for _ in range(sizes.model.learns_positions + bool(sizes.model.token_types)):
        kept += INDEX * (rank.run.batch.seq_len // rank.plan.cp)
    if sizes.profile.megatron and sizes.tp > 1:
        kept += sizes.tokens
    mask = float(sizes.rows * sizes.hidden) if rank.execution.dropout else 0.0
    whole = sizes.item * sizes.tokens * sizes.hidden
    return (
        SavedTensors(
            component="embedding", kept=kept, in_forward=whole * (2 if sizes.tp > 1 else 1), in_backward=whole
        ),
        *((norm(sizes),) if sizes.model.embedding_norm else ()),
        SavedTensors(component="dropout", kept=mask),
    )
