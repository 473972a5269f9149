"""Read a file's module as a graph of operations."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predict.bounds.element_counts import einsum_macs
from predict.bounds.kernels import Graph, Operation, OperationKind, Role, Tensor
from predict.bounds.user_file import DATA_DEPENDENT, TORCH_DTYPE, export, load_module
from sampling.errors import UserError
from sampling.files.places import shipped_json
from sampling.hardware.hardware_file import DTYPE_BYTES

if TYPE_CHECKING:
    import torch


Tensors = Sequence[Tensor]
Arguments = Sequence[Any]
"""The arguments of a call, its tensors among them."""


ATTENTION = "scaled_dot_product_attention"


def _inner(reads: Tensors, out: Tensor) -> int:
    return out.elements * reads[0].shape[-1]


def _second(reads: Tensors, out: Tensor) -> int:
    """Products of `addmm` and its like, whose first tensor is added."""
    return out.elements * reads[1].shape[-1]


def _summed_batch(reads: Tensors, out: Tensor) -> int:
    return math.prod(reads[1].shape) * out.shape[-1]


def _convolution(reads: Tensors, out: Tensor) -> int:
    return out.elements * math.prod(reads[1].shape[1:])


def _transposed(reads: Tensors, out: Tensor) -> int:
    return reads[0].elements * math.prod(reads[1].shape[1:])


def _recurrent(reads: Tensors, out: Tensor) -> int:
    """Each weight matrix once for each step and sequence."""
    steps = math.prod(reads[0].shape[:-1])
    return steps * sum(tensor.elements for tensor in reads[1:] if len(tensor.shape) == 2)


def _bilinear(reads: Tensors, out: Tensor) -> int:
    return math.prod(out.shape[:-1]) * reads[2].elements


def _outer(reads: Tensors, out: Tensor) -> int:
    return out.elements


def _attention(reads: Tensors, out: Tensor) -> int:
    query, key, value = reads[:3]
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    return pairs * (query.shape[-1] + value.shape[-1])


def _grouped(reads: Tensors, out: Tensor) -> int:
    """Rows of one operand, each with the matrix of its group; or the columns of each group, where the result is a stack."""
    left, right = reads[:2]
    groups = left.shape[0] if len(left.shape) > len(right.shape) else 1  # each column meets its own group's matrix
    return left.elements // groups * right.shape[-1]


PRODUCTS: Mapping[str, Callable[[Tensors, Tensor], int]] = {
    **dict.fromkeys(("linear", "matmul", "mm", "bmm", "mv", "dot", "vdot", "_scaled_mm", "_int_mm"), _inner),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _second),
    "addbmm": _summed_batch,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(("_grouped_mm", "grouped_mm"), _grouped),
    "bilinear": _bilinear,
    "outer": _outer,
    ATTENTION: _attention,
}


def macs_of(name: str, reads: Tensors, out: Tensor, arguments: Arguments) -> int:
    """Multiply-accumulates of an operation, by the name that it has in an exported graph; 0 for anything but a matrix product.

    They come from the shapes of what a product reads and writes, and are half of what `torch.utils.flop_counter` counts, which a test
    compares; causal attention counts whole, as there.
    """
    if name == "einsum":
        return einsum_macs(arguments[0], [tensor.shape for tensor in reads])
    if name == "convolution":
        return (_transposed if arguments[6] else _convolution)(reads, out)
    return PRODUCTS[name](reads, out) if name in PRODUCTS else 0


def skipped_share(name: str, reads: Tensors, *, causal: bool) -> float:
    """The share of attention's pairs of a query and a key that a causal mask hides; torch aligns the first query with the first key."""
    if name != ATTENTION or not causal:
        return 0.0
    queries, keys = reads[0].shape[-2], reads[1].shape[-2]
    square = min(queries, keys)
    return 1 - (square * (square + 1) / 2 + (queries - square) * keys) / (queries * keys)


NAMES: Mapping[OperationKind, Sequence[str]] = shipped_json("torch-operations.json")
"""Names by kind, without those of products; every other operation is elementwise, or makes a tensor from nothing."""
KIND_OF: Mapping[str, OperationKind] = {
    **{name: kind for kind, lines in NAMES.items() for name in " ".join(lines).split()},
    **dict.fromkeys((*PRODUCTS, "einsum", "convolution"), "product"),
    ATTENTION: "attention",
}
LOSSES = ("cross_entropy_loss", "nll_loss", "nll_loss_nd")
"""Losses over classes, which are the second dimension."""
WRITES_A_PART = "copy_"
"""`copy_` onto a slice, which is how `x[:, 0] = y` is exported."""


def kind_of(name: str, reads: Sequence[Tensor], *, trains: bool) -> OperationKind:
    """The kind of an operation; `trains` is whether a batch normalization computes its statistics here."""
    if not reads:
        return "made"
    if name == WRITES_A_PART:
        return "update"
    if name == "batch_norm" and not trains:
        return "pointwise"
    if name == "dropout" and not trains:
        return "view"
    if name.endswith("_like") or name.startswith("new_") or name in ("arange", "zero_", "fill_"):
        return "made"
    return KIND_OF.get(name.rstrip("_"), "pointwise")


def row_of(name: str, reads: Sequence[Tensor], writes: Sequence[Tensor], dims: Sequence[int]) -> int:
    """Elements that a reduction or a normalization takes together; `dims` are the dimensions that it names, none for all."""
    first = reads[0]
    if name == "batch_norm":
        return first.elements // max(1, first.shape[1])
    if name in ("layer_norm", "rms_norm"):
        return reads[1].elements if len(reads) > 1 else first.shape[-1]
    if name in LOSSES and len(first.shape) > 1:
        return first.shape[1]
    if name in ("group_norm", "instance_norm"):
        return first.elements // max(1, first.shape[0])
    taken = 1
    for dim in dims:
        taken *= first.shape[dim] if first.shape else 1
    return taken if dims else first.elements // max(1, writes[0].elements)


INLINED = ("wrap_with_set_grad_enabled", "wrap_with_autocast", "wrap", "checkpoint", "tag_activation_checkpoint")
"""Operations that run a graph of their own once."""
FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def read_module(path: Path, precision: str) -> Graph:
    """The forward of a file's `Model` on its `get_inputs()`, with floating-point tensors of the precision.

    UserError, with the file, the line and the operation, for what cannot be exported.
    """
    made = load_module(path, precision)
    program = export(made, path)
    return _Reader(path, precision).graph(program, shared_names(made.module))


class _Reader:
    """Turns the nodes of an exported program into operations."""

    def __init__(self, path: Path, precision: str) -> None:
        self.path = path
        self.precision = precision
        self.operations: list[Operation] = []

    def graph(self, program: torch.export.ExportedProgram, shared: Mapping[str, str]) -> Graph:
        """The graph of a program, in which a weight that goes by two names is one tensor; `shared` is its first name by each."""
        inputs = set(program.graph_signature.user_inputs)
        target = {spec.arg.name: shared.get(str(spec.target)) for spec in program.graph_signature.input_specs}
        first: dict[str, Any] = {}
        values: dict[torch.fx.Node, Any] = {}
        tensors: dict[Role, list[Tensor]] = {"input": [], "weight": [], "made": []}
        for node in program.graph.nodes:
            if node.op == "placeholder":
                role: Role = "input" if node.name in inputs else "weight"
                weight = target[node.name] or node.name
                if weight not in first:
                    first[weight] = self._tensors(node, role, node.name)
                    tensors[role] += _leaves(first[weight])
                values[node] = first[weight]
        outputs = self._run(program.graph_module, values, prefix="")
        return Graph(
            name=self.path.stem,
            precision=self.precision,
            inputs=tuple(tensors["input"]),
            weights=tuple(tensors["weight"]),
            operations=tuple(self.operations),
            outputs=tuple(_leaves(outputs)),
        )

    def _run(self, module: torch.fx.GraphModule, values: dict[torch.fx.Node, Any], *, prefix: str) -> Any:
        """Read a graph whose placeholders have `values`; the value that it returns."""
        for node in module.graph.nodes:
            if node.op == "get_attr":
                values[node] = self._attribute(module, node, prefix)
            elif node.op == "call_function":
                values[node] = self._call(node, values, prefix)
            elif node.op == "output":
                return _given(node.args[0], values)
        return None

    def _attribute(self, module: torch.fx.GraphModule, node: torch.fx.Node, prefix: str) -> Any:
        import torch

        found: Any = module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if isinstance(found, torch.Tensor):
            return self._tensor(found, f"{prefix}{node.name}", "made", node)
        return found

    def _call(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any], prefix: str) -> Any:
        name = _name(node)
        arguments = _given(node.args, values)
        if name == "getitem":
            return arguments[0][arguments[1]]
        if name in INLINED:
            return self._inline(node, arguments, prefix)
        self._require_plain(node, name)
        written = self._tensors(node, "made", f"{prefix}{node.name}")
        reads, writes = tuple(_leaves((arguments, _given(node.kwargs, values)))), tuple(_leaves(written))
        if writes:
            by_name = _by_name(node, arguments, _given(node.kwargs, values))
            self.operations.append(self._operation(node, name, reads, writes, by_name, prefix))
        return written

    def _inline(self, node: torch.fx.Node, arguments: Sequence[Any], prefix: str) -> Any:
        """The operations of a graph that another operation runs."""
        at, inner = next((at, each) for at, each in enumerate(arguments) if hasattr(each, "graph"))
        places = [each for each in inner.graph.nodes if each.op == "placeholder"]
        given = dict(zip(places, arguments[at + 1 :], strict=False))
        return self._run(inner, given, prefix=f"{prefix}{node.name}.")

    def _operation(
        self,
        node: torch.fx.Node,
        name: str,
        reads: tuple[Tensor, ...],
        writes: tuple[Tensor, ...],
        arguments: Mapping[str, Any],
        prefix: str,
    ) -> Operation:
        trains = bool(arguments.get("training", arguments.get("train", False)))
        kind = kind_of(name, reads, trains=trains)
        dims = arguments.get("dim")
        named = [each for each in (dims if isinstance(dims, (list, tuple)) else [dims]) if isinstance(each, int)]
        return Operation(
            name=f"{prefix}{node.name}",
            type=name.strip("_"),
            kind=kind,
            reads=reads,
            writes=writes,
            macs=macs_of(name, reads, writes[0], tuple(arguments.values())) if reads else 0,
            skipped=skipped_share(name, reads, causal=bool(arguments.get("is_causal", False))),
            row=row_of(name, reads, writes, named) if kind == "row" else 0,
            line=self._line(node),
            module=_part(node),
        )

    def _require_plain(self, node: torch.fx.Node, name: str) -> None:
        """UserError for an operation that runs graphs in a way that is not read here."""
        if any(hasattr(each, "graph") for each in _graphs_of(node)):
            known = ", ".join(INLINED[:2])
            raise UserError(
                f"{self._line(node) or self.path}: {name} is not read: it runs a part of the module by itself; write the part out ({known} are read)"
            )

    def _tensors(self, node: torch.fx.Node, role: Role, name: str) -> Any:
        """The tensors that a node makes, as it makes them: one, or a list of them, or none."""
        import torch

        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            return self._tensor(value, name, role, node)
        if isinstance(value, (list, tuple)):
            return [
                self._tensor(each, f"{name}.{place}", role, node) if isinstance(each, torch.Tensor) else each
                for place, each in enumerate(value)
            ]
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise self._data_dependent(node)
        return value

    def _tensor(self, value: torch.Tensor, name: str, role: Role, node: torch.fx.Node) -> Tensor:
        if not all(isinstance(size, int) for size in value.shape):
            raise self._data_dependent(node)
        dtype = str(value.dtype).removeprefix("torch.")
        own = dtype == TORCH_DTYPE[self.precision]
        width = float(DTYPE_BYTES[self.precision]) if own else float(value.element_size())
        return Tensor(name=name, shape=tuple(value.shape), dtype=dtype, item_bytes=width, role=role)

    def _data_dependent(self, node: torch.fx.Node) -> UserError:
        return UserError(f"{self._line(node) or self.path}: {_name(node)} cannot be counted: {DATA_DEPENDENT}")

    def _line(self, node: torch.fx.Node) -> str:
        """The innermost line of the user's file that calls a node, else the outermost line known."""
        frames = FRAME.findall(node.meta.get("stack_trace") or "")
        own = [frame for frame in frames if frame[0] == str(self.path)]
        return ":".join((own[-1:] or frames[:1])[0]) if frames else ""


def shared_names(module: torch.nn.Module) -> dict[str, str]:
    """The name of every parameter and buffer → the first name of the same tensor, as of a head tied to the embedding."""
    first: dict[int, str] = {}
    state = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return {name: first.setdefault(id(tensor), name) for name, tensor in state}


def _part(node: torch.fx.Node) -> str:
    """The path of the submodule that calls a node."""
    stack = [*(node.meta.get("nn_module_stack") or {}).values()]
    return str(stack[-1][0]).removeprefix("L['self'].") if stack else ""


def _name(node: torch.fx.Node) -> str:
    """`linear` for aten.linear.default."""
    target: Any = node.target
    packet = getattr(target, "overloadpacket", target)
    return str(getattr(packet, "__name__", packet)).rpartition(".")[2]


def _given(value: Any, values: Mapping[torch.fx.Node, Any]) -> Any:
    """An argument with the values of its nodes in their place."""
    import torch

    return torch.fx.node.map_arg(value, lambda node: values[node])


def _graphs_of(node: torch.fx.Node) -> Iterator[Any]:
    for each in node.all_input_nodes:
        if each.op == "get_attr":
            module: Any = node.graph.owning_module
            with contextlib.suppress(AttributeError):
                yield getattr(module, str(each.target))


def _leaves(value: Any) -> Iterator[Tensor]:
    """The tensors inside lists and mappings, each once."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _leaves(each)


def _by_name(node: torch.fx.Node, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of its schema, in their order."""
    schema = getattr(node.target, "_schema", None)
    names = [each.name for each in schema.arguments] if schema else [str(place) for place in range(len(arguments))]
    return {**dict(zip(names, arguments, strict=False)), **named}
