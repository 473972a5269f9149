"""Collectives and point-to-point messages by torch.distributed."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist

from sampling.call import Phase
from sampling.collectives.kinds import (
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    CustomAllReduce,
    ReduceScatter,
    SendRecv,
)
from sampling.errors import SkippedError, in_one_line
from sampling.torch_work.build import builds
from sampling.torch_work.collectives.process_groups import present
from sampling.torch_work.workload_protocols import Workload


@builds(Collective)
def collective(call: Collective, device: torch.device) -> Workload:
    group = present().own(call)
    return Outside() if group is None else CollectiveWorkload(call, device, group)


class CollectiveWorkload:
    """One collective on a process group, again and again on the same buffers."""

    def __init__(self, call: Collective, device: torch.device, group: Any) -> None:
        self._run = FUNCTIONS[type(call)]
        self._group = group
        self._buffers = Buffers(device, call.size_bytes, call.ranks, call.EXTRA_BUFFER)

    def prepare(self, phase: Phase) -> None:
        # keeps repeated sums finite
        self._buffers.whole.clamp_(-1.0, 1.0)

    def run(self, phase: Phase) -> None:
        self._run(self._buffers, self._group)


class Outside:
    """The workload of a rank whose neighbours run a collective without it."""

    def prepare(self, phase: Phase) -> None:
        """Nothing to do."""

    def run(self, phase: Phase) -> None:
        """Nothing to do: the slowest rank's time counts, and this rank's is the least."""


class Buffers:
    """fp32 buffers of a collective: a whole one and, where it needs one, another of its size or one rank's shard."""

    def __init__(
        self, device: torch.device, size_bytes: int, ranks: int, beside: Literal["", "shard", "other"]
    ) -> None:
        shard = max(1, math.ceil(size_bytes / 4 / ranks))
        self.whole = torch.randn(shard * ranks, device=device)
        self.other = torch.empty_like(self.whole) if beside == "other" else self.whole
        self.shard = torch.randn(shard, device=device) if beside == "shard" else self.whole


def _all_reduce(buffers: Buffers, group: Any) -> None:
    dist.all_reduce(buffers.whole, group=group)


def _all_gather(buffers: Buffers, group: Any) -> None:
    dist.all_gather_into_tensor(buffers.whole, buffers.shard, group=group)


def _reduce_scatter(buffers: Buffers, group: Any) -> None:
    dist.reduce_scatter_tensor(buffers.shard, buffers.whole, group=group)


def _all_to_all(buffers: Buffers, group: Any) -> None:
    dist.all_to_all_single(buffers.other, buffers.whole, group=group)


def _there_and_back(buffers: Buffers, group: Any) -> None:
    peer = 1 - dist.get_rank(group)
    if peer == 1:
        dist.send(buffers.whole, group=group, group_dst=peer)
        dist.recv(buffers.whole, group=group, group_src=peer)
    else:
        dist.recv(buffers.whole, group=group, group_src=peer)
        dist.send(buffers.whole, group=group, group_dst=peer)


FUNCTIONS: dict[type[Collective], Callable[[Buffers, Any], None]] = {
    AllReduce: _all_reduce,
    AllGather: _all_gather,
    ReduceScatter: _reduce_scatter,
    AllToAll: _all_to_all,
    SendRecv: _there_and_back,
}
"""Each does its collective on a process group that this rank is in, and waits for it."""


KIB = 2**10
LARGEST = 8192 * KIB
"""Bytes of the largest buffer that vLLM's kernels take."""
ONE_SHOT_BELOW = {2: LARGEST + 1, 4: 512 * KIB, 8: 256 * KIB}
"""Most ranks → bytes from which on they sum parts."""
ITEM_BYTES = 2
MULTIPLE = 8
"""Elements that a rank reads at once."""
WARM_UPS = 3
OPERATORS = ("one_shot_all_reduce_out", "two_shot_all_reduce_")

Kernel = Literal["one_shot", "two_shot", "library"]


@builds(CustomAllReduce)
def custom_all_reduce(call: CustomAllReduce, device: torch.device) -> Workload:
    """SkippedError for a device other than an NVIDIA GPU, and for a torch without the kernels."""
    if device.type != "cuda" or not torch.version.cuda:
        raise SkippedError(
            f"{call.NAME}: its ranks are NVIDIA GPUs that read each other's memory, and this is a {device.type} device"
        )
    if not all(hasattr(torch.ops.symm_mem, name) for name in OPERATORS):
        raise SkippedError(f"{call.NAME}: torch {torch.__version__} lacks it ({', '.join(OPERATORS)} of symm_mem)")
    group = present().own(call)
    return Outside() if group is None else AllReducesInGraph(call, device, group)


def kernel_for(size_bytes: int, ranks: int, *, peers: bool = True) -> Kernel:
    """The kernel that vLLM takes for a buffer; `peers`: whether the GPUs read each other's memory.

    torch's symmetric memory has both of vLLM's kernels: in `one_shot` each rank reads the others' whole buffers, in `two_shot` it sums a
    part and then reads the other parts. vLLM chooses between them by size and ranks, and leaves what neither is for to the communication
    library (csrc/custom_all_reduce.cuh, vllm/distributed/device_communicators/custom_all_reduce.py); so does this.
    """
    limit = next((size for most, size in ONE_SHOT_BELOW.items() if ranks <= most), 0)
    if not limit or size_bytes > LARGEST or not peers:
        return "library"
    return "one_shot" if size_bytes < limit else "two_shot"


class AllReducesInGraph:
    """All-reduces of one buffer, DONE_PER_RUN of them in a graph; a run replays it."""

    def __init__(self, call: CustomAllReduce, device: torch.device, group: Any) -> None:
        self.ran_kernel = kernel_for(call.size_bytes, call.ranks, peers=_are_peers())
        elements = -(-call.size_bytes // ITEM_BYTES // (MULTIPLE * call.ranks)) * MULTIPLE * call.ranks
        try:
            self._buffer, self._sum = _summing(self.ran_kernel, elements, device, group)
        except RuntimeError as error:  # such as a container that may not share memory between processes
            raise SkippedError(f"{call.NAME}: the ranks cannot share memory: {in_one_line(error)}") from None
        self._graph = self._captured(device, call.DONE_PER_RUN)

    def prepare(self, phase: Phase) -> None:
        # sums of zeros stay finite, however often they are summed
        self._buffer.zero_()

    def run(self, phase: Phase) -> None:
        self._graph.replay()

    def _captured(self, device: torch.device, times: int) -> torch.cuda.CUDAGraph:
        self._buffer.zero_()
        for _ in range(WARM_UPS):
            self._sum()
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        # threads of a communication library may ask the driver things meanwhile
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(times):
                self._sum()
        return graph


def _summing(
    kernel: Kernel, elements: int, device: torch.device, group: Any
) -> tuple[torch.Tensor, Callable[[], object]]:
    """A buffer of so many elements, and one all-reduce of it."""
    if kernel == "library":
        plain = torch.empty(elements, dtype=torch.bfloat16, device=device)
        return plain, lambda: dist.all_reduce(plain, group=group)
    from torch.distributed import _symmetric_memory as symmetric

    buffer = symmetric.empty(elements, dtype=torch.bfloat16, device=device)
    symmetric.rendezvous(buffer, group)
    name, kernels = group.group_name, torch.ops.symm_mem
    if kernel == "two_shot":
        return buffer, lambda: kernels.two_shot_all_reduce_(buffer, "sum", name)
    found = torch.empty_like(buffer)
    return buffer, lambda: kernels.one_shot_all_reduce_out(buffer, "sum", name, found)


def _are_peers() -> bool:
    """Whether the GPUs that this process sees read each other's memory."""
    own = torch.cuda.current_device()
    others = [place for place in range(torch.cuda.device_count()) if place != own]
    return all(torch.cuda.can_device_access_peer(own, other) for other in others)
