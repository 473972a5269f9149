"""Naming: the heading of the ledger, and the call where shapes show, of every operator in a trace."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from predict.model.spec import ModelSpec
from predict.step.breakdown import DP, OPTIMIZER
from predict.workload.layer import ACCUMULATION
from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.importers.torch_trace.calls import calls_and_owners
from sampling.importers.torch_trace.events import Kernel, Op, Span, plain_name
from sampling.operators.attention import Attention

OPTIMIZER_SPANS = ("Optimizer.step", "Optimizer.zero_grad")
"""Beginnings of the spans that torch.optim records."""
REDUCER = ("torch::distributed::reducer", "torch.distributed.ddp.reducer")
"""Beginnings of the passes in which DDP copies gradients to its buckets and back."""
GRADIENT_SUM = "torch::autograd::AccumulateGrad"
ATTENTION = Attention.NAME
FORWARD, BACKWARD = "forward", "backward"
Half = tuple[str, str]
"""A heading of the ledger, and one of these directions."""
BY_NAME: Mapping[str, str] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), "gemm"),
    "silu": "swiglu",
    "gelu": "gelu",
    "embedding": "embedding",
    "logsoftmax": "cross_entropy",
    "nllloss": "cross_entropy",
    "nlllossforward": "cross_entropy",
    "nlllossnd": "cross_entropy",
    "crossentropyloss": "cross_entropy",
    "rmsnorm": "rms_norm",
    "fusedrmsnorm": "rms_norm",
    "layernorm": "layer_norm",
    "nativelayernorm": "layer_norm",
    "topk": "router",
    "scaleddotproductattention": ATTENTION,
    "scaleddotproductattentionmath": ATTENTION,
    "groupedmm": "grouped_gemm",
}
"""Plain name of a forward operator → heading, where its shapes name no call."""


@dataclass(frozen=True, slots=True)
class Named:
    """An operator's heading, and its call and phase where its shapes show."""

    heading: str
    call: Call | None = None
    phase: Phase | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Widths:
    """Last dimensions of a model's tensors on a rank, by which passes without a call are distinguished."""

    hidden: frozenset[int]
    inner: frozenset[int]
    """Widths of the feed-forward and of its experts."""
    head: frozenset[int]
    """Widths of a head and of its halves."""
    vocab: frozenset[int]
    activation: str
    rotates: bool
    """Whether queries and keys are rotated, so that passes over heads are the rotary embedding's, and not attention's copies."""


def widths_of(model: ModelSpec, tp: int) -> Widths:
    """The widths of a model whose matrices `tp` ranks share."""
    inner = [model.ffn, *([model.experts.ffn] if model.experts else [])]
    return Widths(
        hidden=frozenset({model.hidden}),
        inner=frozenset(width // share for width in inner for share in (1, tp)),
        head=frozenset({model.head_dim, model.head_dim // 2}),
        vocab=frozenset({model.vocab, model.vocab // tp}),
        activation="swiglu" if model.gated else "gelu",
        rotates=model.rope,
    )


def name_operators(ops: Sequence[Op], spans: Iterable[Span], widths: Widths) -> dict[Op, Named]:
    """The operators that have a name; a backward has the name of the forward whose sequence number its autograd node bears."""
    calls, owners = calls_and_owners(ops)
    optimizer = [span for span in spans if span.name.startswith(OPTIMIZER_SPANS)]
    named: dict[Op, Named] = {}
    forwards: dict[object, Named] = {}
    for op in _in_optimizer(ops, optimizer):
        named[op] = Named(OPTIMIZER)
    for op in ops:
        if op not in named:
            found = _name(op, calls, owners, named, forwards, widths)
            if found is not None:
                named[op] = found
        if op in named and named[op].phase != "backward":
            _note_forward(op, named[op], forwards)
    return named


def _note_forward(op: Op, name: Named, forwards: dict[object, Named]) -> None:
    """Note the sequence number by which an autograd node finds the name: the operator's, or the one of the operator that dispatched it."""
    above: Op | None = op
    while above is not None and not above.node:
        number = above.arguments.get("Sequence number")
        if number is not None and (above is op or above.name == op.name):
            forwards.setdefault((number, plain_name(above.name)), name)
            forwards.setdefault(number, name)
            return
        above = above.parent


def _in_optimizer(ops: Sequence[Op], spans: Sequence[Span]) -> Iterable[Op]:
    """The operators, which are in the order of their starts, that lie within a span of their thread."""
    starts = [op.start_us for op in ops]
    for span in spans:
        inside = ops[bisect_left(starts, span.start_us) : bisect_left(starts, span.end_us)]
        yield from (op for op in inside if op.thread == span.thread)


def _name(
    op: Op,
    calls: Mapping[Op, Call],
    owners: Mapping[Op, Op],
    named: Mapping[Op, Named],
    forwards: Mapping[object, Named],
    widths: Widths,
) -> Named | None:
    owner = owners.get(op)
    above = named.get(op.parent) if op.parent is not None else None
    if op.name.startswith(REDUCER):
        return Named(DP)
    if owner is not None and owner in calls:
        return _of_call(calls[owner], above)
    if owner is not None:  # another operator that has no call itself only dispatches one
        return _of_node(owner, op, forwards, widths) if owner.node else None
    if above is not None and above.phase != "backward":
        return above
    heading = BY_NAME.get(plain_name(op.name)) or _by_width(op, widths)
    return Named(heading, None, "forward") if heading else None


def _of_call(call: Call, above: Named | None) -> Named:
    """The name of a call; products and a softmax within attention are attention."""
    if above is not None and above.heading == ATTENTION and not isinstance(call, Attention):
        return above
    return Named(heading_of(call), call, "forward")


def _of_node(node: Op, op: Op, forwards: Mapping[object, Named], widths: Widths) -> Named | None:
    """The name of an operator below an autograd node: its forward's, or the sum of gradients where the node keeps one."""
    if GRADIENT_SUM in node.name:
        return Named(ACCUMULATION, None, "backward")
    number = node.arguments.get("Sequence number", -1)
    made_by = forwards.get((number, plain_name(node.node))) or forwards.get(number)
    if made_by is None:
        heading = BY_NAME.get(plain_name(node.node)) or _by_width(op, widths)
        return Named(heading, None, "backward") if heading else None
    return Named(made_by.heading, made_by.call, "backward")


def _by_width(op: Op, widths: Widths) -> str:
    """The heading of a pass by the last dimension of what it reads; '' where none shows."""
    shapes = [shape for each in op.dims for shape in _shapes(each) if shape]
    if not shapes:
        return ""
    widest = max(shapes, key=len)
    last = widest[-1]
    if len(widest) == 4 and last in widths.head:
        return "rope" if widths.rotates else ATTENTION
    if last in widths.vocab:
        return "cross_entropy"
    if last in widths.inner:
        return widths.activation
    if last in widths.hidden:
        return "residual_add" if plain_name(op.name).startswith(("add", "sum")) else ""
    return ""


def _shapes(dims: object) -> Iterable[Sequence[int]]:
    """The shapes in one input's dimensions, which for a list of tensors are a list of shapes."""
    if isinstance(dims, list) and dims and isinstance(dims[0], list):
        return [each for each in dims if each]
    return [dims] if isinstance(dims, list) else []


def heading_of(call: Call) -> str:
    """The ledger's heading for a call of a trace; products of batches are products."""
    if isinstance(call, Collective):
        return DP
    return call.HEADING or ("gemm" if call.NAME == "batched_gemm" else call.NAME)


def direction(phase: Phase) -> str:
    """The half of a step that a phase belongs to."""
    return BACKWARD if phase.startswith(BACKWARD) else FORWARD


PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE), heading)
    for pattern, heading in (
        ("multi_tensor|adam", OPTIMIZER),
        ("flash|fmha|attn|attention|sdpa|mha_(fwd|bwd)|masked_softmax", ATTENTION),
        ("cross_?entropy|nll_?loss|log_?softmax", "cross_entropy"),
        ("group(ed)?_?(gemm|mm)|moe_?gemm|fused_moe|(?<![a-z])bmm_.*dynbatch", "grouped_gemm"),
        ("gemm|nvjet|cutlass|cijk_|cublas|split_?k|xmma|tensorop|triton_tem", "gemm"),
        ("unpermute|moe.*finalize", "unpermute"),
        ("permute", "permute"),
        ("top_?k|router|moe.*routing", "router"),
        ("layer_?norm|(?<![a-z])ln_(fwd|bwd)", "layer_norm"),
        ("rms_?norm|rsqrt", "rms_norm"),
        ("swiglu|silu|act_and_mul", "swiglu"),
        ("gelu", "gelu"),
        ("rope|rotary", "rope"),
        ("embedding", "embedding"),
        ("dropout", "dropout"),
    )
)
"""Parts of kernels' names and their headings, the first that is found wins: a fused kernel is named by its costliest part. Names are those
of cuBLAS (nvjet, xmma), CUTLASS, rocBLAS (Cijk_), cuDNN, flash-attention, Transformer Engine, TensorRT-LLM (bmm_…, moe::dev), vLLM, SGLang,
apex (multi_tensor) and torch's compiler, which joins the operators that it fuses (triton_red_fused_…)."""
BACKWARD_KERNEL = re.compile(r"bwd|backward|dgrad|wgrad|(?<![a-z])d(q|kv|gamma)(?![a-z])", re.IGNORECASE)


@cache
def name_of_kernel(kernel: str) -> Named | None:
    """The heading that a kernel's own name states, and its direction if the name says that it belongs to a backward; None for any
    other name.

    It is for kernels of fused libraries, of compilers and of replayed CUDA graphs, which an operator of a library's own launches, or none
    that a trace shows.
    """
    heading = next((heading for pattern, heading in PATTERNS if pattern.search(kernel)), None)
    if heading is None:
        return None
    return Named(heading, None, "backward" if BACKWARD_KERNEL.search(kernel) else None)


# Classes: what any kernel is, whether or not it is one of ours; those of convolutional networks and of recommenders too.

COPY, COMMUNICATION = "copy", "communication"
UNKNOWN = "unknown"
"""Class of a kernel whose name shows nothing, and whose operator neither."""
BEFORE = tuple(
    (re.compile(pattern, re.IGNORECASE), name)
    for pattern, name in (
        ("^memcpy|^memset|copybuffer|fillbuffer", COPY),
        (
            "nccl|rccl|mscclkernel|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|one_shot|two_shot|nvshmem",
            COMMUNICATION,
        ),
        (
            "batch_?norm|(?<![a-z])bn_(fw|bw)|groupnorm|group_norm|rowwisemoments|computefusedparams|gammabeta|internalgradients|backwardfusedparams",
            "norm",
        ),
        ("pool", "pooling"),
        (
            "conv(?!ert)|implicit_?gemm|igemm_(fwd|bwd|wrw)|winograd|nchw|nhwc|cudnn_infer|cudnn_train|miopen|subtensorop|batched_transpose",
            "convolution",
        ),
        ("fbgemm|embedding_bag|bucketize", "embedding"),
        ("(store|write|set|concat)_?kv_?cache|reshape_and_cache|page_indices|kv_indices", "kv_cache"),
    )
)
"""What a name shows whatever else is in it."""
AFTER = tuple(
    (re.compile(pattern, re.IGNORECASE), name)
    for pattern, name in (
        ("softmax", "softmax"),
        ("quant|fp8|scaled_", "quantize"),
        ("sort|scan|radix|rocprim|(?<![a-z])cub::|argmax|sampl|multinomial", "sampling"),
        ("gather|scatter|index|take|where", "gather"),
        (
            "elementwise|cat_?array|catarray|copy|fill|foreach|multi_?tensor|triton_poi|triton__|distribution|arange|tril|triu|position|future_token|bounds_check",
            "elementwise",
        ),
        ("reduce|norm|triton_(red|per)", "reduction"),
    )
)
"""What is left, by the shape of the work."""
GENERIC = frozenset(("elementwise", "reduction", "gather", UNKNOWN))
"""Classes that the operator which launched a kernel may name better."""


@cache
def _class_of_name(name: str) -> str:
    found = next((kind for pattern, kind in BEFORE if pattern.search(name)), None)
    if found is None and (named := name_of_kernel(name)) is not None:
        return named.heading
    return found or next((kind for pattern, kind in AFTER if pattern.search(name)), UNKNOWN)


def class_of(kernel: Kernel) -> str:
    """The class of a kernel: a heading of the ledger where its name or its operator shows one, else the shape of its work; UNKNOWN for
    none."""
    found = _class_of_name(kernel.name)
    if found not in GENERIC:
        return found
    op = kernel.op
    while op is not None:
        if heading := BY_NAME.get(plain_name(op.name)):
            return heading
        op = op.parent
    return found
