"""Memory other than state and activations, each figure with its source and width: buffers, the allocator's slack, the context.

Three counters report a rank's memory: `allocated` (torch.cuda.max_memory_allocated: tensors), `reserved` (…max_memory_reserved:
with the allocator's slack) and the device's own (nvidia-smi: with context and communication libraries).

Counted elsewhere: Megatron-Core's gradient buckets, which are views of the gradients; FSDP's gathered weights and unreduced
gradients, part of an action's working set (`state`); tokens sent to experts, part of a layer's working set (`activations`).
"""

from collections.abc import Iterable

from predict.layers.head import logits_of_loss
from predict.layers.saved_tensors import Sizes
from predict.memory.state import StateBytes, update_bytes
from predict.rank.share import RankShare, weight_bytes
from predict.run.execution import EXPANDABLE
from predict.run.memory_profile import Buffer, MemoryProfile
from predict.run.training_run import TrainingRun
from sampling.cells.matrices import Shape
from sampling.files.faults import counted
from sampling.operators.experts import PER_EXPERT
from sampling.units import MIB

RESERVED_OVER_ALLOCATED = 1.048
"""Mean of 37 Megatron-Core runs on B200 that state both figures (SimuMax: 1.03 to 1.09)."""
RESERVED_WIDTH = 0.042
"""Distance from that mean to the largest of those runs."""
EXPANDABLE_OVER_ALLOCATED, EXPANDABLE_WIDTH = 1.02, 0.02
"""The same of expandable segments; assumed: what is not in use can be mapped elsewhere, in pages of 2 and 20 MiB (torch,
CUDACachingAllocator.cpp, ExpandableSegment), so that what stays unused is pages that are used in part."""
CONTEXT_BYTES, CONTEXT_WIDTH = 0.6e9, 0.3e9
"""CUDA context with the kernels of torch and its libraries: 0.3 to 0.9 GB by device and libraries; an assumption, not measured
here, hence the width."""
PROCESS_BYTES, PROCESS_WIDTH = 0.25e9, 0.1e9
"""Resident memory of a CPU process after `import torch`: 0.22 GB measured with torch 2.13, and libraries that it loads later."""
COMMUNICATOR_BYTES, COMMUNICATOR_WIDTH = 0.6e9, 0.2e9
"""Memory of one NCCL communicator: 544 MB of two A100 and 688 MB of more, linked by NVLink (NVIDIA/nccl, issue 964, August 2023);
410 MB of one rank alone (sgl-project/sglang, pull request 35538)."""
BLAS_BYTES = {"hopper": 32 * MIB, "blackwell": 32 * MIB}
BLAS_ELSEWHERE_BYTES = 8.125 * MIB
"""cuBLAS's workspace in torch's allocator (CUBLAS_WORKSPACE_CONFIG: 32 MiB from Hopper on, otherwise :4096:2:16:8)."""
BLAS_HANDLES = 2
"""cuBLAS handles that keep a workspace each: the one of the forward's thread and the one of autograd's (torch, CublasHandlePool.cpp)."""
TE_BLAS_BYTES = {"hopper": 32 * MIB, "blackwell": 32 * MIB}
TE_BLAS_ELSEWHERE_BYTES = 4 * MIB
"""Transformer Engine's own workspace, in addition to torch's (cpp_extensions/gemm.py, `get_cublas_workspace_size_bytes`)."""
TE_USER_BUFFER_STREAMS = 3
"""Its further workspaces where products overlap with tensor-parallel collectives (cpp_extensions/gemm.py, `get_cublas_workspace`)."""
TE_GROUPED_STREAMS = 4
"""Streams of its grouped products, each with a further workspace (`get_num_cublas_streams`)."""
DEEPEP_CHANNELS, DEEPEP_PEERS, DEEPEP_CHUNK, DEEPEP_RDMA_CHUNK = 10, 8, 288, 128
"""DeepEP's channels at its default of 20 multiprocessors, the ranks of a node, and the tokens that a channel holds for each peer over
NVLink and each node over RDMA (deep_ep/buffer.py, get_dispatch_config)."""
P2P_IN_FLIGHT = 2
"""Tensors in transfer between stages that no layer keeps: one in each direction (Megatron-Core, p2p_communication.py)."""


def tensor_buffers(
    run: TrainingRun, profile: MemoryProfile, linear_shapes: Iterable[Shape], state: StateBytes, *, has_head: bool
) -> tuple[Buffer, ...]:
    """The buffers of one rank that torch's allocator counts; `linear_shapes` are the distinct shapes of the rank's linear modules."""
    found = [
        _dummy_gradients(run, profile, linear_shapes),
        _ddp_buckets(run, state),
        _p2p(run),
        _held_logits(run, profile, has_head=has_head),
        _blas(run),
        _transformer_engine(run, profile),
        _global_buffer(run, profile, has_head=has_head),
    ]
    return tuple(buffer for buffer in found if buffer.size_bytes)


def left_between_steps(run: TrainingRun, profile: MemoryProfile, state: StateBytes, received_inputs: int) -> float:
    """Bytes of the tensors that a step leaves behind and the next one frees; `received_inputs` are the chunks of the rank that
    take their input from another stage.

    Megatron-Core: each of those chunks holds the input of its last microbatch, and the gradient of that input
    (transformer_block.py, `set_input_tensor`). The master weights hold the fp32 copies of 16-bit gradients until the next step
    (optimizer.py, `_copy_model_grads_to_main_grads`).
    """
    if not profile.megatron_core:
        return 0.0
    rank = RankShare(run=run)
    inputs = 2.0 * received_inputs * rank.item_bytes * rank.rows * run.model.hidden
    return inputs + update_bytes(run, profile, state)


def device_buffers(run: TrainingRun, profile: MemoryProfile) -> tuple[Buffer, ...]:
    """The memory of one rank that only the device's own counter sees; on a CPU, the memory of the process."""
    if run.cluster.gpu.kind == "cpu":
        source = "resident memory after `import torch`"
        return (Buffer(name="process", size_bytes=PROCESS_BYTES, width_bytes=PROCESS_WIDTH, source=source),)
    if profile.device_overhead:
        return (profile.device_overhead,)
    communicators = communicators_of(run, profile)
    exchange = exchange_buffer(run)
    return (
        Buffer(
            name="context",
            size_bytes=CONTEXT_BYTES,
            width_bytes=CONTEXT_WIDTH,
            source="assumed for the CUDA context of a torch process; not measured here",
        ),
        Buffer(
            name="communication",
            size_bytes=communicators * COMMUNICATOR_BYTES,
            width_bytes=communicators * COMMUNICATOR_WIDTH,
            source=f"{counted(communicators, 'communicator')}, each as measured on A100 with NCCL of 2023",
        ),
        *((exchange,) if exchange.size_bytes else ()),
    )


def exchange_buffer(run: TrainingRun) -> Buffer:
    """The buffers in which DeepEP or Hybrid-EP exchange tokens, which they take from the driver, not from torch."""
    rank, ranks = RankShare(run=run), run.plan.ep
    row_bytes = rank.item_bytes * run.model.hidden
    nodes = -(-ranks // rank.groups.ep.ranks_per_node)
    size, source = 0.0, ""
    if not run.model.experts or ranks == 1:
        pass
    elif run.execution.dispatch == "deepep":
        in_node = min(ranks, DEEPEP_PEERS)
        size = float(
            DEEPEP_CHANNELS * row_bytes * (in_node * DEEPEP_CHUNK + 2 * (nodes > 1) * nodes * DEEPEP_RDMA_CHUNK)
        )
        source = "DeepEP, csrc/config.hpp, get_nvl_buffer_size_hint and get_rdma_buffer_size_hint at 20 multiprocessors"
    elif run.execution.dispatch == "hybridep":
        size = 2.0 * ranks * rank.tokens / run.plan.tp * row_bytes
        source = "Hybrid-EP: room for all tokens of the group, there and back"
    return Buffer(name="token exchange", size_bytes=size, width_bytes=size / 2, source=source)


def slack_of(run: TrainingRun, profile: MemoryProfile) -> tuple[float, float]:
    """The allocator's slack over the bytes that it falls on, and its half-width; 0 on a CPU and where `device_overhead` includes it.

    A framework's own `fragmentation` comes from tensor parallelism: NCCL's stream holds on to the tensors of its collectives for as long as
    the host runs ahead (`record_stream`), and without such collectives there was none to see (discuss.pytorch.org/t/191573).
    """
    if run.cluster.gpu.kind == "cpu" or profile.device_overhead:
        return 0.0, 0.0
    if profile.fragmentation is not None and run.plan.tp > 1:
        return profile.fragmentation, profile.fragmentation
    if (run.execution.allocator or profile.allocator) == EXPANDABLE:
        return EXPANDABLE_OVER_ALLOCATED - 1, EXPANDABLE_WIDTH
    return RESERVED_OVER_ALLOCATED - 1, RESERVED_WIDTH


def communicators_of(run: TrainingRun, profile: MemoryProfile) -> int:
    """Process groups of more than one rank to which a rank belongs. Where stages send in pairs, each pair of neighbours is one and that
    of all ranks another, instead of one of the pipeline's ranks."""
    plan = run.plan
    replicas = plan.dp * plan.cp
    experts = plan.ep * plan.etp
    expert_replicas = plan.tp * replicas // experts if experts > 1 else 1
    groups = (plan.tp, plan.cp, replicas, plan.ep, plan.etp, expert_replicas)
    if profile.sends_in_pairs:
        return sum(ranks > 1 for ranks in (plan.tp * plan.pp * replicas, *groups)) + min(2, plan.pp - 1)
    return sum(ranks > 1 for ranks in (plan.pp, *groups))


def _dummy_gradients(run: TrainingRun, profile: MemoryProfile, linear_shapes: Iterable[Shape]) -> Buffer:
    size = 0.0
    if profile.dummy_gradients and run.execution.fuse_gradients and not run.adapters.are_trained:
        size = float(weight_bytes(run) * sum(rows * columns for rows, columns in linear_shapes))
    source = "Transformer Engine, module/base.py, get_dummy_wgrad: one per distinct shape, never freed"
    return Buffer(name="dummy gradients", size_bytes=size, width_bytes=0.0, source=source)


def _ddp_buckets(run: TrainingRun, state: StateBytes) -> Buffer:
    """The buckets that torch's DDP keeps in addition to the gradients unless `gradient_as_bucket_view` is set."""
    size = state.gradients if run.execution.whole_layers and run.plan.dp > 1 else 0.0
    source = "torch.nn.parallel.DistributedDataParallel"
    return Buffer(name="gradient buckets", size_bytes=size, width_bytes=0.0, source=source)


def _p2p(run: TrainingRun) -> Buffer:
    rank = RankShare(run=run)
    size = P2P_IN_FLIGHT * rank.item_bytes * rank.rows * run.model.hidden if run.plan.pp > 1 else 0
    source = "an activation and a gradient in transfer between stages"
    return Buffer(
        name="pipeline transfers", size_bytes=float(size), width_bytes=float(size), source=source, between_steps=False
    )


def _held_logits(run: TrainingRun, profile: MemoryProfile, *, has_head: bool) -> Buffer:
    sizes = Sizes(rank=RankShare(run=run), profile=profile)
    size = profile.held_logits * sizes.item * logits_of_loss(sizes) if has_head else 0.0
    source = "outputs of the last stage, which the pipeline's buffers hold until they are used again"
    return Buffer(name="held logits", size_bytes=size, width_bytes=0.0, source=source)


def _blas(run: TrainingRun) -> Buffer:
    gpu, stated = run.cluster.gpu, run.execution.blas_workspace_mib * MIB
    each = 0.0 if gpu.kind == "cpu" else stated or float(BLAS_BYTES.get(gpu.architecture, BLAS_ELSEWHERE_BYTES))
    source = f"CUBLAS_WORKSPACE_CONFIG; {BLAS_HANDLES} handles of torch"
    return Buffer(name="BLAS workspaces", size_bytes=BLAS_HANDLES * each, width_bytes=0.0, source=source)


def _global_buffer(run: TrainingRun, profile: MemoryProfile, *, has_head: bool) -> Buffer:
    """Megatron-Core's one buffer of tensors that are not kept: the head's input, which sequence parallelism gathers, and the
    product of queries and keys where its own attention computes it. It has the size of the largest."""
    rank, plan, size = RankShare(run=run), run.plan, 0.0
    if profile.megatron_core and has_head and plan.sp:
        size = float(rank.item_bytes * rank.tokens * run.model.hidden)
    if profile.megatron_core and not profile.transformer_engine:
        heads = run.model.heads // plan.tp
        size = max(size, float(rank.item_bytes * run.batch.micro * heads * run.batch.seq_len**2 / plan.cp))
    source = (
        "Megatron-Core, tensor_parallel/layers.py and dot_product_attention.py: get_global_memory_buffer, never freed"
    )
    return Buffer(name="global memory buffer", size_bytes=size, width_bytes=0.0, source=source)


def _transformer_engine(run: TrainingRun, profile: MemoryProfile) -> Buffer:
    gpu, experts = run.cluster.gpu, run.model.experts
    size = 0.0
    if profile.transformer_engine and gpu.kind != "cpu":
        user_buffers = run.plan.tp > 1 and run.execution.overlap_tp == "pipelined"
        workspaces = 1 + (TE_USER_BUFFER_STREAMS if user_buffers else 0)
        workspaces += TE_GROUPED_STREAMS if experts is not None and run.execution.expert_products == PER_EXPERT else 0
        size = workspaces * float(TE_BLAS_BYTES.get(gpu.architecture, TE_BLAS_ELSEWHERE_BYTES))
    source = (
        "Transformer Engine, cpp_extensions/gemm.py, get_cublas_workspace: one, and one per stream of grouped products"
    )
    return Buffer(name="Transformer Engine workspaces", size_bytes=size, width_bytes=0.0, source=source)
