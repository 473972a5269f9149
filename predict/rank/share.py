"""One rank's share of a layer and of a microbatch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from predict.model.spec import LayerKind, ModelSpec
from predict.rank.groups import Groups, groups_of
from predict.run.execution import PRIMARY, Execution
from predict.run.frameworks import memory_profile
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from sampling.arithmetic.operator import Operator
from sampling.cells.matrices import Matrix, products_on_rank
from sampling.hardware.cluster import BLOCK_SCALED_BYTES, DTYPE_BYTES
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import NORMS, Dropout, ResidualAdd, Stream

WIDER = {"fp8": "bf16", "tf32": "fp32", **dict.fromkeys(BLOCK_SCALED_BYTES, "bf16")}
"""Dtype of everything but the matrix products, where only those are in the run's precision."""


NARROW = ("fp8", *BLOCK_SCALED_BYTES)
"""Dtypes that only products have: what passes through them is quantised first."""
SCALE_BLOCK = 32
"""Values of MXFP8 that share a scale of one byte (OCP Microscaling Formats 1.0, table 1)."""


def narrow_item_bytes(run: TrainingRun) -> float:
    """Bytes of an element of a quantised tensor of a run whose products are narrow, with its share of a block's scale."""
    if run.precision in BLOCK_SCALED_BYTES:
        return BLOCK_SCALED_BYTES[run.precision]
    return 1 + 1 / SCALE_BLOCK if run.execution.fp8_recipe == "mxfp8" else 1.0


def held_dtype(run: TrainingRun) -> str:
    """The dtype in which layers hold their weights."""
    return WIDER.get(run.precision, run.precision)


def is_primary_fp8(run: TrainingRun) -> bool:
    """Whether the layers' weights are kept, and gathered, in fp8 alone."""
    stated = run.execution.fp8_weights
    by_recipe = (run.execution.fp8_recipe or "tensorwise") in memory_profile(run.execution.framework).fp8_primary
    return run.precision == "fp8" and (stated == PRIMARY if stated else by_recipe)


def weight_bytes(run: TrainingRun) -> int:
    """Bytes per weight in that dtype."""
    return DTYPE_BYTES[held_dtype(run)]


@dataclass(frozen=True, kw_only=True)
class RankShare:
    """A rank's share: `tokens` of a microbatch pass through its products, `rows` through its norms and residuals."""

    run: TrainingRun

    def of_layer(self, kind: LayerKind) -> RankShare:
        """The share of a layer of a kind, whose products may stay in 16 bits."""
        return RankShare(run=replace(self.run, precision=self.dtype)) if kind.wide else self

    @cached_property
    def groups(self) -> Groups:
        return groups_of(self.run)

    @property
    def model(self) -> ModelSpec:
        return self.run.model

    @property
    def plan(self) -> Plan:
        return self.run.plan

    @property
    def execution(self) -> Execution:
        return self.run.execution

    @cached_property
    def dtype(self) -> str:
        """Dtype of activations."""
        return held_dtype(self.run)

    @cached_property
    def item_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @cached_property
    def tokens(self) -> int:
        return self.run.batch.micro * self.run.batch.seq_len // self.plan.cp

    @cached_property
    def rows(self) -> int:
        return self.tokens // (self.plan.tp if self.plan.sp else 1)

    @cached_property
    def hidden_bytes(self) -> int:
        """Bytes of one tensor [tokens, hidden]."""
        return self.item_bytes * self.tokens * self.model.hidden

    @cached_property
    def vocabulary(self) -> int:
        """Rows of the output matrix over all ranks."""
        return self.padded(self.model.vocab)

    def padded(self, rows: int) -> int:
        """Rows of a table of the vocabulary over all ranks, which plain torch does not pad."""
        return rows if self.execution.whole_layers else padded_vocabulary(rows, self.plan.tp)

    def gemm(self, n: int, k: int, *, m: int = 0, dtype: str = "") -> Gemm:
        return Gemm(dtype=dtype or self.run.precision, m=m or self.tokens, n=n, k=k)

    def products(self, matrices: Iterable[Matrix], product: str) -> tuple[tuple[Operator, float], ...]:
        """The matrices of a product as one, or in plain torch each by itself."""
        own = [matrix for matrix in matrices if matrix.product == product]
        if not self.execution.whole_layers or self.model.joint_qkv:
            return ((self.gemm(*products_on_rank(own, self.plan.tp)[product]), 1),)
        shapes = Counter((each.outputs, each.inputs) for each in (matrix.on_rank(self.plan.tp) for matrix in own))
        return tuple((self.gemm(*shape), many) for shape, many in shapes.items())

    def norm(self, width: int = 0, *, rows: int = 0) -> Operator:
        dtype = "fp32" if self.model.modulates_in_fp32 else self.dtype
        return NORMS[self.model.norm](dtype=dtype, tokens=rows or self.rows, hidden=width or self.model.hidden)

    @property
    def modulated_item_bytes(self) -> int:
        """Bytes per element of what norms of the residual stream read and what is scaled, shifted and gated."""
        return DTYPE_BYTES["fp32"] if self.model.modulates_in_fp32 else self.item_bytes

    def residual(self, kind: LayerKind) -> tuple[tuple[Operator, float], ...]:
        """The operators that add a branch of a layer to the residual stream."""
        add = ResidualAdd(dtype=self.dtype, tokens=self.rows, hidden=self.model.hidden)
        works: tuple[tuple[Operator, float], ...] = ((add, 1),)
        if self.model.scales_branches(kind):
            branch = self.item_bytes * self.rows * self.model.hidden
            works += ((Stream(dtype=self.dtype, size_bytes=round(SCALING_PASSES * branch)), 1),)
        if self.execution.dropout:
            works += ((Dropout(dtype=self.dtype, count=self.rows * self.model.hidden), 1),)
        return works


SCALING_PASSES = 2.5
"""Passes over a branch in which a factor for each channel scales it: 2 in forward and 3 in backward; their mean."""
KEPT = 256
"""Layers whose weights are kept, by kind and by the ranks that share them."""
VOCABULARY_MULTIPLE = 128
"""Megatron-LM pads the vocabulary to a multiple of this times tp (`make_vocab_size_divisible_by`, arguments.py)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Elements on one rank."""

    dense: int = 0
    experts: int = 0

    def __add__(self, other: Weights) -> Weights:
        return Weights(dense=self.dense + other.dense, experts=self.experts + other.experts)

    def __mul__(self, count: int) -> Weights:
        return Weights(dense=self.dense * count, experts=self.experts * count)

    @property
    def total(self) -> int:
        return self.dense + self.experts


def layer_weights(model: ModelSpec, plan: Plan, kind: LayerKind) -> Weights:
    """One layer: tp divides what its matrices split, ep and etp the routed experts; norms are whole on every rank."""
    return _layer_weights(model, kind, plan.tp, plan.ep * plan.etp)


@lru_cache(maxsize=KEPT)
def _layer_weights(model: ModelSpec, kind: LayerKind, tp: int, expert_ranks: int) -> Weights:
    mixer, feed_forward = model.mixer(kind), model.feed_forward(kind)
    matrices = (*mixer.matrices(model), *feed_forward.matrices(model))
    streams = model.streams_of(kind)
    whole = model.beside_parts_of(kind)
    whole += streams * sum(matrix.replicated_parameters(tp) for matrix in matrices)
    split = mixer.other_parameters(model) + feed_forward.other_parameters(model)
    split = streams * (split + sum(matrix.split_parameters(tp) for matrix in matrices))
    return Weights(dense=whole + split // tp, experts=feed_forward.routed_parameters(model) // expert_ranks)


def padded_vocabulary(vocab: int, tp: int) -> int:
    multiple = VOCABULARY_MULTIPLE * tp
    return -(-vocab // multiple) * multiple


def embedding_weights(model: ModelSpec, plan: Plan) -> Weights:
    if model.patches:
        return Weights(dense=model.embedding_parameters)
    positions = model.max_positions if model.learns_positions else 0
    rows = padded_vocabulary(model.rows_looked_up, plan.tp) // plan.tp
    tables = (rows + positions + model.token_types) * model.hidden + model.relative_buckets * model.heads // plan.tp
    return Weights(dense=tables + model.embedding_norm * model.norm_parameters)


def head_weights(model: ModelSpec, plan: Plan, *, shares_embedding: bool) -> Weights:
    """The final norm and, unless the rank's embedding serves for it, the output matrix; and what predicts more tokens."""
    own = output_weights(model, plan, shares_embedding=shares_embedding)
    return summed(
        [own, *[joining_weights(model, plan) + layer_weights(model, plan, model.mtp_kind)] * model.mtp_layers]
    )


def output_weights(model: ModelSpec, plan: Plan, *, shares_embedding: bool) -> Weights:
    """The final norm and the output matrix, or a tower's projectors, which every rank of tp has whole."""
    if model.patches:
        return Weights(dense=model.final_norm_parameters + model.head_parameters)
    matrix = 0 if shares_embedding else padded_vocabulary(model.vocab, plan.tp) // plan.tp * model.hidden
    return Weights(dense=model.final_norm_parameters + matrix)


def joining_weights(model: ModelSpec, plan: Plan) -> Weights:
    """The norms and the product that join hidden state and next token's embedding, for one further token."""
    return Weights(dense=2 * model.hidden**2 // plan.tp + 3 * model.norm_parameters)


def summed(many: Iterable[Weights]) -> Weights:
    return sum(many, Weights())
