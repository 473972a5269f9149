"""The head with its loss, and what joins further predicted tokens: their calls in training, and the tensors that they keep."""

from collections.abc import Mapping

from predict.layers.norms import norm, normed_input
from predict.layers.patches import projector_modules, saved_by_projector
from predict.layers.saved_tensors import FP32, INDEX, Saved, SavedTensors, Sizes
from predict.rank.blocks import Calls
from predict.rank.exchanges import TP, entering
from predict.rank.module import Exchange, Module
from predict.rank.share import RankShare, padded_vocabulary
from predict.run.memory_profile import FSDP, LOSSES, LossBytes
from predict.run.tuning import POLICY, REWARD
from sampling.arithmetic.operator import Operator
from sampling.call import Counted
from sampling.operators.memory_bound import Gelu, Stream
from sampling.operators.vocabulary import CrossEntropy

POLICY_BYTES = 56
"""Bytes that move for each logit of a policy's update beside its products, by torch's operators on chunks: 54 in forward (to fp32 6, times
the inverse temperature 8, the largest 4, the difference 8, its exponential 8, their sum 4, weighed 12 and summed 4) and 58 in backward
(6, 8, 8 and 8 again, times the gradient 8 and the inverse temperature 8, to 16 bits 12) (prime-rl, trainer/models/layers/lm_head.py,
FusedOutputLinear); their mean."""
POLICY_CHUNKS: tuple[tuple[str, int, int], ...] = (("2026-03", 0, 2048), ("2026-09", 1024, 8192))
"""Until which month (`execution.stack`) a policy's logits are made in which chunks: tokens, 0 for all of them, and entries of the
vocabulary (prime-rl, trainer/models/layers/lm_head.py, FusedOutputLinear; pull requests 1544, 1987 and 3302)."""
POLICY_CHUNK = (8192, 8192)
"""Tokens and entries of a chunk since then."""
POLICY_IN_FORWARD, POLICY_IN_BACKWARD = 14, 22
"""Bytes that live at once for each logit of a chunk. Forward: the logit in 16 bits, and in fp32 the scaled one, its difference from the
largest, and its exponential. Backward: beside these what the chunk before left, since each name keeps its tensor until it is given the next
one: probabilities and gradients of the logits. As measured: 10.9 to 11.9 bytes in the forward where the logits are fp32 themselves, which
makes 12 here (prime-rl, pull request 1525: 2.7 and 3.8 GB of 16k tokens in chunks of 2,048 and 8,192 entries)."""
LOSS_REDUCTIONS = 3
"""The vocabulary-parallel loss reduces three fp32 numbers a token: the largest logit, the sum of exponentials, the
target's logit (Megatron-LM's `vocab_parallel_cross_entropy`)."""
GATHERED_COPIES = 2
"""Copies of all logits after a gathering to each rank: NCCL's buffer to one tensor per rank (torch, ProcessGroupNCCL::allgather), and
those joined along the vocabulary (torch.cat)."""


def head_modules(rank: RankShare) -> tuple[Module, ...]:
    model, group = rank.model, rank.groups.tp
    if model.patches:
        return projector_modules(rank)
    normed = (Module(name="layernorm", works=((rank.norm(), 1),)),) if model.final_norm else ()
    if rank.run.tuning.task == REWARD:
        return (*normed, Module(name="head", works=((rank.gemm(1, model.hidden, dtype=rank.dtype), 1),)))
    vocabulary = rank.vocabulary
    width = vocabulary // rank.plan.tp
    of_loss = width if rank.execution.split_loss else vocabulary
    reductions = group.all_reduce(4 * rank.tokens) * LOSS_REDUCTIONS
    gathered = group.all_gather(rank.item_bytes * rank.tokens * vocabulary)
    loss = Exchange(heading=TP, forward=reductions if rank.execution.split_loss else gathered, backward=())
    whole = rank.item_bytes * rank.tokens * of_loss
    passes = bool(model.logit_cap) + (GATHERED_COPIES if of_loss > width else 0)
    between = ((Stream(dtype=rank.dtype, size_bytes=2 * whole), passes),) if passes else ()
    if rank.run.tuning.task == POLICY:
        loss_of_logits: Operator = Stream(dtype="fp32", size_bytes=POLICY_BYTES * rank.tokens * of_loss)
    else:
        loss_of_logits = CrossEntropy(dtype=rank.dtype, tokens=rank.tokens, vocab=of_loss)
    # the head stays in the wider precision where only the layers' products are in fp8
    logits = rank.gemm(width, model.hidden, dtype=rank.dtype)
    return (
        *normed,
        *_transform(rank),
        Module(name="head", works=((logits, 1),), exchanges=entering(rank)),
        Module(
            name="loss",
            works=(*between, (loss_of_logits, 1)),
            exchanges=(loss,),
        ),
    )


def _transform(rank: RankShare) -> tuple[Module, ...]:
    """The product, activation and norm before the logits of an encoder's masked tokens; every rank of tp has them whole."""
    model = rank.model
    if not model.head_transform:
        return ()
    product = rank.gemm(model.hidden, model.hidden, m=rank.rows, dtype=rank.dtype)
    activated = Gelu(dtype=rank.dtype, tokens=rank.rows, width=model.hidden)
    return (Module(name="transform", works=((product, 1), (activated, 1), (rank.norm(), 1))),)


def logits_again(rank: RankShare) -> Calls:
    """The product of the logits once more, which a policy's backward makes chunk by chunk."""
    if rank.run.tuning.task != POLICY:
        return ()
    width = padded_vocabulary(rank.model.vocab, rank.plan.tp) // rank.plan.tp
    return (Counted(call=rank.gemm(width, rank.model.hidden, dtype=rank.dtype), phase="forward"),)


def joining_module(rank: RankShare) -> Module:
    """Hidden state and the next token's embedding become one (DeepSeek-AI, arXiv 2412.19437, section 2.2)."""
    model = rank.model
    product = rank.gemm(model.hidden // rank.plan.tp, 2 * model.hidden)
    return Module(name="mtp", works=((rank.norm(), 2), (product, 1)))


def saved_by_head(sizes: Sizes) -> Saved:
    """Final norm, logits and loss of one prediction: T(e·H + 4V + 8) + 4 bytes in addition to the norm's, where the loss takes fp32 logits
    of any dtype."""
    if sizes.model.patches:
        return saved_by_projector(sizes)
    if sizes.rank.run.tuning.task == REWARD:
        return normed_input(sizes, "logits", is_module=False, not_only_products=True, input_of=("head",))
    if sizes.rank.run.tuning.task == POLICY:
        return _saved_by_policy(sizes)
    logits = logits_of_loss(sizes)
    per_logit = _loss(sizes)[sizes.item]
    capped = sizes.item * logits if sizes.model.logit_cap else 0.0
    return (
        *_saved_before_logits(sizes),
        SavedTensors(component="logits", kept=capped),
        SavedTensors(
            component="loss",
            # targets, and the number of tokens or Megatron-LM's mask of targets on other ranks
            kept=per_logit.kept * logits + INDEX * sizes.tokens + (sizes.tokens if sizes.profile.megatron else FP32),
            in_forward=(per_logit.forward - per_logit.kept) * logits,
            in_backward=(per_logit.backward - per_logit.kept) * logits,
        ),
    )


def _saved_before_logits(sizes: Sizes) -> Saved:
    """The final norm and what the output matrix reads; of an encoder's transform its input and that of its activation too."""
    normed = normed_input(sizes, "logits", is_module=False, not_only_products=True, input_of=("head",))
    if not sizes.model.head_transform:
        return normed
    transform = SavedTensors(component="logits", kept=2 * sizes.stream, in_backward=sizes.stream)
    return (*((norm(sizes),) if sizes.model.final_norm else ()), transform, *normed)


def _saved_by_policy(sizes: Sizes) -> Saved:
    """Final norm, the head's input, and per token the label, the log of the sum of exponentials, log-probability and entropy; while chunks
    are computed, their logits, and in the backward a gradient of the whole matrix, trained or not; that of sharded weights is counted with
    those of other units."""
    tokens, width = sizes.tokens, _vocabulary_on_rank(sizes)
    run = sizes.rank.run
    matrix = 0 if sizes.profile.shard_stage(run) == FSDP and not run.adapters.are_trained else width
    chunk = _logits_of_chunk(sizes.rank.execution.stack, tokens, width)
    return (
        *normed_input(sizes, "logits", is_module=False, not_only_products=True),
        SavedTensors(
            component="loss",
            kept=float((INDEX + 3 * FP32) * tokens),
            in_forward=float(POLICY_IN_FORWARD * chunk),
            in_backward=float(POLICY_IN_BACKWARD * chunk + sizes.item * (matrix + tokens) * sizes.hidden),
        ),
    )


def _logits_of_chunk(stack: str, tokens: int, width: int) -> int:
    """Logits of a chunk of so many tokens and entries of the vocabulary, by the month of the software; empty for the newest."""
    dated = [(of_tokens or tokens, entries) for until, of_tokens, entries in POLICY_CHUNKS if "" < stack < until]
    chunk_tokens, chunk_entries = (*dated, POLICY_CHUNK)[0]
    return min(tokens, chunk_tokens) * min(width, chunk_entries)


def logits_of_loss(sizes: Sizes) -> float:
    """Logits of a microbatch that a rank takes the loss of; one a token of a reward model."""
    if sizes.rank.run.tuning.task == REWARD:
        return float(sizes.tokens)
    return float(sizes.tokens) * _vocabulary_on_rank(sizes)


def _loss(sizes: Sizes) -> Mapping[int, LossBytes]:
    profile = sizes.profile
    fused = profile.fused_loss if sizes.rank.execution.fuse_loss else None
    divided = profile.parallel_loss if sizes.tp > 1 else None
    return LOSSES[fused or divided or profile.loss]


def _vocabulary_on_rank(sizes: Sizes) -> int:
    """Logits per token that a rank takes the loss of: Megatron-LM pads the vocabulary, torch's modules do not."""
    vocab, tp = sizes.model.vocab, sizes.tp if sizes.rank.execution.split_loss else 1
    return padded_vocabulary(vocab, tp) // tp if sizes.profile.megatron else -(-vocab // tp)


def saved_by_joining(sizes: Sizes) -> Saved:
    """Hidden state and the next token's embedding, both normed, concatenated into one product (DeepSeek-AI, arXiv 2412.19437,
    section 2.2): multi-token prediction, before the layer and head of each further token."""
    joined = sizes.input_item * sizes.input_rows * 2 * sizes.hidden
    product = SavedTensors(component="mtp", kept=joined, in_forward=2 * sizes.stream, in_backward=2 * sizes.stream)
    return (norm(sizes), norm(sizes), product)
