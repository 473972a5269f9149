"""The sizes of a model as the shapes of a trace's operators show them, and the shipped model that has them.

On a rank, tensor parallelism divides heads, inner width and vocabulary; the residual stream's width shows whole.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from predict.huggingface.config_json import read_model
from predict.model.shipped import FOLDER, shipped_models
from predict.model.spec import ModelSpec
from sampling.files.documents import read_json
from sampling.importers.torch_trace.calls import calls_and_owners
from sampling.importers.torch_trace.events import Op, Trace, plain_name
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm
from sampling.operators.vocabulary import Embedding

GATES = ("silu", "swiglu", "act_and_mul", "geglu")
"""Parts of the names of activations that gate."""
MOST_EXPERTS = 512
"""Outputs of a matrix of the hidden width up to which it may be a router."""
VOCAB_PADDING = 1.02
"""Factor that padding makes a vocabulary longer by, at most: Megatron pads to multiples of 128 × tp."""
WIDTHS = 3
"""Positions, queries and keys: inputs of a rotary embedding whose last dimensions show."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenModel:
    """Sizes on a rank; 0 for what does not show."""

    hidden: int = 0
    vocab: int = 0
    layers: int = 0
    q_width: int = 0
    kv_width: int = 0
    head_dim: int = 0
    ffn: int = 0
    experts: int = 0
    gated: bool = False
    layer_norm: bool = False
    attention_bias: bool = False
    dtype: str = ""
    tokens: int = 0
    """Tokens of one forward."""
    rows: int = 0
    """Sequences of one forward, where the embedding's input has two dimensions."""
    length: int = 0


def seen_model(traces: Iterable[Trace]) -> SeenModel:
    """The sizes that the forward operators of ranks show, those of the rank with the most products."""
    seen = [_seen(trace.ops) for trace in traces]
    return max(seen, key=lambda each: (bool(each.hidden), each.layers, each.q_width), default=SeenModel())


@dataclass(frozen=True, slots=True)
class _Products:
    """Forward products by the shape of their weights."""

    counts: Counter[tuple[int, int]]
    """(outputs, inputs) → runs."""
    tokens: dict[tuple[int, int], list[int]]
    biased: frozenset[tuple[int, int]]
    dtype: str


def _seen(ops: Sequence[Op]) -> SeenModel:
    calls, _ = calls_and_owners(ops)
    products = _products((op, call) for op, call in calls.items() if isinstance(call, Gemm))
    embeddings = [call for call in calls.values() if isinstance(call, Embedding)]
    hidden = embeddings[0].hidden if embeddings else _hidden(products.counts)
    if not hidden or not products.counts:
        return SeenModel()
    tables = [each for each in embeddings if each.hidden == hidden]
    largest = max(tables, key=lambda each: each.vocab, default=None)
    forwards = sum(each.vocab == largest.vocab for each in tables) if largest else 1
    attention = _attention(ops, [call for call in calls.values() if isinstance(call, Attention)])
    down = _down(products.counts, hidden, attention.q_width)
    inner = [shape for shape in products.counts if hidden in shape and products.counts[shape] > forwards]
    runs = min((products.counts[shape] for shape in inner), default=0)
    names = {plain_name(op.name) for op in ops}
    tokens = [count for shape in inner for count in products.tokens[shape]]
    query = [shape for shape in inner if shape[1] == hidden and shape[0] in _into(attention)]
    return SeenModel(
        hidden=hidden,
        vocab=largest.vocab if largest else 0,
        layers=runs // forwards,
        q_width=attention.q_width,
        kv_width=attention.kv_width,
        head_dim=attention.head_dim,
        ffn=down,
        experts=0 if down else _experts(products.counts, hidden, attention),
        gated=any(gate in name for name in names for gate in GATES) or _is_gated(products.counts, hidden, down),
        layer_norm=any("layernorm" in name for name in names),
        attention_bias=any(shape in products.biased for shape in query),
        dtype=products.dtype,
        tokens=round(median(tokens)) if tokens else 0,
        rows=largest.batch if largest and _has_rows(ops) else 0,
        length=largest.seq_len if largest and _has_rows(ops) else 0,
    )


def _products(found: Iterable[tuple[Op, Gemm]]) -> _Products:
    counts: Counter[tuple[int, int]] = Counter()
    tokens: dict[tuple[int, int], list[int]] = {}
    dtypes: Counter[str] = Counter()
    biased = set()
    for op, call in found:
        shape = (call.n, call.k)
        counts[shape] += 1
        tokens.setdefault(shape, []).append(call.m)
        dtypes[call.dtype] += call.m * call.n * call.k
        if plain_name(op.name) == "addmm" or len([each for each in op.dims if each]) > 2:
            biased.add(shape)
    return _Products(counts, tokens, frozenset(biased), max(dtypes, key=dtypes.__getitem__, default=""))


def _hidden(counts: Counter[tuple[int, int]]) -> int:
    """The width that most products read."""
    widths: Counter[int] = Counter()
    for (outputs, inputs), runs in counts.items():
        widths[inputs] += runs
        widths[outputs] += runs
    return max(widths, key=widths.__getitem__, default=0)


def _down(counts: Counter[tuple[int, int]], hidden: int, q_width: int) -> int:
    """Inner width of the MLP: what its second matrix reads, which is not the width of all heads."""
    found = {
        inputs: runs
        for (outputs, inputs), runs in counts.items()
        if outputs == hidden and inputs not in (hidden, q_width)
    }
    return max(found, key=found.__getitem__, default=0)


def _is_gated(counts: Counter[tuple[int, int]], hidden: int, down: int) -> bool:
    """Whether two matrices, apart or as one, lead into the MLP where one leads out."""
    return bool(down) and (counts[2 * down, hidden] > 0 or counts[down, hidden] >= 2 * counts[hidden, down])


def _experts(counts: Counter[tuple[int, int]], hidden: int, attention: SeenModel) -> int:
    """Outputs of the router of a model without an MLP's matrices."""
    narrow = [
        outputs
        for outputs, inputs in counts
        if inputs == hidden and 1 < outputs <= MOST_EXPERTS and outputs not in _into(attention)
    ]
    return max(narrow, key=lambda outputs: counts[outputs, hidden], default=0)


def _into(attention: SeenModel) -> tuple[int, ...]:
    """Outputs that matrices before attention may have."""
    q, kv = attention.q_width, attention.kv_width
    return (q, kv, q + kv, q + 2 * kv)


def _has_rows(ops: Iterable[Op]) -> bool:
    """Whether tokens come in rows of sequences, not flat as a server's do."""
    return any(op.name == "aten::embedding" and len(op.dims) > 1 and len(op.dims[1]) == 2 for op in ops)


def _attention(ops: Iterable[Op], calls: Sequence[Attention]) -> SeenModel:
    """Widths of queries and keys and of a head, by attention itself or the rotary embedding before it."""
    if calls:
        call = max(calls, key=lambda each: each.heads * each.seq_len)
        return SeenModel(
            q_width=call.heads * call.head_dim, kv_width=call.kv_heads * call.head_dim, head_dim=call.head_dim
        )
    for op in ops:
        shapes = [*_shapes(op.dims)]
        if "rotary" in op.name and len(shapes) > WIDTHS and all(len(each) == 2 for each in shapes[1:3]):
            return SeenModel(q_width=shapes[1][-1], kv_width=shapes[2][-1], head_dim=shapes[WIDTHS][-1])
        if "attention" in op.name.lower() and len(shapes) > 2 and [len(each) for each in shapes[:3]] == [3, 3, 3]:
            (_, heads, head_dim), (_, kv_heads, _) = shapes[:2]
            return SeenModel(q_width=heads * head_dim, kv_width=kv_heads * head_dim, head_dim=head_dim)
    return SeenModel()


def _shapes(dims: Iterable[Any]) -> Iterator[list[int]]:
    for each in dims:
        if isinstance(each, list) and each and all(isinstance(size, int) for size in each):
            yield each


FEWEST_SIZES = 2
"""Sizes beside the hidden width that a model is known by: many models share a width."""


def shipped_like(seen: SeenModel, tps: Iterable[int]) -> tuple[str, int]:
    """The shipped model that has these sizes on a rank of `tp` ranks, and that tp; ('', 0) for none. Of several the first of those of
    text alone, whose sizes are also those of the text of models with a vision tower."""
    for tp in tps:
        alike = {name: spec for name in shipped_models() if (spec := _spec(name)) and _is(seen, spec, tp)}
        if alike:
            return min(alike, key=lambda name: alike[name].tower is not None), tp
    return "", 0


@cache
def _spec(name: str) -> ModelSpec | None:
    document, _ = read_json(FOLDER / f"{name}.json")
    return read_model(document, name=name).spec if document else None


def _is(seen: SeenModel, model: ModelSpec, tp: int) -> bool:
    if seen.hidden != model.hidden:
        return False
    inner = model.experts.ffn if model.experts else 0
    same = (
        (seen.layers, (model.layers,)),
        (seen.q_width * tp, (model.q_width,)),
        (seen.ffn * tp, (model.ffn, inner, model.experts.shared_ffn if model.experts else 0)),
        (seen.experts, (model.experts.count if model.experts else 0,)),
    )
    whole = seen.vocab * tp
    if sum(bool(size) for size in (whole, *(size for size, _ in same))) < FEWEST_SIZES:
        return False
    return all(not size or size in known for size, known in same) and (
        not whole or model.vocab <= whole <= VOCAB_PADDING * model.vocab + 256 or seen.vocab == model.vocab
    )


def keys_of(seen: SeenModel, tp: int) -> dict[str, Any]:
    """The keys of a Hugging Face config.json with a model's sizes; empty where too little shows, and for mixtures."""
    if not all((seen.hidden, seen.vocab, seen.layers, seen.q_width, seen.head_dim, seen.ffn)):
        return {}
    heads = seen.q_width * tp // seen.head_dim
    if seen.layer_norm or not seen.gated:
        return {
            "model_type": "gpt2",
            "n_embd": seen.hidden,
            "n_layer": seen.layers,
            "n_head": heads,
            "n_inner": seen.ffn * tp,
            "vocab_size": seen.vocab * tp,
        }
    return {
        "model_type": "qwen2" if seen.attention_bias else "llama",
        "hidden_size": seen.hidden,
        "intermediate_size": seen.ffn * tp,
        "num_hidden_layers": seen.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": (seen.kv_width or seen.q_width) * tp // seen.head_dim,
        "vocab_size": seen.vocab * tp,
    }
