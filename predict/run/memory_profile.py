"""A memory profile: how a framework's layers and optimizer keep their tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeAlias

from predict.run.execution import ALLOCATORS, MASTER_DTYPES, MOMENT_DTYPES, RECIPES
from predict.run.training_run import TrainingRun
from sampling.files.schema import Key, Text, one_of
from sampling.hardware.cluster import DTYPE_BYTES


class LossBytes(NamedTuple):
    """Bytes per logit that a cross-entropy keeps, and the peaks of its forward and backward, kept bytes included."""

    kept: float
    forward: float
    backward: float


LOSSES: Mapping[str, Mapping[int, LossBytes]] = {
    # cross-entropy of logits copied by `.float()`: counted on torch 2.13, 4 / 10 / 12 to 14 and 4 / 8 / 12 to 16 bytes
    "upcast": {2: LossBytes(kept=4, forward=10, backward=14), 4: LossBytes(kept=4, forward=8, backward=16)},
    # Megatron-LM's `vocab_parallel_cross_entropy`: an fp32 copy becomes the softmax and then the gradient in place, next to the 16-bit
    # logits or their gradient
    "in-place": {2: LossBytes(kept=4, forward=6, backward=6), 4: LossBytes(kept=4, forward=4, backward=4)},
    # Megatron-Core's fused_cross_entropy.py: what it compiles writes the exponentials, and later the gradient, to a further fp32 tensor
    # before copying them back (the file's note on in-place semantics)
    "megatron-fused": {2: LossBytes(kept=4, forward=10, backward=10), 4: LossBytes(kept=4, forward=8, backward=8)},
    # `upcast` whose caller holds the fp32 logits to the end of the backward (prime-rl, trainer/sft/train.py: `del logits` leaves `out`)
    "upcast-and-held": {2: LossBytes(kept=8, forward=10, backward=18), 4: LossBytes(kept=8, forward=8, backward=16)},
    # `upcast` without the logits themselves, which the pipeline holds (`held_logits`): the copy by `.float()` and the log-probabilities
    # in the forward; these and the gradients of loss and copy, all in fp32, in the backward
    "upcast-of-held": {2: LossBytes(kept=4, forward=8, backward=12), 4: LossBytes(kept=4, forward=4, backward=12)},
    # torch's `loss_parallel` over logits that tp divides, copied by `.float()`: logits, their shifted copy and its exponentials in the
    # forward; the log-softmax, the one-hot gradient, exponentials and sum in the backward (torch, distributed/tensor/parallel/loss.py)
    "loss-parallel": {2: LossBytes(kept=4, forward=14, backward=16), 4: LossBytes(kept=4, forward=12, backward=16)},
    # Transformer Engine's cross-entropy: the logits alone are kept, and the backward writes their gradient over them
    # (transformer_engine/pytorch/cross_entropy.py)
    "transformer-engine": {size: LossBytes(kept=size, forward=size, backward=size) for size in (2, 4)},
    # a compiled cross-entropy: the logits alone are kept, and the backward writes their gradient straight from them (torch's developers
    # in Dao-AILab/quack, issue 48: nothing for the forward, the gradient of its input for the backward)
    "compiled": {2: LossBytes(kept=2, forward=2, backward=4), 4: LossBytes(kept=4, forward=4, backward=8)},
    # head and loss in one, chunk by chunk, with the gradient taken in the forward, so that whole logits never exist (Liger kernels: Hsu
    # et al., arXiv 2410.10989, section 3.2)
    "chunked": {size: LossBytes(kept=0, forward=0, backward=0) for size in (2, 4)},
}
"""Kind of cross-entropy → its bytes, for each size of a logit's element in bytes."""
LossName: TypeAlias = Annotated[str, Key(choices=lambda: tuple(LOSSES))]


@dataclass(frozen=True, kw_only=True, slots=True)
class Buffer:
    """Memory other than state and activations: `size_bytes` ± `width_bytes`, and where the figure comes from."""

    name: str
    size_bytes: Annotated[float, Key(minimum=0, maximum=1e15)]
    width_bytes: Annotated[float, Key(minimum=0, maximum=1e15)]
    source: str
    between_steps: bool = True
    """It stays allocated from one step to the next."""


def _in_gradient_dtype(run: TrainingRun) -> int:
    return DTYPE_BYTES[run.execution.gradient_dtype]


def _of_zero(run: TrainingRun) -> int:
    """ZeRO's fp16 optimizer accumulates in fp16, whatever is reduced (DeepSpeed, stage_1_and_2.py); its bf16 optimizer keeps a 16-bit
    gradient in addition to an fp32 one (bf16_optimizer.py)."""
    if run.precision == "fp16":
        return DTYPE_BYTES["fp16"]
    fp32_too = run.execution.gradient_dtype == "fp32"
    return _in_gradient_dtype(run) + (DTYPE_BYTES["bf16"] if fp32_too else 0)


GRADIENT_BYTES: Mapping[str, Callable[[TrainingRun], int]] = {
    "gradient_dtype": _in_gradient_dtype,
    "fp32": lambda _: DTYPE_BYTES["fp32"],
    "deepspeed-zero": _of_zero,
}
"""How gradients are kept → bytes per gradient in a run of 16-bit or narrower weights, while microbatches are accumulated."""


FSDP = 3
"""The ZeRO stage that divides the weights too."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MemoryProfile:
    """The traits by which frameworks differ in what they keep, as `memory` of a file in `configs/frameworks` gives them.

    The defaults are those of transformers in torch's own operators.
    """

    name: Text = "eager"
    """The name that answers print."""
    like: str | None = None
    """The framework from whose profile this one differs in the traits given; without it, the one that the framework itself is like."""
    uncompiled: str | None = None
    """The framework whose profile a run with `execution.elementwise: eager` has, where that is another one."""

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
    eager_if_repeated: bool = False
    """Layers that are repeated whole run, and keep their tensors, operator by operator: what reads values inside a checkpoint makes
    torch.compile leave all of it to torch's own operators (pytorch, issues 135816 and 139989)."""
    transformer_engine: bool = False
    """The layers' products run in Transformer Engine."""
    megatron_core: bool = False
    """Megatron-Core's schedules, optimizer and head."""
    megatron: bool = False
    """Megatron-LM's layers: with sequence parallelism a product keeps its share of its input and gathers it again (arXiv
    2205.05198, section 4.2.2), the vocabulary is padded, and masks of other ranks' tokens are kept."""
    weighted_activation: bool = False
    """Experts weigh their rows inside the activation, so that no expert's output is kept (Megatron-Core, moe/experts.py)."""
    weighs_in_fp32: bool = False
    """Operator by operator, the outputs of experts are brought to fp32 to be weighed, and kept so."""
    frees_recomputed_outputs: bool = False
    """The output of a recomputed module is freed as well (Megatron-Core's `CheckpointWithoutOutput`)."""
    narrow_inputs: bool = False
    """Products in fp8 or four bits keep their inputs quantised (Transformer Engine's Linear saves the quantised tensor, by columns, for
    the gradient of its weight; torchao's keeps the 16-bit one)."""
    gathers_rotary: bool = False
    """Each layer looks up the cosines and sines of its tokens' positions, for queries and for keys."""
    keeps_joint_qkv: bool = False
    """The values stay a view of the joint product of query, key and value, in addition to the rotated queries and keys."""
    loss: LossName = "upcast"
    """The cross-entropy."""
    held_logits: int = 0
    """Microbatches whose logits the pipeline's buffers hold on the last stage, whatever it computes."""
    holds_stage_outputs: bool = False
    """The pipeline's buffers hold a stage's input and output from its forward to its backward."""
    sends_in_pairs: bool = False
    """Stages send by torch.distributed.send in the group of all ranks, whose every pair is a communicator of its own."""
    parallel_loss: LossName | None = None
    """The same where tp divides the logits, if that differs."""
    fused_loss: LossName | None = None
    """The same with `execution.fuse_loss`, where the framework offers it."""

    sequence_parallelism: bool = True
    """The framework offers sequence parallelism."""
    gradient_buffers: bool = False
    """Gradients live in buffers allocated before the first step; otherwise the first backward of each step allocates them."""
    gradients: Annotated[str, Key(choices=lambda: tuple(GRADIENT_BYTES))] = "gradient_dtype"
    """The dtype in which gradients are kept: `execution.gradient_dtype`, fp32, or the dtype of DeepSpeed's ZeRO."""
    fp32_shards: bool = False
    """Under ZeRO-3 the shards are the fp32 weights that the optimizer updates; a 16-bit weight exists while it is gathered."""
    shards_alone: bool = False
    """A rank without replicas shards its weights too: they are fp32, and 16-bit copies exist while they are gathered."""
    fp8_gather: bool = False
    """ZeRO-3 gathers the layers' weights in fp8 where tensors are scaled as a whole."""
    elements_in_transfer: Annotated[int, Key(minimum=0, maximum=10**12)] = 0
    """Elements of whole gradients that ZeRO-2 and 3 may hold while they are reduced, at least two layers' under ZeRO-3; half as many
    weights are gathered ahead, those of the unit that is computed among them. 0: a unit at a time."""
    narrow_weight_copies: bool = False
    """Products in fp8 or four bits keep quantised copies of the weights, whole on every rank (`state.narrow_weight_bytes`)."""
    fp8_primary: tuple[Annotated[str, one_of(*RECIPES)], ...] = ()
    """Scalings of fp8 under which the layers' weights are kept in fp8 alone, unless `execution.fp8_weights` says otherwise."""
    master_dtype: Annotated[str, one_of(*MASTER_DTYPES)] = "fp32"
    """Dtype of the master weights, unless `execution.master_dtype` says otherwise."""
    moment_dtype: Annotated[str, one_of(*MOMENT_DTYPES)] = "fp32"
    """Dtype of the optimizer's moments, unless `execution.moment_dtype` says otherwise."""
    latent_moment_dtype: Annotated[str, one_of("", *MOMENT_DTYPES)] = ""
    """The same of models with latent attention, if that differs."""
    allocator: Annotated[str, one_of(*ALLOCATORS)] = "segments"
    """How torch's allocator takes memory, unless `execution.allocator` says otherwise."""
    dummy_gradients: bool = False
    """A product adds to the main gradient where `execution.fuse_gradients` is set, and autograd gets a dummy of the weight's shape."""
    fp32_update_copies: bool = False
    """The optimizer's step makes an fp32 copy of its share of 16-bit gradients."""
    fragmentation: float | None = None
    """Slack of the allocator over activations, working sets and buffers under tensor parallelism; None for its mean over all tensors
    (`buffers.slack_of`)."""
    device_overhead: Buffer | None = None
    """All memory outside tensors, where it was measured as one figure; otherwise context, communication and slack add up to it."""

    def gradient_bytes(self, run: TrainingRun) -> int:
        """Bytes per gradient in a run of 16-bit or narrower weights, while microbatches are accumulated."""
        return GRADIENT_BYTES[self.gradients](run)

    def shard_stage(self, run: TrainingRun) -> int:
        """The ZeRO stage by which state is kept: the plan's, or FSDP's of a rank without replicas."""
        return FSDP if self.is_alone(run) else run.plan.zero

    def is_alone(self, run: TrainingRun) -> bool:
        """Whether the state of a rank without replicas is kept as if it were sharded."""
        plan = run.spread or run.plan
        return self.shards_alone and plan.dp * plan.cp == 1
