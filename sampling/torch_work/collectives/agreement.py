"""Agreement of the ranks that time together, over gloo whatever the calls themselves use."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class Agreement:
    """The ranks of a `torch.distributed.ProcessGroupGloo`."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def barrier(self) -> None:
        self._group.barrier().wait()

    def largest(self, value: float) -> float:
        return self._reduce(value, dist.ReduceOp.MAX)

    def total(self, value: float) -> float:
        return self._reduce(value, dist.ReduceOp.SUM)

    def _reduce(self, value: float, operation: dist.ReduceOp.RedOpType) -> float:
        tensor = torch.tensor([value], dtype=torch.float64)
        self._group.allreduce([tensor], operation).wait()
        return float(tensor)

    def gather(self, values: list[float]) -> list[list[float]]:
        tensor = torch.tensor(values, dtype=torch.float64)
        gathered = [torch.empty_like(tensor) for _ in range(self._group.size())]
        self._group.allgather([gathered], [tensor]).wait()
        return [of_rank.tolist() for of_rank in gathered]


class LoneRank:
    """A process that times by itself."""

    def barrier(self) -> None:
        """Nothing to wait for."""

    def largest(self, value: float) -> float:
        return value

    def total(self, value: float) -> float:
        return value

    def gather(self, values: list[float]) -> list[list[float]]:
        return [values]
