"""The kernels that compilers and libraries would make of a module, and the bytes that each must move.

- Elementwise work joins the kernel that makes its latest operand, or the product that alone reads it.
- Reductions and normalizations join elementwise work while a row fits on the chip; one that does not is read twice.
- A cast to a wider type is part of what reads its result.
- Attention is one kernel, which skips what its mask hides; a product after a product is a kernel of its own.
- Inside a kernel tensors stay on the chip; between kernels each is written once, and read once by each of them.

Every tensor has its own width, and a kernel reads no more of a tensor than it needs.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from predict.bounds.device import Work

Role = Literal["input", "weight", "made"]
"""The maker of a tensor: the caller, the module's parameters and buffers, or one of its operations."""
OperationKind = Literal[
    "view", "slice", "copy", "made", "product", "attention", "pointwise", "row", "gather", "update", "other"
]
"""An operation by what it does to memory: `made` makes a tensor from nothing, `row` reduces or normalizes along dimensions, `update` writes
a part of a tensor, `other` needs a kernel of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """A tensor by the name of what makes it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    item_bytes: float
    role: Role

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> float:
        return self.elements * self.item_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One operation of a module's forward.

    `macs` are multiply-accumulates of matrix products without regard to masks; `skipped` is the share of them that a kernel
    leaves out, as those above the diagonal of causal attention; `row` the elements that are reduced to one, 0 for none.
    """

    name: str
    type: str
    kind: OperationKind
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    macs: int = 0
    skipped: float = 0.0
    row: int = 0
    line: str = ""
    """`file:line` of the user's code that calls it."""
    module: str = ""
    """The part of the module that calls it, as `layers.0.mlp`; '' for the module itself."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A module's forward: its operations in the order in which they run, and the tensors that it returns."""

    name: str
    precision: str
    """The precision of its floating-point tensors and of its products."""
    inputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Tensor, ...]

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """Every tensor by its name."""
        made = (tensor for each in self.operations for tensor in each.writes)
        return {tensor.name: tensor for tensor in (*self.inputs, *self.weights, *made)}

    def owners(self, renames: Callable[[Operation], bool]) -> Mapping[str, str]:
        """The name of each tensor → the tensor whose memory it is, where an operation only `renames` memory."""
        owner = {name: name for name in self.tensors}
        for each in self.operations:
            if each.reads and renames(each):
                owner |= {tensor.name: owner[each.reads[0].name] for tensor in each.writes}
        return owner


FREE: tuple[OperationKind, ...] = ("view", "slice", "made")
JOINING: tuple[OperationKind, ...] = ("pointwise", "copy", "gather", "row")
FIRST: tuple[OperationKind, ...] = ("pointwise", "copy", "gather")
"""Kinds that a product can do while it reads its operands."""
CASTS = ("to", "to_copy")
ALONE: tuple[OperationKind, ...] = ("other", "update")


@dataclass(slots=True)
class Kernel:
    """Operations that run in one kernel."""

    operations: list[Operation] = field(default_factory=list)
    work: Work = field(default_factory=lambda: Work(macs=0.0, size_bytes=0.0))

    @property
    def name(self) -> str:
        """The types of its operations, each once: `linear + gelu`."""
        return " + ".join(dict.fromkeys(each.type for each in self.operations))

    @property
    def place(self) -> str:
        """The part of the module, else the line, of the first of its operations that has the most multiply-accumulates."""
        main = max(self.operations, key=lambda each: each.macs)
        return main.module or main.line


def kernels_of(graph: Graph, *, on_chip_bytes: float) -> tuple[Kernel, ...]:
    """The kernels of a module in the order in which they run."""
    return tuple(_Grouping(graph, on_chip_bytes).kernels())


def unfused_work(graph: Graph, *, on_chip_bytes: float) -> tuple[Work, ...]:
    """The work of each operation in a kernel of its own."""
    moved = _Traffic(graph)
    every = [each for each in graph.operations if not _is_free(each)]
    return tuple(
        _with_macs([each], moved.read_bytes([each]) + moved.written_bytes([each]) + _read_again([each], on_chip_bytes))
        for each in every
    )


def prefetched_work(graph: Graph) -> Work:
    """The work of the whole module in one kernel: inputs and weights are read once, what it returns is written once."""
    moved = _Traffic(graph)
    every = [each for each in graph.operations if not _is_free(each)]
    return _with_macs(every, moved.read_bytes(every) + moved.written_bytes(every, all_of_them=True))


def _with_macs(operations: list[Operation], size_bytes: float) -> Work:
    return Work(
        macs=sum(each.macs * (1 - each.skipped) for each in operations),
        size_bytes=size_bytes,
    )


def _is_free(each: Operation) -> bool:
    """Whether an operation takes no kernel: it only renames memory, makes a constant, or widens what its reader reads."""
    if each.kind in FREE:
        return True
    casts = each.type in CASTS and each.reads[0].elements == each.writes[0].elements
    return casts and each.writes[0].item_bytes >= each.reads[0].item_bytes


def _is_long(each: Operation, on_chip_bytes: float) -> bool:
    return each.kind == "row" and each.row * each.reads[0].item_bytes > on_chip_bytes


def _read_again(operations: list[Operation], on_chip_bytes: float) -> float:
    """Bytes of rows too long for the chip, which a normalization reads once for their sums and once to scale them."""
    return sum(
        each.reads[0].size_bytes
        for each in operations
        if _is_long(each, on_chip_bytes) and each.writes[0].elements == each.reads[0].elements
    )


class _Traffic:
    """The bytes that a set of operations moves to and from memory."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.owner = graph.owners(
            lambda each: each.kind in ("view", "slice") or (_is_free(each) and each.kind == "copy")
        )
        made_inside = {tensor.name for each in graph.operations if each.kind == "made" for tensor in each.writes}
        self.free = {name for name, owner in self.owner.items() if owner in made_inside}
        self.returned = {self.owner[tensor.name] for tensor in graph.outputs}
        self.readers: dict[str, set[str]] = {}
        for each in graph.operations:
            if not _is_free(each):
                for tensor in each.reads:
                    self.readers.setdefault(self.owner[tensor.name], set()).add(each.name)

    def read_bytes(self, operations: list[Operation]) -> float:
        """Bytes read of tensors that none of the operations makes: of each no more than there is."""
        own = {self.owner[tensor.name] for each in operations for tensor in each.writes}
        needed: dict[str, dict[str, float]] = {}
        for each in operations:
            for tensor, size_bytes in _needs(each):
                owner = self.owner[tensor.name]
                if owner not in own and tensor.name not in self.free:
                    parts = needed.setdefault(owner, {})
                    parts[tensor.name] = max(size_bytes, parts.get(tensor.name, 0.0))
        return sum(min(sum(parts.values()), self.graph.tensors[owner].size_bytes) for owner, parts in needed.items())

    def written_bytes(self, operations: list[Operation], *, all_of_them: bool = False) -> float:
        """Bytes of the tensors made that other operations read or the module returns; with `all_of_them` these are all that were made."""
        inside = {each.name for each in operations}
        written = 0.0
        for each in operations:
            for tensor in each.writes:
                owner = self.owner[tensor.name]
                read_elsewhere = not all_of_them and bool(self.readers.get(owner, set()) - inside)
                if owner in self.returned or read_elsewhere:
                    written += each.reads[-1].size_bytes if each.kind == "update" else tensor.size_bytes
        return written


def _needs(each: Operation) -> Iterator[tuple[Tensor, float]]:
    """The tensors that an operation reads, with the bytes that it needs of each."""
    if each.kind == "gather":
        rows, *indices = each.reads
        taken = sum(tensor.elements for tensor in each.writes) * rows.item_bytes
        yield rows, min(taken, rows.size_bytes)
        yield from ((tensor, tensor.size_bytes) for tensor in indices)
    elif each.kind == "update":
        yield from ((tensor, tensor.size_bytes) for tensor in each.reads[1:])
    else:
        yield from ((tensor, tensor.size_bytes) for tensor in each.reads)


class _Grouping:
    """Puts each operation into a kernel, first to last, so that no kernel waits for a later one."""

    def __init__(self, graph: Graph, on_chip_bytes: float) -> None:
        self.graph = graph
        self.on_chip_bytes = on_chip_bytes
        self.traffic = _Traffic(graph)
        self.made: list[Kernel] = []
        self.place: dict[str, int] = {}
        """The kernel that makes a tensor, by the name of the tensor."""
        self.maker: dict[str, Operation] = {}

    def kernels(self) -> Iterator[Kernel]:
        for each in self.graph.operations:
            if not _is_free(each):
                self._put(each)
        for kernel in self.made:
            if kernel.operations:
                moved = self.traffic.read_bytes(kernel.operations) + self.traffic.written_bytes(kernel.operations)
                kernel.work = _with_macs(kernel.operations, moved + _read_again(kernel.operations, self.on_chip_bytes))
                if kernel.work.macs or kernel.work.size_bytes:
                    yield kernel

    def _put(self, each: Operation) -> None:
        owners = [self.traffic.owner[tensor.name] for tensor in each.reads]
        latest = max((self.place[owner] for owner in owners if owner in self.place), default=None)
        if latest is None or not self._joins(each, self.made[latest]):
            latest = len(self.made)
            self.made.append(Kernel(operations=[each]))
            self._place(each, latest)
            if each.kind in ("product", "row"):
                self._take_over(each, latest)
        else:
            self.made[latest].operations.append(each)
            self._place(each, latest)

    def _place(self, each: Operation, place: int) -> None:
        for tensor in each.writes:
            self.place[self.traffic.owner[tensor.name]] = place
            self.maker[self.traffic.owner[tensor.name]] = each

    def _joins(self, each: Operation, kernel: Kernel) -> bool:
        kinds = {one.kind for one in kernel.operations}
        if (
            each.kind not in JOINING
            or kinds & {*ALONE}
            or any(_is_long(one, self.on_chip_bytes) for one in kernel.operations)
        ):
            return False
        if each.kind == "row":
            return not _is_long(each, self.on_chip_bytes) and not kinds & {"product", "attention"}
        return True

    def _take_over(self, first: Operation, new: int) -> None:
        """Do the elementwise work that only the new kernel reads while it reads its operands: for a product the work of kernels which do
        nothing else, so that no epilogue is undone."""
        inside, waiting = {first.name}, [first]
        while waiting:
            for tensor in waiting.pop().reads:
                maker = self.maker.get(self.traffic.owner[tensor.name])
                if maker is None or maker.name in inside or not self._is_movable(maker, inside, first):
                    continue
                inside.add(maker.name)
                self.made[self.place[self.traffic.owner[maker.writes[0].name]]].operations.remove(maker)
                self.made[new].operations.insert(0, maker)
                self._place(maker, new)
                waiting.append(maker)

    def _is_movable(self, maker: Operation, readers: set[str], first: Operation) -> bool:
        owners = {self.traffic.owner[tensor.name] for tensor in maker.writes}
        if maker.kind not in FIRST or owners & self.traffic.returned:
            return False
        beside = self.made[self.place[self.traffic.owner[maker.writes[0].name]]].operations
        if first.kind == "product" and any(one.kind not in FIRST for one in beside):
            return False
        return all(self.traffic.readers.get(owner, set()) <= readers for owner in owners)
