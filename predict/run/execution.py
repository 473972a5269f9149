"""How a framework runs the plan: its kernels, what it fuses and overlaps, and what it costs beside the work itself.

Each setting is an input of the run. `configs/frameworks/NAME.yml` holds what a framework sets, with the source of it.
"""

from __future__ import annotations

from dataclasses import dataclass

WHOLE_LAYERS = "torch"
ATTENTION_KERNELS = ("best", "fa2", "fa3", "cudnn", "triton", "unfused")
RECIPES = ("", "tensorwise", "delayed", "rowwise", "blockwise", "mxfp8")


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """What a framework decides. Times are µs."""

    framework: str = "torch"
    """`torch` runs whole layers as this project's own plain modules do; the others are made of operators."""
    attention: str = "best"
    """Attention kernel: the device's best, one by name, or `unfused` (two products with softmax between them)."""
    elementwise: str = "fused"
    """`fused` norms, activations and rotary embedding, or one `eager` kernel after the other."""
    clocks: str = "sustained"
    """`sustained` as in a long run, or `burst` as in a short measurement."""
    launch_floor_us: float = 0.0
    """What the host needs to launch one layer's phase (forward, recompute or backward), however small its kernels."""
    dropout: bool = False
    """Dropout on attention's weights and on both residual branches, as GPT-3 was trained."""
    gemm_efficiency: float = 0.0
    """Share of the 16-bit peak that the stack's largest products reach on this device; 0 for what its description says."""
    product_time: float = 1.0
    """Factor on the time of matrix products and attention, from a calibration."""
    memory_time: float = 1.0
    """Factor on the time of everything else that a device computes, from a calibration."""
    fp8_recipe: str = ""
    """How fp8 products are scaled; empty for tensorwise."""
    gradient_dtype: str = "fp32"
    """In what gradients are added up over microbatches and reduced over replicas: fp32, or the 16 bits of the weights."""
    fuse_gradients: bool = True
    """A weight's gradient is added to those of earlier microbatches by its product, not by a pass of its own."""
    optimizer: str = "adamw"
    """adamw, or muon for the matrices."""
    master_weights: bool = True
    """The optimizer keeps fp32 weights beside those that are trained with."""
    clip_gradients: bool = True
    """The step ends with the norm of all gradients."""
    loss_scaling: bool = False
    """fp16 training: gradients are searched for overflow and scaled back."""
    step_overhead_us: int = 0
    """Data loading, logging and the like, once a step."""
    overlap_gradients: bool = True
    """Gradients are reduced in buckets behind the last backward."""
    sharded_reduction: str = "reduce_scatter"
    """How gradients reach the ranks that hold their optimizer state: a reduce_scatter, or an all_reduce to all."""
    overlap_parameters: bool = True
    """Sharded weights are gathered behind the next forward."""
    overlap_tp: str = "backward"
    """Tensor-parallel collectives hide behind nothing (none), behind the product of the weight's gradient (backward), or
    piece by piece behind the products on either side (pipelined)."""
    overlap_ep: str = "none"
    """What hides the exchange of tokens between experts: none, shared_expert, or (another) microbatch."""
    overlap_p2p: bool = True
    """A stage goes on while its tensors travel to the next one."""
    split_p2p: bool = True
    """Each tensor-parallel rank sends its share of an activation, and the receivers gather it."""
    expert_load: str = "balanced"
    """How tokens fall on experts: balanced, or power_law_A."""
    stragglers: bool = False
    """Ranks wait for the slowest of them, the more the more there are."""

    @property
    def whole_layers(self) -> bool:
        """Whether layers are timed and priced in one piece."""
        return self.framework == WHOLE_LAYERS
