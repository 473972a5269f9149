"""The embedding, the head with its loss, and what joins further predicted tokens."""

from __future__ import annotations

from collections.abc import Mapping

from predict.memory.components.norms import norm, normed_input
from predict.memory.components.saved_tensors import Saved, SavedTensors
from predict.memory.components.sizes import FP32, INDEX, Sizes
from predict.memory.profiles.memory_profile import LossBytes
from predict.rank.weights import padded_vocabulary


def embedding(sizes: Sizes) -> Saved:
    """Token indices, 8T bytes, and those of learnt positions, 8·S; the output is the first norm's input. Megatron-LM's embedding,
    split over tp, also keeps the mask of other ranks' tokens (tensor_parallel/layers.py); dropout keeps a byte per element."""
    rank = sizes.rank
    kept = float(INDEX * sizes.tokens)
    if not sizes.model.rope:
        kept += INDEX * (rank.run.batch.seq_len // rank.plan.cp)
    if sizes.profile.megatron and sizes.tp > 1:
        kept += sizes.tokens
    mask = float(sizes.rows * sizes.hidden) if rank.execution.dropout else 0.0
    whole = sizes.item * sizes.tokens * sizes.hidden
    return (
        SavedTensors(
            component="embedding", kept=kept, in_forward=whole * (2 if sizes.tp > 1 else 1), in_backward=whole
        ),
        SavedTensors(component="dropout", kept=mask),
    )


def head(sizes: Sizes) -> Saved:
    """Final norm, logits and loss of one prediction: T(e·H + 4V + 8) + 4 bytes beside the norm, where the loss takes fp32 logits
    of any dtype."""
    logits = logits_of_loss(sizes)
    per_logit = _loss(sizes)[sizes.item]
    capped = sizes.item * logits if sizes.model.logit_cap else 0.0
    return (
        *normed_input(sizes, "logits", is_module=False, not_only_products=True),
        SavedTensors(component="logits", kept=capped),
        SavedTensors(
            component="loss",
            # targets, and the number of tokens or Megatron-LM's mask of targets on other ranks
            kept=per_logit.kept * logits + INDEX * sizes.tokens + (sizes.tokens if sizes.profile.megatron else FP32),
            in_forward=(per_logit.forward - per_logit.kept) * logits,
            in_backward=(per_logit.backward - per_logit.kept) * logits,
        ),
    )


def logits_of_loss(sizes: Sizes) -> float:
    """Logits of a microbatch that a rank takes the loss of."""
    return float(sizes.tokens) * _vocabulary_on_rank(sizes)


def _loss(sizes: Sizes) -> Mapping[int, LossBytes]:
    profile = sizes.profile
    fused = profile.fused_loss if sizes.rank.execution.fuse_loss else None
    divided = profile.parallel_loss if sizes.tp > 1 else None
    return fused or divided or profile.loss


def _vocabulary_on_rank(sizes: Sizes) -> int:
    """Logits per token that a rank takes the loss of: Megatron-LM pads the vocabulary, torch's modules do not."""
    vocab, tp = sizes.model.vocab, sizes.tp if sizes.rank.execution.split_loss else 1
    return padded_vocabulary(vocab, tp) // tp if sizes.profile.megatron else -(-vocab // tp)


def joining(sizes: Sizes) -> Saved:
    """Hidden state and the next token's embedding, both normed, concatenated into one product (DeepSeek-AI, arXiv 2412.19437,
    section 2.2): multi-token prediction, before the layer and head of each further token."""
    joined = sizes.input_item * sizes.input_rows * 2 * sizes.hidden
    product = SavedTensors(component="mtp", kept=joined, in_forward=2 * sizes.stream, in_backward=2 * sizes.stream)
    return (norm(sizes), norm(sizes), product)
