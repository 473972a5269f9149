"""Turns rows of aiconfigurator's tables into calls; rows of other work are left out and counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sampling.call import Call
from sampling.collectives.kinds import AllGather, AllReduce, AllToAll, Collective, CustomAllReduce, ReduceScatter
from sampling.operators.attention import Attention, DecodeAttention
from sampling.operators.experts import ExpertMLP
from sampling.operators.gemm import Gemm

if TYPE_CHECKING:
    import pandas as pd

FIELDS = {"b": "batch", "s": "seq_len", "kv_len": "keys"}
"""Short names of columns → the fields of calls."""
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "fp8": "fp8"}
COLLECTIVES: Mapping[str, type[Collective]] = {
    "all_reduce": AllReduce,
    "all_gather": AllGather,
    "reduce_scatter": ReduceScatter,
    "alltoall": AllToAll,
}
ELEMENT_BYTES = {"half": 2, "bfloat16": 2, "int8": 1, "float": 4}

LeftOut = dict[str, "pd.Series[bool]"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableKind:
    """One kind of table: its columns in the package → the names that the exported files and `calls` use.

    `shape` are the columns that identify a row; `left_out` gives masks of rows to leave out, by reason.
    """

    export: str
    columns: Mapping[str, str]
    shape: tuple[str, ...]
    left_out: Callable[[pd.DataFrame], LeftOut]
    calls: Callable[[pd.DataFrame], Sequence[Call]]
    optional: tuple[str, ...] = ()
    """Columns of the package that older tables lack."""
    frameworks: tuple[str, ...] = ()
    """The libraries that were timed, if not the serving frameworks."""


def _made(kind: type[Call], *fields: str, **constants: Any) -> Callable[[pd.DataFrame], list[Call]]:
    """Makes a call of each row, from the columns named as its fields are, or by the short names of FIELDS."""
    named = ("dtype", *fields)

    def calls(content: pd.DataFrame) -> list[Call]:
        whole = content.assign(dtype=content["dtype"].map(DTYPES)).rename(columns=FIELDS)
        rows = zip(*(whole[name].tolist() for name in named), strict=True)
        return [kind(**dict(zip(named, row, strict=True)), **constants) for row in rows]

    return calls


def _other_dtypes(content: pd.DataFrame) -> LeftOut:
    others = sorted(set(content["dtype"]) - set(DTYPES))
    return {f"of dtype {dtype}": content["dtype"] == dtype for dtype in others}


def _not_plain_attention(content: pd.DataFrame) -> LeftOut:
    left = _other_dtypes(content)
    if "past_kv" in content.columns:
        left["with keys of earlier tokens"] = content["past_kv"] != 0
    if "kv_dtype" in content.columns:
        left["with a quantised key-value cache"] = ~content["kv_dtype"].isin(["bfloat16", "float16"])
    return left


def _attentions(content: pd.DataFrame, **constants: Any) -> list[Call]:
    # a table without the column has as many key-value heads as heads; so has a row that states 0
    stated = content.get("kv_heads", content["heads"])
    whole = content.assign(kv_heads=stated.where(stated > 0, content["heads"]), window=content.get("window", 0))
    fields = ("batch", "seq_len", "heads", "kv_heads", "head_dim", "window", "kernel")
    return _made(Attention, *fields, **constants)(whole)


def _latent_attentions(content: pd.DataFrame) -> list[Call]:
    # DeepSeek's latent attention as its prefill runs it: keys of 128 + 64 for the rotary part, values of 128
    whole = content.assign(kv_heads=content["heads"], head_dim=192)
    return _attentions(whole, causal=True, value_dim=128)


def _other_collectives(content: pd.DataFrame) -> LeftOut:
    known = content["collective"].isin(COLLECTIVES) & content["dtype"].isin(ELEMENT_BYTES)
    left: LeftOut = {"of another collective or dtype": ~known}
    if "backend" in content.columns:
        left["of another library than NCCL"] = content["backend"].str.lower() != "nccl"
    return left


def _collectives(content: pd.DataFrame) -> list[Call]:
    # message_size counts the elements of the whole buffer: as a shard, an all-gather over 8 would move 2,700 GB/s on
    # links of 450; as the whole it moves 336 where the all-reduce moves 350
    return [
        COLLECTIVES[name](size_bytes=elements * ELEMENT_BYTES[dtype], ranks=ranks, ranks_per_node=ranks)
        for name, dtype, ranks, elements in content[["collective", "dtype", "ngpus", "elements"]]
        .to_records(index=False)
        .tolist()
    ]


def _launched_one_by_one(content: pd.DataFrame) -> LeftOut:
    return {
        "of another dtype": ~content["dtype"].isin(ELEMENT_BYTES),
        "launched by the host, whose time they are": content["launch"] != "graph",
    }


def _custom_all_reduces(content: pd.DataFrame) -> list[Call]:
    return [
        CustomAllReduce(size_bytes=elements * ELEMENT_BYTES[dtype], ranks=ranks, ranks_per_node=ranks)
        for dtype, ranks, elements in content[["dtype", "ngpus", "elements"]].to_records(index=False).tolist()
    ]


_ATTENTION = {
    "attn_dtype": "dtype",
    "batch_size": "b",
    "isl": "s",
    "num_heads": "heads",
    "head_dim": "head_dim",
}
MOE_MODEL = ("hidden", "inter", "topk", "experts")
KINDS: Mapping[str, TableKind] = {
    "gemm_perf": TableKind(
        export="gemm",
        columns={"gemm_dtype": "dtype", "m": "m", "n": "n", "k": "k"},
        shape=("m", "n", "k"),
        left_out=_other_dtypes,
        calls=_made(Gemm, "m", "n", "k", "kernel"),
    ),
    "context_attention_perf": TableKind(
        export="attention",
        columns={
            **_ATTENTION,
            "num_key_value_heads": "kv_heads",
            "window_size": "window",
            "step": "past_kv",
            "kv_cache_dtype": "kv_dtype",
        },
        shape=("b", "s", "heads", "kv_heads", "head_dim", "window"),
        optional=("window_size", "step", "kv_cache_dtype"),
        left_out=_not_plain_attention,
        calls=lambda content: _attentions(content, causal=True),
    ),
    # of this table the exported files alone are known
    "decode_attention": TableKind(
        export="attention_decode",
        columns={},
        shape=("b", "kv_len", "heads", "kv_heads", "head_dim", "window"),
        left_out=_not_plain_attention,
        calls=_made(DecodeAttention, "batch", "keys", "heads", "kv_heads", "head_dim", "window", "kernel"),
    ),
    "encoder_attention_perf": TableKind(
        export="",
        columns=_ATTENTION,
        shape=("b", "s", "heads", "head_dim"),
        left_out=_other_dtypes,
        calls=lambda content: _attentions(content, causal=False),
    ),
    "context_mla_perf": TableKind(
        export="",
        columns={
            "mla_dtype": "dtype",
            "batch_size": "b",
            "isl": "s",
            "num_heads": "heads",
            "step": "past_kv",
            "kv_cache_dtype": "kv_dtype",
        },
        shape=("b", "s", "heads"),
        optional=("step", "kv_cache_dtype"),
        left_out=_not_plain_attention,
        calls=_latent_attentions,
    ),
    "moe_perf": TableKind(
        export="moe",
        columns={
            "moe_dtype": "dtype",
            "num_tokens": "tokens",
            "hidden_size": "hidden",
            "inter_size": "inter",
            "topk": "topk",
            "num_experts": "experts",
            "moe_ep_size": "ep",
            "moe_tp_size": "tp",
            "distribution": "distribution",
        },
        shape=("tokens", *MOE_MODEL, "ep", "tp", "distribution"),
        left_out=_other_dtypes,
        calls=_made(ExpertMLP, "tokens", *MOE_MODEL, "ep", "tp", "gated", "distribution", "kernel"),
    ),
    # of this table too
    "custom_all_reduce": TableKind(
        export="custom_allreduce",
        columns={},
        shape=("ngpus", "elements", "launch"),
        left_out=_launched_one_by_one,
        calls=_custom_all_reduces,
    ),
    "nccl_perf": TableKind(
        export="nccl",
        columns={
            "op_name": "collective",
            "nccl_dtype": "dtype",
            "num_gpus": "ngpus",
            "message_size": "elements",
        },
        shape=("collective", "dtype", "ngpus", "elements"),
        left_out=_other_collectives,
        calls=_collectives,
        frameworks=("nccl",),
    ),
}
"""Kinds by the name of their table in the package."""
