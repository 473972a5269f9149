"""Ownership: which operators of a trace are calls, and to which call or autograd node the time of every other one belongs."""

from __future__ import annotations

from collections.abc import Iterable

from sampling.call import Call
from sampling.importers.torch_trace.calls import call_of
from sampling.importers.torch_trace.events import Op


def calls_and_owners(ops: Iterable[Op]) -> tuple[dict[Op, Call], dict[Op, Op]]:
    """The operators that are calls, and for each operator the call or autograd node that its time belongs to.

    A forward that recomputation runs inside an autograd node has sequence numbers of its own, which the node's operators lack.
    """
    calls: dict[Op, Call] = {}
    owners: dict[Op, Op] = {}
    for op in ops:
        above = owners.get(op.parent) if op.parent is not None else None
        if above is not None and above.node and not _is_recomputed(op):
            owners[op] = above
        elif op.node:
            owners[op] = op
        elif (call := call_of(op)) is not None:
            if above is not None:
                calls.pop(above, None)
            calls[op], owners[op] = call, op
        elif above is not None and not above.node:
            owners[op] = above
    return calls, owners


def _is_recomputed(op: Op) -> bool:
    """Whether an operator below an autograd node is of a forward; the node itself, by its short name, bears the node's number."""
    return op.name.startswith("aten::") and "Sequence number" in op.arguments
