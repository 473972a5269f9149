"""estimate-train-time (github.com/DebarghaG/estimate-train-time, MIT): operators and collectives on A100 and GH200.

Reads the CSV files as that project publishes them (data/regressors/<cluster>/{operator,nccl}/*.csv) or tidied into
operators.parquet and collectives.parquet. One table per published file and direction. Files of a clone that are not such
table, as its summaries by device, are passed over and named in a remark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sampling.call import Call, Phase
from sampling.collectives.kinds import AllGather, AllReduce, Collective, SendRecv
from sampling.errors import SamplesError
from sampling.files.faults import counted
from sampling.importers.table import (
    AnotherKindError,
    ImportRequest,
    Row,
    Table,
    numbers_or_nan,
    read_csv,
    read_parquet,
    require_columns,
    require_numbers,
)
from sampling.operators.attention import Attention
from sampling.operators.gemm import BatchedGemm, Gemm
from sampling.operators.memory_bound import (
    CausalSoftmax,
    Gelu,
    LayerNorm,
    MaskFill,
    ResidualAdd,
    RMSNorm,
    RoPE,
    Softmax,
)
from sampling.operators.optimizer import AdamW
from sampling.operators.vocabulary import CrossEntropy, Embedding

if TYPE_CHECKING:
    import pandas as pd


DTYPE = "fp16"
"""The dtype of all their tables."""
ITEM_BYTES = 2
VOCABULARY = 50_257
"""GPT-2's, padded so that each of mp ranks holds a multiple of 128 rows."""
TENSORS_PER_ENCODER = 12
"""Four linear layers and two layer norms, a weight and a bias each."""


class Shape(NamedTuple):
    """The columns of one row; 0 where its table has no such column, and mp 1."""

    mp: int
    batch: int
    heads: int
    seq_len: int
    dim: int
    encoders: int
    parameters: int
    tensors: int

    @property
    def tokens(self) -> int:
        return self.batch * self.seq_len

    @property
    def vocab(self) -> int:
        return math.ceil(VOCABULARY / (128 * self.mp)) * 128

    @property
    def matrices(self) -> int:
        return self.batch * self.heads // self.mp

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


def _linear(out: Callable[[Shape], int], into: Callable[[Shape], int]) -> Callable[[Shape], Call]:
    return lambda s: Gemm(dtype=DTYPE, m=s.tokens, n=out(s), k=into(s))


def _embedding(s: Shape) -> Call:
    return Embedding(dtype=DTYPE, batch=s.batch, seq_len=s.seq_len, vocab=s.vocab, hidden=s.dim, tp=1, sp=False)


def _attention(s: Shape) -> Call:
    heads = s.heads // s.mp
    return Attention(
        dtype=DTYPE, batch=s.batch, seq_len=s.seq_len, heads=heads, kv_heads=heads, head_dim=s.head_dim, causal=True
    )


def _rope(s: Shape) -> Call:
    return RoPE(dtype=DTYPE, batch=s.batch, seq_len=s.seq_len, heads=s.heads // s.mp, head_dim=s.head_dim)


def _scores(s: Shape) -> Call:
    return BatchedGemm(dtype=DTYPE, batch=s.matrices, m=s.seq_len, n=s.seq_len, k=s.head_dim, adds=True)


def _values(s: Shape) -> Call:
    return BatchedGemm(dtype=DTYPE, batch=s.matrices, m=s.seq_len, n=s.head_dim, k=s.seq_len, adds=False)


def _encoder_parameters(s: Shape) -> int:
    weights, sharded_biases, whole_biases_and_norms = 12 * s.dim**2 // s.mp, 7 * s.dim // s.mp, 6 * s.dim
    return weights + sharded_biases + whole_biases_and_norms


def _stage(*, vocabulary_matrices: int, final_norms: int) -> Callable[[Shape], Call]:
    """The optimizer step of a pipeline stage's `encoders` layers and what stands at the model's ends.

    Counted like this, a whole model gives the `params` and `param_tensors` that the table of whole models states.
    """

    def call(s: Shape) -> Call:
        at_ends = vocabulary_matrices * s.vocab * s.dim + final_norms * 2 * s.dim
        return AdamW(
            dtype=DTYPE,
            parameters=s.encoders * _encoder_parameters(s) + at_ends,
            tensors=s.encoders * TENSORS_PER_ENCODER + vocabulary_matrices + final_norms * 2,
            tp=1,
        )

    return call


def _model_optimizer(s: Shape) -> Call:
    if s.parameters and s.tensors:
        return AdamW(dtype=DTYPE, parameters=s.parameters, tensors=s.tensors, tp=1)
    return _stage(vocabulary_matrices=2, final_norms=1)(s)


TOKENS_DIM = ("b", "l", "dim")
MP_TOKENS_DIM = ("mp", *TOKENS_DIM)
PER_HEAD = ("mp", "b", "h", "l", "dim")
SCORES = ("mp", "b", "h", "l")
STAGE = ("mp", "dim", "encoders")

OPERATORS: dict[str, tuple[Callable[[Shape], Call], tuple[str, ...]]] = {
    "linear1": (_linear(lambda s: 3 * s.dim // s.mp, lambda s: s.dim), MP_TOKENS_DIM),
    "linear2": (_linear(lambda s: s.dim, lambda s: s.dim // s.mp), MP_TOKENS_DIM),
    "linear3": (_linear(lambda s: 4 * s.dim // s.mp, lambda s: s.dim), MP_TOKENS_DIM),
    "linear4": (_linear(lambda s: s.dim, lambda s: 4 * s.dim // s.mp), MP_TOKENS_DIM),
    "linear_final": (_linear(lambda s: s.vocab, lambda s: s.dim), MP_TOKENS_DIM),
    "embedding": (_embedding, MP_TOKENS_DIM),
    "baddbmm": (_scores, PER_HEAD),
    "bmm": (_values, PER_HEAD),
    "flash_atten": (_attention, PER_HEAD),
    "RoPE": (_rope, PER_HEAD),
    "fillmask": (lambda s: MaskFill(dtype=DTYPE, matrices=s.matrices, seq_len=s.seq_len), SCORES),
    "softmax": (lambda s: Softmax(dtype=DTYPE, matrices=s.matrices, seq_len=s.seq_len), SCORES),
    "ScaledUpperTriangMaskedSoftmax": (
        lambda s: CausalSoftmax(dtype=DTYPE, matrices=s.matrices, seq_len=s.seq_len),
        SCORES,
    ),
    "RMSlayernorm": (lambda s: RMSNorm(dtype=DTYPE, tokens=s.tokens, hidden=s.dim), TOKENS_DIM),
    "layernorm": (lambda s: LayerNorm(dtype=DTYPE, tokens=s.tokens, hidden=s.dim), TOKENS_DIM),
    "res_add": (lambda s: ResidualAdd(dtype=DTYPE, tokens=s.tokens, hidden=s.dim), TOKENS_DIM),
    "gelu": (lambda s: Gelu(dtype=DTYPE, tokens=s.tokens, width=4 * s.dim // s.mp), MP_TOKENS_DIM),
    "parallel_cross_entropy_128": (
        lambda s: CrossEntropy(dtype=DTYPE, tokens=s.tokens, vocab=s.vocab),
        ("mp", "b", "l"),
    ),
    "firstStage_optimizer": (_stage(vocabulary_matrices=1, final_norms=0), STAGE),
    "middleStage_optimizer": (_stage(vocabulary_matrices=0, final_norms=0), STAGE),
    "lastStage_optimizer": (_stage(vocabulary_matrices=1, final_norms=1), STAGE),
    "optimizer": (_model_optimizer, ("dim", "encoders")),
}


COLLECTIVES: dict[str, type[Collective]] = {"allgather": AllGather, "allreduce": AllReduce, "p2p": SendRecv}
"""Collectives by the start of a table's name."""


def _collective(kind: type[Collective], elements: int, nodes: int, per_node: int) -> Call:
    ranks = nodes * per_node
    # The count of an all-gather is one rank's shard: only so does the A100's over 2, 4 and 8 nodes move the 1.15-1.2 GB/s on the
    # wire that its all-reduce and send-recv move; read as the gathered whole it would be 0.6, 0.3 and 0.15.
    whole = elements * (ranks if kind is AllGather else 1)
    return kind(size_bytes=ITEM_BYTES * whole, ranks=ranks, ranks_per_node=per_node)


SOURCE = "estimate-train-time"
PATH = "a clone of that project, or its tables as parquet"
LICENCE = "MIT"
DEVICES = {"NVIDIAA100-SXM4-80GB": "a100-80gb", "NVIDIAGH200120GB": "gh200"}
"""The device at the start of a file's name → its name in configs/hardware."""
PHASES: dict[str, Phase] = {"fwd": "forward", "bwd": "backward", "step": "step"}
TIME_COLUMNS = {"F_dur(us)": "fwd", "B_dur(us)": "bwd", "dur(us)": "step"}
SHAPE_COLUMNS = ("mp", "b", "h", "l", "dim", "encoders", "params", "param_tensors")
FETCH = "give the folder of a clone of github.com/DebarghaG/estimate-train-time"


def read(request: ImportRequest) -> list[Table]:
    """All tables of the files at `request.path`; SamplesError if there are none, or one is damaged."""
    if request.path is None:
        raise SamplesError(f"import {SOURCE}: needs a path; {FETCH}")
    tables, passed_over = _tidied(request.path), list[str]()
    if not tables:
        tables, passed_over = _published(request.path)
    if not tables:
        others = "".join(f"\n  passed over: {why}" for why in passed_over)
        raise SamplesError(f"{request.path}: holds no table of {SOURCE}; {FETCH}{others}")
    wanted = DEVICES.get(request.system, request.system)
    chosen = [table for table in tables if wanted in ("", table.hardware)]
    if not chosen:
        known = ", ".join(sorted({table.hardware for table in tables}))
        raise SamplesError(f"{request.path}: no table of --system {request.system}; it has those of {known}")
    return [*chosen, *_other_tables(chosen, passed_over)]


def _published(path: Path) -> tuple[list[Table], list[str]]:
    """The tables of a file or a clone, and why each file of another kind was passed over."""
    files = [path] if path.suffix == ".csv" else sorted(path.glob("**/*.csv"))
    tables: list[Table] = []
    passed_over: list[str] = []
    for file in files:
        if file.parent.name not in ("operator", "nccl"):
            continue
        try:
            tables += _tables_of(file)
        except AnotherKindError as another:
            passed_over.append(str(another))
    return tables, passed_over


def _other_tables(tables: Sequence[Table], passed_over: Sequence[str]) -> list[Table]:
    """A table without rows for the first device, whose remarks say what was passed over."""
    if not passed_over:
        return []
    remarks = (f"{len(passed_over)} files passed over, since they are not such tables:", *passed_over)
    return [Table(source=SOURCE, name="other files", hardware=tables[0].hardware, rows=(), remarks=remarks)]


def _tables_of(file: Path) -> list[Table]:
    device, name = _device_and_name(file)
    kind = _collective_tables if file.parent.name == "nccl" else _operator_tables
    return list(kind(read_csv(file), device, name, file))


def _device_and_name(file: Path) -> tuple[str, str]:
    for device in DEVICES:
        if file.stem.startswith(device + "_"):
            return device, file.stem.removeprefix(device + "_").split("_fp16")[0]
    raise AnotherKindError(f"{file}: its name is not DEVICE_OPERATION.csv with one of the devices {', '.join(DEVICES)}")


def _operator_tables(content: pd.DataFrame, device: str, name: str, file: Path) -> Iterator[Table]:
    times = {column: direction for column, direction in TIME_COLUMNS.items() if column in content.columns}
    if not times:
        require_columns(content, ["dur(us)"], str(file))
    for column, direction in times.items():
        yield _operator_table(content.rename(columns={column: "time_us"}), device, name, direction, file)


def _operator_table(content: pd.DataFrame, device: str, name: str, direction: str, file: Path) -> Table:
    call_of, needed = OPERATORS.get(name, (None, ()))
    phase = PHASES[direction]
    table = _empty_table(f"{name} {phase}", device, file)
    if call_of is None:
        return table.holding(remark=f"{counted(len(content), 'row')} left out: no operator of ours is its {name}")
    require_columns(content, needed, str(file))
    require_numbers(content, needed, str(file))
    shapes = _shapes(content)
    calls = [call_of(shape) for shape in shapes]
    if phase not in type(calls[0]).PHASES:
        return table.holding(
            remark=f"{counted(len(content), 'row')} left out: {calls[0].NAME} has no {phase} of its own"
        )
    times_us = numbers_or_nan(content["time_us"]).tolist()
    rows = tuple(Row(call=call, phase=phase, time_us=time) for call, time in zip(calls, times_us, strict=True))
    return table.holding(rows)


def _empty_table(name: str, device: str, file: Path) -> Table:
    provenance = {"file": file.name, "licence": LICENCE, "device_name": device, "dtype": DTYPE}
    return Table(source=SOURCE, name=name, hardware=DEVICES[device], rows=(), provenance=provenance)


def _shapes(content: pd.DataFrame) -> list[Shape]:
    # an operator does not depend on a column that its table lacks; mp is 1 there
    columns = [
        content[name].fillna(0).astype(int).tolist() if name in content.columns else [0] * len(content)
        for name in SHAPE_COLUMNS
    ]
    return [Shape(max(1, mp), *others) for mp, *others in zip(*columns, strict=True)]


def _collective_tables(content: pd.DataFrame, device: str, name: str, file: Path) -> Iterator[Table]:
    renamed = content.rename(columns={"shape": "elements", "GPUsPerNode": "gpus_per_node", "dur(us)": "time_us"})
    kind = next((kind for kind in COLLECTIVES if name.startswith(kind)), None)
    needed = ("elements", "nodes", "gpus_per_node")
    require_columns(renamed, (*needed, "time_us"), str(file))
    require_numbers(renamed, needed, str(file))
    for placement in (
        renamed[["nodes", "gpus_per_node"]].drop_duplicates().sort_values(["nodes", "gpus_per_node"]).values
    ):
        nodes, per_node = (int(number) for number in placement)
        group = renamed[(renamed["nodes"] == nodes) & (renamed["gpus_per_node"] == per_node)]
        table = _empty_table(f"{name} {nodes}x{per_node}", device, file)
        if kind is None:
            yield table.holding(remark=f"{counted(len(group), 'row')} left out: no collective of ours is its {name}")
            continue
        sizes, times_us = group["elements"].astype(int).tolist(), numbers_or_nan(group["time_us"]).tolist()
        rows = tuple(
            Row(call=_collective(COLLECTIVES[kind], elements, nodes, per_node), phase="forward", time_us=time_us)
            for elements, time_us in zip(sizes, times_us, strict=True)
        )
        yield table.holding(rows)


def _tidied(path: Path) -> list[Table]:
    """The tables of operators.parquet and collectives.parquet, where `path` is one of them or the folder of both."""
    folder = path if path.is_dir() else path.parent
    wanted = ("operators", "collectives") if path.is_dir() else (path.stem,)
    tables: list[Table] = []
    for stem in wanted:
        file = folder / f"{stem}.parquet"
        if stem in ("operators", "collectives") and file.is_file():
            content = read_parquet(file, str(file))
            keys = ["gpu", "op", *(["direction"] if stem == "operators" else [])]
            require_columns(content, [*keys, "time_us"], str(file))
            for key, group in content.groupby(keys, sort=False):
                tables += _tidied_tables(group, [str(part) for part in key], file)
    return tables


def _tidied_tables(group: pd.DataFrame, key: Sequence[str], file: Path) -> list[Table]:
    device, operation, *direction = key
    if device not in DEVICES:
        raise SamplesError(f"{file}: rows of the device {device!r}, which is not one of {', '.join(DEVICES)}")
    if direction:
        if direction[0] not in PHASES:
            raise SamplesError(f"{file}: a direction {direction[0]!r}, which is not one of {', '.join(PHASES)}")
        return [_operator_table(group, device, operation, direction[0], file)]
    return list(_collective_tables(group, device, operation, file))
