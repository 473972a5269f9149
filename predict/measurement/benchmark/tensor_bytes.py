"""Exact counts of tensor bytes: which storages live, their peak, and what autograd saves for the backward.

A storage is counted once, however many tensors share it. Not seen: scratch memory inside a kernel, and on a GPU what the
autograd threads allocate; there the allocator's own statistics are read.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WRAPPERS = (DTensor, AsyncCollectiveTensor)
"""Tensors that hold their elements in another one."""


def local_tensor(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    while isinstance(tensor, WRAPPERS):
        tensor = tensor._local_tensor if isinstance(tensor, DTensor) else tensor.elem
    return tensor


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of all storages that tensors lie in, each counted once."""
    storages = {storage._cdata: storage for storage in (local_tensor(tensor).untyped_storage() for tensor in tensors)}
    return sum(storage.nbytes() for storage in storages.values())


class LiveTensors(TorchDispatchMode):
    """Follows every storage that an operator makes within the context, from birth to death.

    A storage's Python object lives as long as the storage itself, so that its finalizer tells of its death (as in torch's
    own `torch.distributed._tools.mem_tracker`).
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = 0
        self.peak_bytes = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(each, WRAPPERS) for each in types):
            return NotImplemented  # the wrapper takes its operator apart, and the parts come by here
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.follow(leaf)
        return result

    def follow(self, tensor: Tensor) -> None:
        """Count a tensor's storage until it dies."""
        storage = local_tensor(tensor).untyped_storage()
        if storage._cdata in self._sizes:
            return
        self._sizes[storage._cdata] = storage.nbytes()
        self.live_bytes += storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        weakref.finalize(storage, self._died, storage._cdata).atexit = False

    def reset_peak(self) -> None:
        self.peak_bytes = self.live_bytes

    def _died(self, address: int) -> None:
        self.live_bytes -= self._sizes.pop(address)


class SavedForBackward:
    """Bytes that autograd saves in a forward, by the unit that is running; parameters are excluded."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.by_unit: dict[str, int] = {}
        self._unit = ""
        self._parameters = {local_tensor(parameter).untyped_storage()._cdata for parameter in parameters}
        self._seen: dict[int, torch.UntypedStorage] = {}

    @property
    def total_bytes(self) -> int:
        return sum(self.by_unit.values())

    @contextmanager
    def unit(self, name: str) -> Iterator[None]:
        """Count storages that are saved within the context for a unit, unless an earlier one saved them."""
        before, self._unit = self._unit, name
        self.by_unit.setdefault(name, 0)
        try:
            yield
        finally:
            self._unit = before

    def hooks(self) -> AbstractContextManager[Any]:
        return saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def forget(self) -> None:
        """Let go of the storages that were counted."""
        self._seen.clear()

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = local_tensor(tensor).untyped_storage()
        if storage._cdata not in self._parameters and storage._cdata not in self._seen:
            # held until the count is over, so that no later storage takes its address
            self._seen[storage._cdata] = storage
            self.by_unit[self._unit] = self.by_unit.get(self._unit, 0) + storage.nbytes()
        # the tensor itself would hold the node that holds it, and so keep the graph alive for good
        return tensor.detach()
