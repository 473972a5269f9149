"""Classes of a step's headings: what bounds the work, whose communication it is, or why nothing runs.

They are the bars of a step's waterfall. `COMMUNICATION` and `IDLE` are those of the coarser account of a long table.
"""

from __future__ import annotations

from functools import cache

from predict.rank.sharded_weights import FSDP
from predict.step.itemised.breakdown import BUBBLE, DP, OVERHEAD, P2P, STRAGGLERS
from predict.step.itemised.items import CP, EP, GLUE, HOST, OTHER, TP
from predict.workload.layers.layer import RECOMPUTE
from sampling.arithmetic.operator import Operator
from sampling.catalogue import registry

COMPUTE, MEMORY = "compute", "memory-bound"
TENSOR, EXPERT, CONTEXT = "TP exposed", "EP exposed", "CP exposed"
SENDS, BUBBLES, DATA = "PP sends", "PP bubble", "DP exposed"
RUNTIME = "runtime"
CLASSES = (COMPUTE, MEMORY, TENSOR, EXPERT, CONTEXT, SENDS, DATA, RUNTIME, BUBBLES)
"""The classes in the order in which a waterfall stacks them."""
COMMUNICATION = frozenset({TENSOR, EXPERT, CONTEXT, SENDS, DATA})
IDLE = frozenset({BUBBLES, RUNTIME})
_NAMED = {
    TP: TENSOR,
    EP: EXPERT,
    CP: CONTEXT,
    P2P: SENDS,
    BUBBLE: BUBBLES,
    DP: DATA,
    FSDP: DATA,
    **dict.fromkeys((HOST, GLUE, OTHER, STRAGGLERS, OVERHEAD), RUNTIME),
}


def class_of(heading: str) -> str:
    """The class of a heading of the ledger; operators that arithmetic does not bound move memory."""
    return _NAMED.get(heading) or (COMPUTE if heading in _computing() else MEMORY)


@cache
def _computing() -> frozenset[str]:
    """Headings of operators that are bound by arithmetic, and of whole layers."""
    operators = [each for each in registry().values() if issubclass(each, Operator)]
    return frozenset({RECOMPUTE, *(each.NAME for each in operators if each.KIND in ("gemm", "attention"))})
