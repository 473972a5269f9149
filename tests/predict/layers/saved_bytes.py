"""The bytes that torch saves for backward, and the peaks of what lives in forward and backward."""

import gc
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BF16, FP32 = torch.bfloat16, torch.float32


def saved_bytes(run: Callable[[], Any], modules: Iterable[nn.Module] = ()) -> int:
    """Bytes of the storages that autograd saves, each once, parameters excluded."""
    parameters = {p.untyped_storage().data_ptr() for module in modules for p in module.parameters()}
    storages: dict[int, Any] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(storage.nbytes() for storage in storages.values())


class Live(TorchDispatchMode):
    """Bytes of the living storages that were allocated while the mode is on, and their peak."""

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self.now = self.peak = 0

    def _freed(self, key: int, size: int) -> None:
        self.now -= size
        self._known.discard(key)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self._known:
                storage = tensor.untyped_storage()
                self._known.add(storage._cdata)
                self.now += storage.nbytes()
                weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.now)
        return out


def peaks(forward: Callable[[], torch.Tensor], known: Iterable[torch.Tensor], leaf: torch.Tensor) -> tuple[int, int]:
    """Peaks of forward and backward, with the gradient of the output, without the output and the gradients of weights."""
    gc.collect()
    gc.disable()
    try:
        with Live(known) as live:
            output = forward()
            first = live.peak
            gradient = torch.ones_like(output)
            live.peak = live.now
            torch.autograd.grad(output, [leaf], gradient)
            return first, live.peak - output.untyped_storage().nbytes()
    finally:
        gc.enable()
