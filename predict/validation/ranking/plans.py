"""The measured plans of a table, each with its predicted time and memory verdict, in groups that a user would choose within."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TypeAlias

from predict import estimate
from predict.interval import Interval, equally_likely
from predict.memory.estimate import Verdict
from predict.plan_search.answer import Contender, contender
from predict.plan_search.options import OBJECTIVES
from predict.run.execution import Execution
from predict.run.plan import Batch, Plan
from predict.validation.published.row import NotExpressibleError, PublishedRow
from predict.validation.published.runs import candidates
from sampling.errors import InfeasibleError
from sampling.progress import Progress

Settings: TypeAlias = tuple[Plan, Batch, Execution]
TIMED, OUT_OF_MEMORY = "ok", "oom"
VERDICTS: tuple[Verdict, ...] = ("FITS", "AT RISK", "OOM")
SAME_IN_A_GROUP = (
    "source_id", "framework", "gpu", "gpu_mem_gb", "n_gpus", "gpus_per_node", "precision", "seq_len", "gbs", "model",
    "layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "experts", "topk", "moe_ffn", "shared_experts",
)  # fmt: skip
"""Columns that agree where rows differ in the plan alone: the work, the GPUs and the software."""
KERNELS = ("attn_kernel", "rms_kernel", "recompute")
"""Columns that make the class within which plans differ in how they divide the work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPlan:
    """One plan. `measured_us` is None where it ran out of memory; a verdict other than OOM says that it fits."""

    row: PublishedRow
    settings: tuple[Settings, ...]
    """Plan, batch and execution of the runs that the row may stand for."""
    measured_us: float | None
    predicted: Interval
    contender: Contender
    """The plan as a search holds it against others."""
    verdict: Verdict

    @property
    def said_to_fit(self) -> bool:
        return self.verdict != "OOM"

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(map(self.row.text, KERNELS))


def measured_plans(
    rows: Sequence[PublishedRow], progress: Progress = lambda done, total, name: None
) -> tuple[dict[str, list[MeasuredPlan]], list[str]]:
    """The distinct plans of each group, by the group's name, and why each other row is left out.

    The column `group` names groups; without one, rows that agree in SAME_IN_A_GROUP make a group, named after its first row.
    """
    groups: dict[Hashable, list[MeasuredPlan]] = {}
    left_out = []
    for done, row in enumerate(rows, 1):
        try:
            plan = _plan(row)
            groups.setdefault(row.text("group") or tuple(map(row.text, SAME_IN_A_GROUP)), []).append(plan)
        except (NotExpressibleError, InfeasibleError) as error:
            left_out.append(f"{row.row_id}: {error}")
        progress(done, len(rows), row.row_id)
    distinct = {_name(key, plans): _distinct(plans) for key, plans in groups.items()}
    return distinct, left_out


def _name(key: Hashable, plans: Sequence[MeasuredPlan]) -> str:
    return key if isinstance(key, str) else plans[0].row.row_id


def _plan(row: PublishedRow) -> MeasuredPlan:
    status = row.text("status") or TIMED
    if status not in (TIMED, OUT_OF_MEMORY):
        raise NotExpressibleError(f"status: {status} says nothing of time or memory")
    runs = candidates(row, timed=status == TIMED).runs
    estimates = [estimate(run) for run in runs]
    predicted = equally_likely([one.step_time for one in estimates])
    nearest = min(estimates, key=lambda one: abs(one.median_us - predicted.median_us))
    return MeasuredPlan(
        row=row,
        settings=tuple((run.plan, run.batch, run.execution) for run in runs),
        measured_us=row.measured_us if status == TIMED else None,
        predicted=predicted,
        contender=contender(nearest, OBJECTIVES["time"]),
        # a setting that is not published may be the one that fits
        verdict=min((one.memory.verdict for one in estimates), key=VERDICTS.index),
    )


def _distinct(plans: Sequence[MeasuredPlan]) -> list[MeasuredPlan]:
    """Plans listed more than once, each once, by the median of its times; it ran out of memory if it never ran."""
    repeats: dict[tuple[Settings, ...], list[MeasuredPlan]] = {}
    for plan in plans:
        repeats.setdefault(plan.settings, []).append(plan)
    return [_once(same) for same in repeats.values()]


def _once(same: Sequence[MeasuredPlan]) -> MeasuredPlan:
    times = [plan.measured_us for plan in same if plan.measured_us is not None]
    return replace(same[0], measured_us=median(times) if times else None)
