"""The bytes that torch saves for backward, counted for the modules of which layers are made."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from predict.layers.norms import norm_bytes
from predict.layers.saved_tensors import Sizes
from predict.memory.profiles import memory_profiles
from predict.rank.share import RankShare
from tests.predict.workload.parallel_runs import made

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


def sizes_of(profile: str = "eager", precision: str = "bf16", model: str = "llama3-8b") -> Sizes:
    batch = {"global": 1, "micro": 1, "seq_len": 512}
    return Sizes(rank=RankShare(run=made(model, precision=precision, batch=batch)), profile=memory_profiles()[profile])


def test_a_linear_keeps_its_input_and_several_of_one_input_keep_it_once() -> None:
    first, second = nn.Linear(24, 32), nn.Linear(24, 8)
    x = torch.randn(10, 24, requires_grad=True)
    assert saved_bytes(lambda: (first(x), second(x)), (first, second)) == 4 * 10 * 24


def test_addition_scaling_and_a_bool_mask_keep_no_activation() -> None:
    x, y = torch.randn(10, 24, requires_grad=True), torch.randn(10, 24, requires_grad=True)
    assert saved_bytes(lambda: (x + y) * 0.5) == 0


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_norms_keep_what_their_kind_says(dtype: torch.dtype) -> None:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNorm

    x = torch.randn(10, 24, dtype=dtype, requires_grad=True)
    precision = "bf16" if dtype is BF16 else "fp32"
    for kind, model in ((LlamaRMSNorm, "llama3-8b"), (Qwen3NextRMSNorm, "qwen3.5-35b-a3b")):
        norm = kind(24).to(dtype)
        assert saved_bytes(lambda norm=norm: norm(x), [norm]) == norm_bytes(sizes_of("eager", precision, model), 10, 24)
    layer_norm = nn.LayerNorm(24).to(dtype)
    # on a CPU mean and 1/σ have the input's dtype, on a GPU they are fp32
    statistics = 8 - 2 * dtype.itemsize
    counted = saved_bytes(lambda: layer_norm(x), [layer_norm]) + 10 * statistics
    assert counted == norm_bytes(sizes_of("eager", precision, "gpt2"), 10, 24)


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("upcast", [False, True])
def test_a_head_with_cross_entropy_keeps_what_its_formula_says(dtype: torch.dtype, upcast: bool) -> None:
    tokens, hidden, vocab = 48, 64, 96
    head = nn.Linear(hidden, vocab, bias=False).to(dtype)
    x = torch.randn(tokens, hidden, dtype=dtype, requires_grad=True)
    targets = torch.randint(0, vocab, (tokens,))

    def loss() -> torch.Tensor:
        logits = head(x)
        return F.cross_entropy(logits.float() if upcast else logits, targets)

    # the log-softmax in the logits' dtype, or in fp32 of an upcast copy; the targets; and how many there are
    item = FP32.itemsize if upcast else dtype.itemsize
    assert saved_bytes(loss, [head]) == dtype.itemsize * tokens * hidden + tokens * (item * vocab + 8) + item


def test_an_embedding_keeps_its_indices() -> None:
    embedding = nn.Embedding(50, 16)
    assert saved_bytes(lambda: embedding(torch.randint(0, 50, (2, 12))), [embedding]) == 8 * 24
