"""One rank's share of a layer and of a microbatch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from predict.model.spec import ModelSpec
from predict.rank.groups import Groups, groups_of
from predict.run.execution import Execution
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from sampling.arithmetic.operator import Operator
from sampling.hardware.cluster import DTYPE_BYTES
from sampling.operators.elementwise import ResidualAdd
from sampling.operators.gemm import Gemm
from sampling.operators.norm import LayerNorm, RMSNorm
from sampling.operators.streaming import Dropout

WIDER = {"fp8": "bf16", "tf32": "fp32"}
"""Dtype of everything but the matrix products, where only those are in the run's precision."""


def held_dtype(run: TrainingRun) -> str:
    """The dtype in which layers hold their weights."""
    return WIDER.get(run.precision, run.precision)


def weight_bytes(run: TrainingRun) -> int:
    """Bytes per weight in that dtype."""
    return DTYPE_BYTES[held_dtype(run)]


@dataclass(frozen=True, kw_only=True)
class RankShare:
    """A rank's share: `tokens` of a microbatch pass through its products, `rows` through its norms and residuals."""

    run: TrainingRun

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

    def gemm(self, n: int, k: int, *, m: int = 0, dtype: str = "") -> Gemm:
        return Gemm(dtype=dtype or self.run.precision, m=m or self.tokens, n=n, k=k)

    def norm(self, width: int = 0, *, rows: int = 0) -> Operator:
        kind = RMSNorm if self.model.norm == "rms" else LayerNorm
        return kind(dtype=self.dtype, tokens=rows or self.rows, hidden=width or self.model.hidden)

    def residual(self) -> tuple[tuple[Operator, float], ...]:
        """The operators that add a branch to the residual stream."""
        add = ResidualAdd(dtype=self.dtype, tokens=self.rows, hidden=self.model.hidden)
        if not self.execution.dropout:
            return ((add, 1),)
        return (add, 1), (Dropout(dtype=self.dtype, count=self.rows * self.model.hidden), 1)
