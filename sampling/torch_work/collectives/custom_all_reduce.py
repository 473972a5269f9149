"""All-reduces of a serving engine's step by torch's symmetric memory, in a CUDA graph.

torch has both of vLLM's kernels: in `one_shot` each rank reads the others' whole buffers, in `two_shot` it sums a part and then reads the
other parts. vLLM chooses between them by size and ranks (csrc/custom_all_reduce.cuh), and so does this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

from sampling.call import Phase
from sampling.collectives.custom_all_reduce import CustomAllReduce
from sampling.errors import SkippedError, in_one_line
from sampling.torch_work.build import builds
from sampling.torch_work.collectives.kinds import Outside
from sampling.torch_work.collectives.process_groups import present
from sampling.torch_work.workload_protocols import Workload

KIB = 2**10
ONE_SHOT_BELOW = {2: 8192 * KIB, 4: 512 * KIB, 8: 256 * KIB}
"""Most ranks → bytes from which on vLLM's kernel sums parts, if the ranks are joined one to one."""
LARGEST = 8192 * KIB
"""Bytes of the largest buffer that vLLM's kernel takes (`max_size` of its CustomAllreduce); larger ones go to the communication library."""
ITEM_BYTES = 2
MULTIPLE = 8
"""Elements that a rank reads at once."""
WARM_UPS = 3

OPERATORS = ("one_shot_all_reduce_out", "two_shot_all_reduce_")

Kernel = Literal["one_shot", "two_shot"]


@builds(CustomAllReduce)
def custom_all_reduce(call: CustomAllReduce, device: torch.device) -> Workload:
    """SkippedError for a device, a buffer or a group that the kernel is not for."""
    _refuse(call, device)
    group = present().own(call)
    return Outside() if group is None else PeerAllReduces(call, device, group)


def _refuse(call: CustomAllReduce, device: torch.device) -> None:
    if device.type != "cuda" or not torch.version.cuda:
        raise SkippedError(
            f"{call.NAME}: its ranks are NVIDIA GPUs that read each other's memory, and this is a {device.type} device"
        )
    if not all(hasattr(torch.ops.symm_mem, name) for name in OPERATORS):
        raise SkippedError(f"{call.NAME}: torch {torch.__version__} lacks it ({', '.join(OPERATORS)} of symm_mem)")
    kernel_for(call.size_bytes, call.ranks)
    own = torch.cuda.current_device()
    others = [place for place in range(torch.cuda.device_count()) if place != own]
    if not all(torch.cuda.can_device_access_peer(own, other) for other in others):
        raise SkippedError(f"{call.NAME}: the GPUs of this node do not read each other's memory")


def kernel_for(size_bytes: int, ranks: int) -> Kernel:
    """The kernel that vLLM takes. SkippedError for a buffer, or a number of ranks, that neither is for."""
    limit = next((size for most, size in ONE_SHOT_BELOW.items() if ranks <= most), 0)
    if not limit or size_bytes > LARGEST:
        raise SkippedError(
            f"custom_all_reduce: {size_bytes:,} bytes on {ranks} ranks; an engine leaves more than {LARGEST:,} bytes, or "
            f"{max(ONE_SHOT_BELOW)} ranks, to the communication library"
        )
    return "one_shot" if size_bytes < limit else "two_shot"


class PeerAllReduces:
    """All-reduces of one buffer, DONE_PER_RUN of them in a graph; a run replays it."""

    def __init__(self, call: CustomAllReduce, device: torch.device, group: Any) -> None:
        from torch.distributed import _symmetric_memory as symmetric

        self.ran_kernel = kernel_for(call.size_bytes, call.ranks)
        elements = -(-call.size_bytes // ITEM_BYTES // (MULTIPLE * call.ranks)) * MULTIPLE * call.ranks
        self._buffer = symmetric.empty(elements, dtype=torch.bfloat16, device=device)
        try:
            symmetric.rendezvous(self._buffer, group)
        except RuntimeError as error:  # such as a container that may not share memory between processes
            raise SkippedError(f"{call.NAME}: the ranks cannot share memory: {in_one_line(error)}") from None
        self._sum = _summing(self.ran_kernel, self._buffer, group.group_name)
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


def _summing(kernel: Kernel, buffer: torch.Tensor, group_name: str) -> Callable[[], object]:
    """One all-reduce of the buffer."""
    kernels = torch.ops.symm_mem
    if kernel == "two_shot":
        return lambda: kernels.two_shot_all_reduce_(buffer, "sum", group_name)
    found = torch.empty_like(buffer)
    return lambda: kernels.one_shot_all_reduce_out(buffer, "sum", group_name, found)
