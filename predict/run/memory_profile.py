"""A memory profile: how a framework's layers and optimizer keep their tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from predict.run.training_run import TrainingRun
from sampling.hardware.cluster import DTYPE_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class LossBytes:
    """Bytes per logit that a cross-entropy keeps, and the peaks of its forward and backward, kept bytes included."""

    kept: float
    forward: float
    backward: float


UPCAST_LOSS: Mapping[int, LossBytes] = {
    2: LossBytes(kept=4, forward=10, backward=14),
    4: LossBytes(kept=4, forward=8, backward=16),
}
"""Cross-entropy of logits copied by `.float()`: counted on torch 2.13, 4 / 10 / 12 to 14 and 4 / 8 / 12 to 16 bytes."""
IN_PLACE_LOSS: Mapping[int, LossBytes] = {
    2: LossBytes(kept=4, forward=6, backward=6),
    4: LossBytes(kept=4, forward=4, backward=4),
}
"""Megatron-LM's `vocab_parallel_cross_entropy`: an fp32 copy becomes the softmax and then the gradient in place, beside the
16-bit logits or their gradient."""

FUSED_LOSS: Mapping[int, LossBytes] = {
    2: LossBytes(kept=4, forward=10, backward=10),
    4: LossBytes(kept=4, forward=8, backward=8),
}
"""Megatron-Core's fused_cross_entropy.py: what it compiles writes the exponentials, and later the gradient, to a further fp32
tensor before copying them back (the file's note on in-place semantics)."""

HELD_LOGITS_LOSS: Mapping[int, LossBytes] = {
    2: LossBytes(kept=4, forward=8, backward=12),
    4: LossBytes(kept=4, forward=4, backward=12),
}
"""UPCAST_LOSS without the logits themselves, which the pipeline holds (`held_logits`): the copy by `.float()` and the log-probabilities
in the forward; these and the gradients of loss and copy, all in fp32, in the backward."""
PARALLEL_LOSS: Mapping[int, LossBytes] = {
    2: LossBytes(kept=4, forward=14, backward=16),
    4: LossBytes(kept=4, forward=12, backward=16),
}
"""torch's `loss_parallel` over logits that tp divides, copied by `.float()`: logits, their shifted copy and its exponentials in the
forward; the log-softmax, the one-hot gradient, exponentials and sum in the backward (torch, distributed/tensor/parallel/loss.py)."""
COMPILED_LOSS: Mapping[int, LossBytes] = {
    2: LossBytes(kept=2, forward=2, backward=4),
    4: LossBytes(kept=4, forward=4, backward=8),
}
"""A compiled cross-entropy: the logits alone are kept, and the backward writes their gradient straight from them (torch's
developers in Dao-AILab/quack, issue 48: nothing for the forward, the gradient of its input for the backward)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Buffer:
    """Memory beside state and activations: `size_bytes` ± `width_bytes`, and where the figure comes from."""

    name: str
    size_bytes: float
    width_bytes: float
    source: str
    between_steps: bool = True
    """It stays allocated from one step to the next."""


def in_gradient_dtype(run: TrainingRun) -> int:
    """Bytes per gradient of a framework that keeps gradients in `execution.gradient_dtype`."""
    return DTYPE_BYTES[run.execution.gradient_dtype]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MemoryProfile:
    """The traits by which frameworks differ in what they keep. The defaults are those of transformers in torch's own operators."""

    name: str
    """The name that `memory:` of a file in `configs/frameworks` gives."""
    uncompiled: str = ""
    """The profile of a run with `execution.elementwise: eager`, where that is another one."""

    fused_norm: bool = False
    """Norms keep their input and one or two statistics per row; otherwise each operator of Hugging Face's norms keeps its own."""
    fused_activation: bool = False
    """A gated activation keeps its two inputs; otherwise the result of the nonlinearity too."""
    fused_softmax: bool = False
    """Unfused attention masks and normalises its scores in their own dtype; otherwise Hugging Face's rotary models keep an fp32
    softmax and its cast, and the others their causal mask."""
    fused_latent: bool = False
    """Latent attention copies the values out of its up-projection, which is freed; otherwise all of the projection stays."""
    flash_linear: bool = False
    """Linear attention runs the kernels of flash-linear-attention; otherwise torch's operators, chunk by chunk."""
    static_rotary: bool = False
    """The tables of cosines and sines belong to the model; otherwise each forward makes them."""
    compiled: bool = False
    """torch.compile recomputes in the backward what is cheap to compute from the inputs and outputs of products."""
    transformer_engine: bool = False
    """The layers' products run in Transformer Engine."""
    megatron_core: bool = False
    """Megatron-Core's schedules, optimizer and head."""
    megatron: bool = False
    """Megatron-LM's layers: with sequence parallelism a product keeps its share of its input and gathers it again (arXiv
    2205.05198, section 4.2.2), the vocabulary is padded, and masks of other ranks' tokens are kept."""
    weighted_activation: bool = False
    """Experts weigh their rows inside the activation, so that no expert's output is kept (Megatron-Core, moe/experts.py)."""
    frees_recomputed_outputs: bool = False
    """The output of a recomputed module is freed as well (Megatron-Core's `CheckpointWithoutOutput`)."""
    fp8_inputs: bool = False
    """fp8 products keep their inputs in fp8 (Transformer Engine's Linear saves the quantised tensor for the gradient of its
    weight; torchao's keeps the 16-bit one)."""
    gathers_rotary: bool = False
    """Each layer looks up the cosines and sines of its tokens' positions, for queries and for keys."""
    keeps_joint_qkv: bool = False
    """The values stay a view of the joint product of query, key and value, beside the rotated queries and keys."""
    loss: Mapping[int, LossBytes] = field(default_factory=lambda: UPCAST_LOSS)
    """Bytes of the loss, for each size of a logit's element in bytes."""
    held_logits: int = 0
    """Microbatches whose logits the pipeline's buffers hold on the last stage, whatever it computes."""
    holds_stage_outputs: bool = False
    """The pipeline's buffers hold a stage's input and output from its forward to its backward."""
    sends_in_pairs: bool = False
    """Stages send by torch.distributed.send in the group of all ranks, whose every pair is a communicator of its own."""
    parallel_loss: Mapping[int, LossBytes] | None = None
    """The same where tp divides the logits, if that differs."""
    fused_loss: Mapping[int, LossBytes] | None = None
    """The same with `execution.fuse_loss`, where the framework offers it."""

    sequence_parallelism: bool = True
    """The framework offers sequence parallelism."""
    gradient_buffers: bool = False
    """Gradients live in buffers allocated before the first step; otherwise the first backward of each step allocates them."""
    gradient_bytes: Callable[[TrainingRun], int] = in_gradient_dtype
    """Bytes per gradient in a run of 16-bit or narrower weights, while microbatches are accumulated."""
    fp32_shards: bool = False
    """Under ZeRO-3 the shards are the fp32 weights that the optimizer updates; a 16-bit weight exists while it is gathered."""
    fp8_gather: bool = False
    """ZeRO-3 gathers the layers' weights in fp8 where tensors are scaled as a whole."""
    fp8_weight_copies_bytes: int = 0
    """Bytes per weight of the copies that fp8 products keep, whole on every rank."""
    dummy_gradients: bool = False
    """A product adds to the main gradient where `execution.fuse_gradients` is set, and autograd gets a dummy of the weight's shape."""
    fp32_update_copies: bool = False
    """The optimizer's step makes an fp32 copy of its share of the gradients in fp16 runs."""
    fragmentation: float | None = None
    """Slack of the allocator over activations, working sets and buffers under tensor parallelism; None for its mean over all tensors
    (`buffers.slack_of`)."""
    device_overhead: Buffer | None = None
    """All memory outside tensors, where it was measured as one figure; otherwise context, communication and slack add up to it."""
