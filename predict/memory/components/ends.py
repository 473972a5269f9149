"""What the embedding and the head with its loss keep for their backward."""

from __future__ import annotations

from predict.memory.components.norms import input_part, norm_part
from predict.memory.components.part import Part, Parts
from predict.memory.components.share import FP32, INDEX, Share
from predict.workload.rank.weights import padded_vocabulary


def embedding_parts(share: Share) -> Parts:
    """The tokens' numbers, 8T, and of learnt positions 8·S; its output is the first norm's input. Megatron-LM's, split over
    tp, keeps the mask of tokens of other ranks too (tensor_parallel/layers.py); dropout a byte an element."""
    rank = share.rank
    kept = float(INDEX * share.tokens)
    if not rank.model.rope:
        kept += INDEX * (rank.run.batch.seq_len // rank.plan.cp)
    if share.profile.megatron and share.tp > 1:
        kept += share.tokens
    masks = float(share.rows * share.hidden) if rank.execution.dropout else 0.0
    whole = share.item * share.tokens * share.hidden
    return (
        Part(component="embedding", kept=kept, passing=whole + (whole if share.tp > 1 else 0.0), gradients=whole),
        Part(component="dropout", kept=masks),
    )


def vocabulary(share: Share) -> int:
    """Logits of a token on this rank: Megatron-LM pads the vocabulary, torch's modules do not."""
    vocab, tp = share.rank.model.vocab, share.tp
    return padded_vocabulary(vocab, tp) // tp if share.profile.megatron else -(-vocab // tp)


def head_parts(share: Share) -> Parts:
    """Norm, product and loss: T(e·H + 4V + 8) + 4 beside the norm where the loss takes fp32 logits, whatever their dtype."""
    logits = float(share.tokens) * vocabulary(share)
    bytes_a_logit = share.profile.loss[share.item]
    capped = share.item * logits if share.rank.model.logit_cap else 0.0
    inputs = input_part(share, "logits", separate_norm=False, wide=True)
    return (
        norm_part(share),
        inputs,
        Part(component="logits", kept=capped),
        Part(
            component="loss",
            kept=bytes_a_logit.kept * logits + _beside_logits(share),
            passing=(bytes_a_logit.forward - bytes_a_logit.kept) * logits,
            gradients=(bytes_a_logit.backward - bytes_a_logit.kept) * logits,
        ),
    )


def _beside_logits(share: Share) -> float:
    """Targets of 8 bytes and the tokens' number; in Megatron-LM a mask of targets that other ranks hold."""
    beside = INDEX * share.tokens
    if share.profile.megatron:
        return beside + share.tokens
    return beside + FP32


def cross_entropy_bytes(tokens: int, vocab: int, item: int, *, upcast: bool) -> float:
    """What torch's cross-entropy keeps: the log-softmax in the logits' dtype, or in fp32 of an upcast copy, the targets and
    how many there are: T(e·V + 8) + e, T(4V + 8) + 4 (byte-equal, torch 2.13)."""
    element = FP32 if upcast else item
    return tokens * (element * vocab + INDEX) + element


def joining_parts(share: Share) -> Parts:
    """Hidden state and the next token's embedding, each normed, side by side into one product (arXiv 2412.19437, 2.2)."""
    norm = norm_part(share)
    joined = share.input_item * share.entering * 2 * share.hidden
    return (norm, norm, Part(component="mtp", kept=joined, passing=2 * share.stream, gradients=2 * share.stream))
