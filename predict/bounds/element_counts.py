"""Elements that each operation moves by SOLAR's rule, which its three models are made of.

Every tensor counts by its elements, whatever its type. Renaming memory is free; a slice reads what it takes, a gather writes
nothing, an update writes one part; what yields bools, and what is made of no input, counts nothing. Attention is its two products
with the scale and the softmax between them, whole and without regard to its mask.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from predict.bounds.kernels import Graph, Operation, Tensor

LETTERS = "ABCDEFGHIJLMOPQSTUVWXYZ"
"""Letters of elementwise equations; K and N are those of a product, R of a new shape."""


def equation_of(operation: Operation) -> str:
    """The equation of an operation on its dimensions, one letter each: `B0K,NK->B0N` for a linear layer; '' where letters say nothing."""
    ranks = [len(tensor.shape) for tensor in operation.reads]
    (out, *_) = (*(len(tensor.shape) for tensor in operation.writes), 0)
    if operation.type == "linear":
        batch = "".join(f"B{place}" for place in range(ranks[0] - 1))
        return f"{batch}K,NK->{batch}N"
    if operation.type in ("matmul", "bmm", "mm") and min(ranks) >= 2:
        batches = [LETTERS[: rank - 2] for rank in ranks]
        return f"{batches[0]}MK,{batches[1]}KN->{LETTERS[: out - 2]}MN"
    if operation.type == "embedding":
        return f"{LETTERS[: ranks[1]]},VD->{LETTERS[: ranks[1]]}D"
    if operation.kind in ("pointwise", "row", "copy") and max([out, *ranks]) < len(LETTERS):
        reads = ranks[:1] if operation.kind == "row" else ranks
        return f"{','.join(LETTERS[:rank] for rank in reads)}->{LETTERS[:out]}"
    return ""


def einsum_macs(equation: str, shapes: Sequence[Sequence[int]]) -> int:
    """Multiply-accumulates of torch.einsum, contracted from left to right; an ellipsis stands for the dimensions that are left."""
    left, _, result = equation.replace(" ", "").partition("->")
    operands = [_labels(term, shape) for term, shape in zip(left.split(","), shapes, strict=True)]
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    macs, known = 0, set(operands[0])
    for place, labels in enumerate(operands[1:], start=1):
        together = known | set(labels)
        macs += math.prod(sizes[label] for label in together)
        later = {label for after in operands[place + 1 :] for label in after} | set(result)
        known = {label for label in together if label in later or label.isdigit()}
    return macs


def _labels(term: str, shape: Sequence[int]) -> list[str]:
    """A label for each dimension; those of an ellipsis are numbers from the last one."""
    if "..." not in term:
        return [*term]
    before, after = term.split("...")
    hidden = len(shape) - len(before) - len(after)
    return [*before, *(str(place) for place in range(hidden, 0, -1)), *after]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One operation, or one of the four of attention. `reads` are elements by the tensor that owns the memory."""

    name: str
    type: str
    equation: str
    macs: int
    other_ops: int
    reads: tuple[tuple[str, int], ...]
    written: int
    external: int
    """Elements that come from inputs and weights of the module."""
    returned: int
    """Elements that the module returns and none of its operations reads."""
    line: str
    input_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[int, ...], ...]
    made_by: tuple[str, ...]
    """Names of the operations whose results it reads."""

    @property
    def unfused(self) -> int:
        return sum(elements for _, elements in self.reads) + self.written

    @property
    def fused(self) -> int:
        """Elements that move where no tensor between operations leaves the chip."""
        return self.external + self.returned

    @property
    def intermediate(self) -> int:
        return self.unfused - self.fused


@dataclass(frozen=True, kw_only=True)
class ElementCounts:
    """The counts of a module: its layers, and totals over them."""

    graph: Graph
    layers: tuple[Layer, ...]

    def total(self, field: str) -> int:
        """The sum over the layers of one of their numbers."""
        return sum(getattr(layer, field) for layer in self.layers)

    @cached_property
    def fused(self) -> int:
        """Counts summed over the layers, where a tensor that several of them read counts once."""
        largest: dict[str, int] = {}
        external = {tensor.name for tensor in (*self.graph.inputs, *self.graph.weights)}
        for layer in self.layers:
            for name, elements in layer.reads:
                if name in external:
                    largest[name] = max(largest.get(name, 0), elements)
        return sum(largest.values()) + self.total("returned")

    @property
    def weights(self) -> int:
        return sum(tensor.elements for tensor in self.graph.weights)

    @property
    def intermediate_tensors(self) -> int:
        """Operations whose result others read."""
        read = {name for layer in self.layers for name in layer.made_by}
        return len(read)


def element_counts(graph: Graph) -> ElementCounts:
    return ElementCounts(graph=graph, layers=tuple(_Counter(graph).layers()))


class _Counter:
    """Counts the operations of a graph; a tensor belongs to the one whose memory it is."""

    def __init__(self, graph: Graph) -> None:
        self.owner = graph.owners(lambda each: each.kind == "view")
        self.external = {tensor.name for tensor in (*graph.inputs, *graph.weights)}
        self.graph = graph
        real = [each for each in graph.operations if each.kind != "view"]
        read = {self.owner[tensor.name] for each in real for tensor in each.reads}
        self.returned = {self.owner[tensor.name] for tensor in graph.outputs} - read
        self.maker = {tensor.name: each.name for each in graph.operations for tensor in each.writes}
        self.from_nothing = self._from_nothing()

    def _from_nothing(self) -> set[str]:
        """The tensors that no input and no weight reaches."""
        found: set[str] = set()
        for each in self.graph.operations:
            if all(tensor.name in found for tensor in each.reads):
                found.update(tensor.name for tensor in each.writes)
        return found

    def layers(self) -> Iterator[Layer]:
        for each in self.graph.operations:
            if each.kind == "made":
                continue
            if each.kind == "attention":
                yield from self._attention(each)
            else:
                yield self._layer(each)

    def _layer(self, each: Operation) -> Layer:
        free = each.kind == "view" or any(
            tensor.dtype == "bool" or tensor.name in self.from_nothing for tensor in each.writes
        )
        reads, written = ((), 0) if free else _moved(each)
        return self._counted(
            each,
            reads=tuple((self.owner[tensor.name], elements) for tensor, elements in reads),
            written=written,
            other_ops=0 if free else _other_ops(each),
        )

    def _counted(self, each: Operation, *, reads: tuple[tuple[str, int], ...], written: int, other_ops: int) -> Layer:
        is_returned = any(self.owner[tensor.name] in self.returned for tensor in each.writes)
        return Layer(
            name=each.name,
            type=each.type,
            equation=equation_of(each),
            macs=each.macs,
            other_ops=other_ops,
            reads=reads,
            written=written,
            external=sum(elements for name, elements in reads if name in self.external),
            returned=written if is_returned else 0,
            line=each.line,
            input_shapes=tuple(tensor.shape for tensor in each.reads),
            output_shapes=tuple(tensor.shape for tensor in each.writes),
            made_by=tuple(self.maker[tensor.name] for tensor in each.reads if tensor.name in self.maker),
        )

    def _attention(self, each: Operation) -> Iterator[Layer]:
        query, key, value = each.reads[:3]
        (out,) = each.writes[:1]
        scores = Tensor(
            name=f"{each.name}.scores",
            shape=(*query.shape[:-1], key.shape[-2]),
            dtype=query.dtype,
            item_bytes=query.item_bytes,
            role="made",
        )
        products = (scores.elements * query.shape[-1], scores.elements * value.shape[-1])
        steps: Mapping[str, tuple[str, tuple[Tensor, ...], Tensor, int]] = {
            "qk_matmul": ("matmul", (query, key), scores, products[0]),
            "scale": ("mul", (scores,), scores, 0),
            "softmax": ("softmax", (scores,), scores, 0),
            "av_matmul": ("matmul", (scores, value), out, products[1]),
        }
        before = {scores.name: ""}
        for name, (type_, reads, written, macs) in steps.items():
            whole = f"{each.name}.{name}"
            yield Layer(
                name=whole,
                type=type_,
                equation=ATTENTION_EQUATIONS[name],
                macs=macs,
                other_ops=0 if macs else written.elements,
                reads=tuple((self.owner.get(tensor.name, tensor.name), tensor.elements) for tensor in reads),
                written=written.elements,
                external=sum(t.elements for t in reads if self.owner.get(t.name) in self.external),
                returned=written.elements if self.owner.get(written.name) in self.returned else 0,
                line=each.line,
                input_shapes=tuple(tensor.shape for tensor in reads),
                output_shapes=(written.shape,),
                made_by=tuple(filter(None, (before.get(t.name) or self.maker.get(t.name) for t in reads))),
            )
            before[scores.name] = whole


ATTENTION_EQUATIONS: Mapping[str, str] = {
    "qk_matmul": "BHQD,BHKD->BHQK",
    "scale": "BHQK->BHQK",
    "softmax": "BHQK->BHQK",
    "av_matmul": "BHQK,BHKV->BHQV",
}
WEIGHTLESS = ("layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm")
"""Normalizations, whose scales and offsets SOLAR does not count."""


def _moved(each: Operation) -> tuple[tuple[tuple[Tensor, int], ...], int]:
    """The elements that an operation reads of each tensor, and those that it writes."""
    out = sum(tensor.elements for tensor in each.writes)
    if each.kind == "slice":
        return ((each.reads[0], out),), 0
    if each.kind == "gather":
        every = sum(tensor.elements for tensor in each.reads)
        return ((each.reads[0], min(every, out)),), 0
    if each.kind == "update":
        return (), each.reads[-1].elements
    reads = each.reads[:1] if each.type in WEIGHTLESS else each.reads
    return tuple((tensor, tensor.elements) for tensor in reads), out


def _other_ops(each: Operation) -> int:
    """Scalar operations: one an element of the result, or of what is reduced to it."""
    if each.kind not in ("pointwise", "row", "other"):
        return 0
    out = sum(tensor.elements for tensor in each.writes)
    return max([out, *(tensor.elements for tensor in each.reads)]) if each.kind == "row" else out
