"""One rank of a memory benchmark: the reduced run trained for a few steps, and its bytes counted."""

import gc
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from predict.layers.run_json import load_run
from predict.run.training_run import TrainingRun
from predict.workload.whole_layers import EMBEDDING, HEAD, embedding_call, head_call, whole_layer_calls
from sampling.arithmetic.operator import Operator
from sampling.cells.layer import DenseLayer
from sampling.cells.moe_layer import MoELayer
from sampling.torch_work.build import products_in, torch_dtype
from sampling.torch_work.cells.head import make_head
from sampling.torch_work.cells.layer import make_layer
from sampling.torch_work.cells.moe_layer import make_moe_layer
from sampling.torch_work.collectives.tensor_parallel import loss_context, parallel_embedding

# The reduced run of a memory benchmark: embedding, a few layers of each kind and the head, trained with AdamW.
#
# Its layers are the modules that the sampler times; the gradients are dropped after each step, as torch does by default.

SEED = 0
LEARNING_RATE = 1e-4
Around = Callable[[str], AbstractContextManager[None]]
"""Entered around each unit's forward."""


def _nothing(_: str) -> AbstractContextManager[None]:
    return nullcontext()


class ReducedTraining:
    """One rank's share of the run; with tp > 1 torch.distributed must be initialised, and its default group is the tensor-parallel one."""

    def __init__(self, reduced: TrainingRun, device: torch.device) -> None:
        torch.manual_seed(SEED)
        self.units = list(_units(reduced, device))
        self._context = loss_context(reduced.plan.tp) if reduced.plan.tp > 1 else products_in(reduced.precision)
        parameters = self.parameters()
        sharded = [parameter for parameter in parameters if isinstance(parameter, DTensor)]
        plain = [parameter for parameter in parameters if not isinstance(parameter, DTensor)]
        # fused AdamW refuses a mix of the two
        self.optimizers = [
            torch.optim.AdamW(group, lr=LEARNING_RATE, fused=True) for group in (sharded, plain) if group
        ]
        ids = torch.randint(reduced.model.vocab, (reduced.batch.global_, reduced.batch.seq_len + 1), device=device)
        rows = torch.split(ids, reduced.batch.micro)
        self.microbatches = [(row[:, :-1].contiguous(), row[:, 1:].contiguous()) for row in rows]

    def parameters(self) -> list[nn.Parameter]:
        """Each parameter once, the table of a tied head too."""
        return list(dict.fromkeys(parameter for _, module in self.units for parameter in module.parameters()))

    def optimizer_state(self) -> list[Tensor]:
        return [
            value
            for optimizer in self.optimizers
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, Tensor)
        ]

    def gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters() if parameter.grad is not None]

    def forward(self, index: int, around: Around = _nothing) -> Tensor:
        """The loss of a microbatch."""
        tokens, targets = self.microbatches[index]
        x: Tensor = tokens
        for name, module in self.units:
            with around(name), self._context():
                x = module(x, targets) if name == HEAD else module(x)
        return x

    def forward_backward(self) -> None:
        """Run all microbatches, after dropping the gradients of the step before."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        for index in range(len(self.microbatches)):
            loss = self.forward(index)
            with self._context():
                torch.autograd.backward(loss)
            # a loss that lived on would hold its graph through the next forward
            del loss

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()


def _units(reduced: TrainingRun, device: torch.device) -> Iterator[tuple[str, nn.Module]]:
    calls, tp, sp = whole_layer_calls(reduced), reduced.plan.tp, reduced.plan.sp
    shape = embedding_call(reduced)
    table = nn.Embedding(shape.vocab, shape.hidden, device=device, dtype=torch_dtype(shape.dtype))
    yield EMBEDDING, parallel_embedding(table, device, tp, sp)
    for kind in reduced.model.kinds():
        yield kind.name, _layer(calls[kind.name], device)
    head = make_head(head_call(reduced), device)
    if reduced.model.tied:
        head.output.weight = table.weight  # type: ignore[union-attr]
    yield HEAD, head


def _layer(call: Operator, device: torch.device) -> nn.Module:
    if isinstance(call, MoELayer):
        return make_moe_layer(call, device)
    assert isinstance(call, DenseLayer)
    return make_layer(call, device)


# Exact counts of tensor bytes: which storages live, their peak, and what autograd saves for the backward.
#
# A storage is counted once, however many tensors share it. Not seen: scratch memory inside a kernel, and on a GPU what the
# autograd threads allocate; there the allocator's own statistics are read.

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

    A storage's Python object lives as long as the storage itself, so that its finalizer marks its death (as in torch's
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


TENSORS, ALLOCATOR = "live tensors", "caching allocator"
ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


def count_bytes(reduced: TrainingRun, device: torch.device) -> dict[str, Any]:
    """The `bytes` and `saved_by_unit` of this rank, and the `counter` that the peaks come from."""
    return _on_gpu(reduced, device) if device.type == "cuda" else _on_cpu(reduced, device)


def _on_cpu(reduced: TrainingRun, device: torch.device) -> dict[str, Any]:
    """The peak of live tensors: no caching allocator stands between them and the count."""
    with LiveTensors() as live:
        training = ReducedTraining(reduced, device)
        for parameter in training.parameters():
            live.follow(parameter)
        sizes, by_unit = _warm_up(training)
        gc.collect()
        live.reset_peak()
        training.forward_backward()
        sizes["forward_backward_peak"] = live.peak_bytes
        live.reset_peak()
        training.step()
        sizes["step_peak"] = live.peak_bytes
    sizes["allocated"] = max(sizes["forward_backward_peak"], sizes["step_peak"])
    sizes["reserved"] = sizes["allocated"]
    return {"bytes": sizes, "saved_by_unit": by_unit, "counter": TENSORS, "expandable_segments": False}


def _on_gpu(reduced: TrainingRun, device: torch.device) -> dict[str, Any]:
    """The caching allocator's peaks over one steady step, and the device's bytes in use outside its segments."""
    training = ReducedTraining(reduced, device)
    gc.collect()
    torch.cuda.empty_cache()
    sizes, by_unit = _warm_up(training)
    training.forward_backward()
    training.step()
    torch.cuda.synchronize(device)
    for phase, work in (("forward_backward_peak", training.forward_backward), ("step_peak", training.step)):
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        sizes[phase] = torch.cuda.max_memory_allocated(device)
        sizes["reserved"] = max(sizes.get("reserved", 0), torch.cuda.max_memory_reserved(device))
    sizes["allocated"] = max(sizes["forward_backward_peak"], sizes["step_peak"])
    free, total = torch.cuda.mem_get_info(device)
    return {
        "bytes": sizes,
        "saved_by_unit": by_unit,
        "counter": ALLOCATOR,
        "expandable_segments": expandable_segments(os.environ),
        "outside_allocator_bytes": max(0, total - free - torch.cuda.memory_reserved(device)),
    }


def _warm_up(training: ReducedTraining) -> tuple[dict[str, int], dict[str, int]]:
    """Run a first step, after which the optimizer has its state; the bytes it keeps, and those a forward saves by unit."""
    saved = SavedForBackward(training.parameters())
    with saved.hooks():
        loss = training.forward(0, saved.unit)
    del loss
    saved.forget()
    training.forward_backward()
    sizes = {"gradients": storage_bytes(training.gradients())}
    training.step()
    return {
        **sizes,
        "parameters": storage_bytes(training.parameters()),
        "optimizer": storage_bytes(training.optimizer_state()),
        "saved": saved.total_bytes,
    }, saved.by_unit


def expandable_segments(environment: Mapping[str, str]) -> bool:
    """Whether the allocator grows its segments, which leaves less between reserved and allocated."""
    return any(
        setting.replace(" ", "").lower() == "expandable_segments:true"
        for name in ALLOCATOR_SETTINGS
        for setting in environment.get(name, "").split(",")
    )


def fullest_rank(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts of the rank that allocated most, with the most that any rank reserved or used outside the allocator."""
    found = max(ranks, key=lambda rank: int(rank["bytes"]["allocated"]))
    found["bytes"]["reserved"] = max(rank["bytes"]["reserved"] for rank in ranks)
    if "outside_allocator_bytes" in found:
        found["outside_allocator_bytes"] = max(rank["outside_allocator_bytes"] for rank in ranks)
    return found


def body(run: str, timeout_s: float) -> dict[str, Any] | None:
    """The counts of the fullest rank of a reduced run as `predict.layers.run_json` writes it, on rank 0.

    No rank waits longer than `timeout_s` for another.
    """
    reduced = load_run(run)
    on_cpu = reduced.cluster.gpu.kind == "cpu"
    device = torch.device("cpu") if on_cpu else torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    if not on_cpu:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if on_cpu else "nccl", timeout=timedelta(seconds=timeout_s))
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, count_bytes(reduced, device))
    return fullest_rank(ranks) if dist.get_rank() == 0 else None
