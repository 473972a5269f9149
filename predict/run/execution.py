"""Execution: how a framework runs the plan: its kernels, what it fuses and overlaps, and the overheads in addition to the work itself.

Each setting is an input of the run. `configs/frameworks/NAME.yml` holds what a framework sets, with its sources.
"""

from dataclasses import dataclass
from typing import Annotated

from sampling.arithmetic.expert_rows import BALANCED
from sampling.files.schema import Key, one_of
from sampling.operators.experts import PER_EXPERT

WHOLE_LAYERS = "torch"
OF_MIXTURES = (
    "overlap_ep",
    "dispatch",
    "expert_launch_us",
    "expert_products",
    "router_product",
    "fuse_permute",
    "expert_load",
)
"""Settings that move a mixture of experts alone."""
ATTENTION_KERNELS = ("best", "fa1", "fa2", "fa3", "fa4", "cudnn", "sdpa", "flex", "triton", "unfused")
CUDNN_IN_TORCH, CUDNN_FIRST_ON = "2025-08", ("hopper", "blackwell")
"""Month of torch 2.8, from which scaled_dot_product_attention takes cuDNN's kernel first, and the architectures where it does: compute
capabilities 9.0 and 10.0, later 10.3 too (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_prefer_cudnn_attention).
FlashAttention-2 is its first before and elsewhere."""
ADDING_NOTHING = ("fa1", "fa2", "fa3", "fa4")
"""Kernels that take no numbers for each head and pair of tokens (github.com/Dao-AILab/flash-attention, issue 332), and that transformers
refuses for T5 (modeling_t5.py, `_supports_flash_attn`)."""
ADDING = "sdpa"
"""What transformers runs for T5 in their place, from 2026-07 on."""
IN_TURN = "in_turn"
NATURAL = "natural"
UNTOUCHED = "untouched"
PRODUCT_TIME = Key(minimum=0.3, maximum=3.0)
MEMORY_TIME = Key(minimum=0.3, maximum=3.0)
IN_NODE_TIME = Key(minimum=0.3, maximum=4.0)
LAUNCH_TIME = Key(minimum=0.3, maximum=3.0)
BETWEEN_NODES_TIME = Key(minimum=0.8, maximum=40.0)
WAITING_TIME = Key(minimum=0.2, maximum=5.0)
EXPOSED_TIME = Key(minimum=0.4, maximum=2.5)
"""Bounds of factors on times: beyond them a factor stands for something else than its name says. The first four reach as far as the
rows of another CPU may be off; on rows of the device itself a calibration's priors keep them near 1."""
DISPATCHERS = ("alltoall", "allgather", "deepep", "hybridep")
RECIPES = ("", "tensorwise", "delayed", "rowwise", "blockwise", "mxfp8")
COPIES, PRIMARY = "copies", "primary"
REMAINDER = "remainder"
MASTER_DTYPES = ("fp32", "fp16", REMAINDER)
MOMENT_DTYPES = ("fp32", "bf16", "fp16", "fp8")
EXPANDABLE = "expandable"
ALLOCATORS = ("segments", EXPANDABLE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """The choices of a framework. Times are µs."""

    framework: str = "torch"
    """The framework whose settings hold where none is given: `torch` times whole layers of this project's own plain modules,
    the others are made of operators. Default: torch on a CPU, else megatron-core."""
    attention: Annotated[str, one_of(*ATTENTION_KERNELS)] = "best"
    """Attention kernel: the device's best, one by name, `sdpa` (the one that torch's scaled_dot_product_attention takes on the device, by
    the month in `stack`), or `unfused` (two products with softmax between them)."""
    fp8_attention: bool = False
    """Queries, keys and values are brought to fp8 for the products of attention (Megatron's fp8_dot_product_attention)."""
    elementwise: Annotated[str, one_of("fused", "eager")] = "fused"
    """`fused` activations, rotary embedding and LayerNorms, or one `eager` kernel after the other."""
    fuse_rms_norm: bool = True
    """An RMSNorm is one kernel, not torch's operators on fp32 copies."""
    fuse_softmax: bool = True
    """The scores of `unfused` attention are scaled, masked and normalised by one kernel, not by one after the other."""
    fuse_gate: bool = True
    """Gate and up projection of a feed-forward are one product; otherwise they are two, and each reduces the gradient of their input
    over tp."""
    stack: Annotated[str, one_of("", pattern=r"20\d\d-(0[1-9]|1[0-2])")] = ""
    """Month of the software, such as 2025-09: kernels for a young architecture get faster; empty for software that is settled."""
    clocks: Annotated[str, one_of("sustained", "burst")] = "sustained"
    """Clocks of a long run (`sustained`) or of a short measurement (`burst`)."""
    launch_floor_us: Annotated[float, Key(maximum=1e6)] = 0.0
    """µs that the host needs to launch one layer's phase (forward, recompute or backward), however small its kernels."""
    synchronous_launches: bool = False
    """The host waits for each kernel before it launches the next (CUDA_LAUNCH_BLOCKING=1), so that its time adds to theirs."""
    dropout: bool = False
    """Dropout on attention's weights and on both residual branches, as GPT-3 was trained."""
    gemm_efficiency: Annotated[float, Key(minimum=0.01, maximum=1)] = 0.0
    """Share of the 16-bit peak that the framework's largest products reach on this device; 0 for the share in the hardware
    file."""
    product_time: Annotated[float, PRODUCT_TIME] = 1.0
    """Factor on the time of matrix products and attention, from a calibration."""
    memory_time: Annotated[float, MEMORY_TIME] = 1.0
    """Factor on the time of all other kernels, from a calibration."""
    in_node_time: Annotated[float, IN_NODE_TIME] = 1.0
    """Factor on the time of communication inside a node, from a calibration."""
    between_nodes_time: Annotated[float, BETWEEN_NODES_TIME] = 1.0
    """Factor on the time of communication between nodes, from a calibration."""
    waiting_time: Annotated[float, WAITING_TIME] = 1.0
    """Factor on the time that stragglers cost, from a calibration."""
    exposed_time: Annotated[float, EXPOSED_TIME] = 1.0
    """Factor on the part of overlapped communication that compute does not hide, from a calibration."""
    fp8_recipe: Annotated[str, one_of(*RECIPES)] = ""
    """How fp8 products are scaled; empty for tensorwise."""
    wide_first_layers: int = 0
    """First layers whose products stay in 16 bits in a run of fp8 or four bits (Megatron's num_layers_at_start_in_bf16)."""
    wide_last_layers: int = 0
    """The same of the last layers (num_layers_at_end_in_bf16)."""
    gradient_dtype: Annotated[str, one_of("fp32", "bf16", "fp16")] = "fp32"
    """Dtype in which gradients are added up over microbatches and reduced over replicas: fp32, or the weights' 16 bits."""
    fuse_gradients: bool = True
    """A weight's gradient is added to those of earlier microbatches by its own product, not by a separate pass."""
    reduction_dtype: Annotated[str, one_of("", "fp32", "bf16", "fp16")] = ""
    """Dtype in which gradients are reduced over replicas; empty for gradient_dtype."""
    fuse_loss: bool = False
    """The loss is one kernel or few: Megatron's cross_entropy_loss_fusion (native), which takes more memory while it runs, torchtitan's
    compiled loss or llm-foundry's fused one, which take less."""
    blas_workspace_mib: Annotated[float, Key(maximum=1024)] = 0.0
    """MiB of each of cuBLAS's workspaces, as CUBLAS_WORKSPACE_CONFIG sets them; 0 for torch's default on the device."""
    optimizer: Annotated[str, one_of("adamw", "muon")] = "adamw"
    """adamw, or muon for the matrices."""
    master_weights: bool = True
    """The optimizer keeps fp32 weights in addition to those that are trained with."""
    fp8_weights: Annotated[str, one_of("", COPIES, PRIMARY)] = ""
    """How fp8 products find the layers' weights: as fp8 `copies` that stand next to 16-bit weights, or as the weights themselves
    (`primary`: Megatron's fp8_param_gather); empty for what the framework's recipes do."""
    master_dtype: Annotated[str, one_of("", *MASTER_DTYPES)] = ""
    """Dtype of the master weights: fp32, fp16, or the 16 bits of an fp32 number that a bf16 weight lacks (`remainder`), the latter two by
    an optimizer that takes 16-bit gradients as they are (Megatron's use_precision_aware_optimizer); empty for the framework's."""
    moment_dtype: Annotated[str, one_of("", *MOMENT_DTYPES)] = ""
    """Dtype of the optimizer's moments; empty for the framework's."""
    allocator: Annotated[str, one_of("", *ALLOCATORS)] = ""
    """How torch's allocator takes memory from the device: in segments of fixed size, or in expandable ones (PYTORCH_CUDA_ALLOC_CONF:
    expandable_segments), which leave less of it unused; empty for the framework's."""
    optimizer_launch_us: Annotated[float, Key(maximum=1e6)] = 0.0
    """µs in which the host launches the optimizer while the device waits, as it does where the host first reads the norm of the gradients
    (`clip_gradients`) or whether one overflowed (`loss_scaling`)."""
    clip_gradients: bool = True
    """The step ends with the norm of all gradients."""
    loss_scaling: bool = False
    """fp16 training: gradients are searched for overflow and scaled back."""
    step_overhead_us: int = 0
    """µs per step of data loading, logging and the like."""
    overlap_gradients: bool = True
    """Gradients are reduced in buckets behind the last backward."""
    sharded_reduction: Annotated[str, one_of("reduce_scatter", "all_reduce")] = "reduce_scatter"
    """How gradients reach the ranks that hold their optimizer state: a reduce_scatter, or an all_reduce to all."""
    overlap_parameters: bool = True
    """Sharded weights are gathered behind the next forward."""
    copy_gathered: bool = False
    """A gathered layer is copied out of one buffer into its weights, as FSDP2 does."""
    sharding_contention: Annotated[float, Key(maximum=1)] = 0.3
    """Share of the time of hidden communication of sharded weights that compute at the same time loses, where no samples show it."""
    overlap_tp: Annotated[str, one_of("none", "backward", "pipelined")] = "backward"
    """The work that hides tensor-parallel collectives: nothing (none), the product of the weight's gradient (backward), or the products
    on either side, piece by piece (pipelined)."""
    gather_again: bool = True
    """Sequence parallelism gathers the input of a product again in the backward; otherwise each rank keeps it whole."""
    split_loss: bool = True
    """Each tensor-parallel rank takes the loss over its part of the vocabulary; otherwise each gathers all logits and takes all of it."""
    recompute_ends: bool = False
    """Full recomputation repeats the embedding and the head too, not the layers alone."""
    overlap_ep: Annotated[str, one_of("none", "shared_expert", "microbatch")] = "none"
    """The work that hides the exchange of tokens between experts: none, shared_expert, or (another) microbatch."""
    dispatch: Annotated[str, one_of(*DISPATCHERS)] = "alltoall"
    """How tokens reach their experts: alltoall (a copy per expert, by NCCL), allgather (every token to every rank), or a copy per
    node, forwarded there to each rank, by the kernels of deepep or hybridep."""
    cuda_graphs: Annotated[str, one_of("none", "layers", "full")] = "none"
    """What the host launches as CUDA graphs: nothing, a mixture layer up to its exchange of tokens (layers), or the whole step (full),
    which needs kernels that never ask the host how many rows an expert has."""
    expert_launch_us: Annotated[float, Key(maximum=1e6)] = 0.0
    """µs that the host needs to launch a mixture layer's forward without graphs, however small its kernels; the backward takes twice
    as long."""
    expert_products: Annotated[str, one_of("grouped", PER_EXPERT, IN_TURN)] = "grouped"
    """The products of a rank's experts: one grouped kernel, a product per expert on several streams (per_expert), as Transformer
    Engine's GroupedLinear runs them, or one expert after the other (in_turn), as Megatron's SequentialMLP."""
    router_product: Annotated[str, one_of("fp32", "tf32")] = "fp32"
    """The product of an fp32 router: on CUDA cores (fp32), or on tensor cores (tf32)."""
    fuse_permute: bool = False
    """Tokens are sorted by expert and added up again by one kernel each, not by torch's sorting, gathering and atomic sums."""
    overlap_p2p: bool = True
    """A stage goes on while its tensors travel to the next one."""
    split_p2p: bool = True
    """Each tensor-parallel rank sends its share of an activation, and the receivers gather it."""
    expert_load: Annotated[
        str,
        Key(
            choices=lambda: (BALANCED, NATURAL, UNTOUCHED),
            pattern=r"power_law_\d+(\.\d+)?|\d+(\.\d+)?(,\s*\d+(\.\d+)?)*",
            takes_number=True,
        ),
    ] = BALANCED
    """How tokens fall on experts: balanced, as benchmarks force it (Megatron's moe_router_force_load_balancing); natural, as a trained
    router with an auxiliary loss leaves it; untouched, as a router does that nothing balances; power_law_A; the measured load of the
    busiest rank of ep over the mean, as 1.4, from 1 to the number of experts, which is `experts.load: 1.4` too; or how often each expert
    is chosen, separated by commas. The first two are `experts.routing: forced` and `natural` too."""
    stragglers: bool = False
    """Ranks wait for the slowest of them, and wait longer the more ranks there are."""

    @property
    def reduced_dtype(self) -> str:
        """Dtype in which gradients cross the network."""
        return self.reduction_dtype or self.gradient_dtype

    def attention_kernel_on(self, architecture: str, *, adds_positions: bool = False) -> str:
        """The kernel of attention by its own name on GPUs of an architecture; empty for the device's best. Of torch's, the memory-efficient
        one alone takes numbers that are added to the scores and trained (transformers, integrations/sdpa_attention.py,
        `create_position_bias_mask`)."""
        has_cudnn_first = architecture in CUDNN_FIRST_ON and not "" < self.stack < CUDNN_IN_TORCH
        of_torch = "efficient" if adds_positions else "cudnn" if has_cudnn_first else "fa2"
        return {"best": "", "sdpa": of_torch}.get(self.attention, self.attention)

    @property
    def beside_work_us(self) -> float:
        """µs of a step in which the device waits for the host, whatever the work."""
        reads_gradients = self.clip_gradients or self.loss_scaling
        return self.step_overhead_us + (self.optimizer_launch_us if reads_gradients else 0.0)

    @property
    def wide_layers(self) -> int:
        """Layers at both ends whose products stay in 16 bits."""
        return self.wide_first_layers + self.wide_last_layers

    @property
    def whole_layers(self) -> bool:
        """Whether layers are this project's own modules in plain torch, timed and priced in one piece where there is a module for them."""
        return self.framework == WHOLE_LAYERS

    @property
    def joins_gate(self) -> bool:
        """Whether gate and up projection are one product; never in plain torch, where each matrix is a product of its own."""
        return self.fuse_gate and not self.whole_layers

    @property
    def adds_in_products(self) -> bool:
        """Whether a weight's product adds its gradient to those of earlier microbatches; in plain torch autograd adds it afterwards."""
        return self.fuse_gradients and not self.whole_layers
