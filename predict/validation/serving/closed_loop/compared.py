"""Measured closed loops beside their predictions, by coefficients that no closed loop was fitted to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from predict.config.draft import UNKNOWN
from predict.serving.batch import Chunk, StepBatch
from predict.serving.coefficients import Coefficients
from predict.serving.kernels import with_launches
from predict.serving.scheduler.latency import latency_of
from predict.serving.scheduler.simulate import serve
from predict.serving.scheduler.traffic import traffic_of
from predict.serving.step_table import StepTable
from predict.serving.stepper import Stepper
from predict.validation.serving.closed_loop.rows import ClosedLoop
from sampling.errors import UserError

FEWEST_BYTES = "fp8"
"""Dtype of a cache that is not stated, where the speed of light is asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedLoop:
    """A row and its prediction."""

    row: ClosedLoop
    tpot_us: float
    tpot_low_us: float
    tpot_high_us: float
    """90 % bounds. Where the row does not tell whether its engine had CUDA graphs, the upper one is that of an engine without."""
    ttft_us: float
    bound_us: float
    """The speed of light of its mean step, if every prompt is computed in full."""
    left_out: str = ""
    """Why it is not judged."""

    @property
    def tpot_error(self) -> float:
        return self.tpot_us / (1e3 * self.row.tpot_ms) - 1

    @property
    def covered(self) -> bool:
        """Whether the measured TPOT lies in the interval."""
        return self.tpot_low_us <= 1e3 * self.row.tpot_ms <= self.tpot_high_us

    @property
    def ttft_error(self) -> float | None:
        return self.ttft_us / (1e3 * self.row.ttft_ms) - 1 if self.row.ttft_ms else None

    @property
    def is_too_fast(self) -> bool:
        """Whether the measured step is faster than light for its work: then not all of that was done."""
        return 1e3 * self.row.tpot_ms < self.bound_us


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedLoop:
    """A row that cannot be predicted, and why."""

    row: ClosedLoop
    why: str


def compared_loops(
    rows: Sequence[ClosedLoop], coefficients: Coefficients, progress: Callable[[int, int, str], None]
) -> tuple[list[ComparedLoop], list[RefusedLoop]]:
    """Every row, simulated; groups with a row that is faster than light are told apart from those that are judged."""
    steppers: dict[str, Stepper] = {}
    compared, refused = [], []
    for done, row in enumerate(rows, 1):
        try:
            server = row.server()
            # the tables of steps are made once for all rows of a server
            compared.append(_compared(row, steppers.setdefault(repr(server), Stepper(server, coefficients))))
        except UserError as error:
            refused.append(RefusedLoop(row=row, why=str(error)))
        progress(done, len(rows), row.group)
    cached = {one.row.group for one in compared if one.is_too_fast}
    why = "rows of its group are faster than light if each prompt is computed: some were found in a cache"
    return [replace(one, left_out=why) if one.row.group in cached else one for one in compared], refused


def _compared(row: ClosedLoop, stepper: Stepper) -> ComparedLoop:
    traffic = traffic_of(row.load)
    low, middle, high = (
        latency_of(serve(stepper.server.engine, stepper.room.pool, table, traffic), stepper.coefficients.client)
        for table in _tables(row, stepper)
    )
    return ComparedLoop(
        row=row,
        tpot_us=middle.tpot.mean_us,
        tpot_low_us=low.tpot.mean_us,
        tpot_high_us=high.tpot.mean_us,
        ttft_us=middle.ttft.mean_us,
        bound_us=_bound_us(row, stepper),
    )


def _tables(row: ClosedLoop, stepper: Stepper) -> tuple[StepTable, StepTable, StepTable]:
    """The steps at the lower bound of their interval, in the middle, and at the upper bound."""
    low, middle, high = stepper.tables
    if row.cuda_graphs == UNKNOWN:
        eager = replace(stepper.server, engine=replace(stepper.server.engine, enforce_eager=True))
        high = with_launches(middle, eager).scaled(stepper.interval_factors.high)
    return low, middle, high


def _bound_us(row: ClosedLoop, stepper: Stepper) -> float:
    """The speed of light of a step with as many decodes and prompt tokens as the measured times imply."""
    placed = replace(stepper.server.placement, kv_precision=FEWEST_BYTES)
    lean = replace(stepper, server=replace(stepper.server, placement=placed))
    answering_ms = (row.osl - 1) * row.tpot_ms
    decodes = row.in_flight * answering_ms / (answering_ms + (row.ttft_ms or 0.0))
    tokens = int(decodes * row.isl / (row.osl - 1))
    chunks = (Chunk(tokens=tokens),) if tokens else ()
    keys = row.isl + row.osl // 2
    return lean.bound_us(StepBatch(chunks=chunks, decodes=(keys,) * max(1, int(decodes))), experts_read=False)
