"""The line that names a run: its model, plan, schedule and batch."""

from __future__ import annotations

from predict.run.plan import Plan
from predict.run.training_run import TrainingRun


def run_text(run: TrainingRun) -> str:
    """`llama3-8b, tp 2 · pp 4 · dp 8, 1f1b, 16 × 1 sequences of 8192, bf16, as megatron-core runs it`."""
    what = "sequences" if run.real is None else f"rows ({run.batch.padding} of {run.batch.lengths})"
    batch = f"{run.microbatches} × {run.batch.micro} {what} of {run.batch.seq_len}"
    return (
        f"{run.model.name}, {_plan(run.plan)}, {run.plan.schedule}, {batch}, {run.precision}, "
        f"as {run.execution.framework} runs it"
    )


def _plan(plan: Plan) -> str:
    """The degrees that are above 1; tp, pp and dp always."""
    chunks = f" × {plan.vpp}" if plan.vpp > 1 else ""
    parts = [f"tp {plan.tp}{' + sp' if plan.sp else ''}", f"pp {plan.pp}{chunks}", f"dp {plan.dp}"]
    parts += [f"{name} {getattr(plan, name)}" for name in ("cp", "ep", "etp") if getattr(plan, name) > 1]
    if plan.zero:
        parts.append(f"ZeRO-{plan.zero}{f' over {plan.shard}' if plan.shard else ''}")
    if plan.recompute != "none":
        parts.append(f"{plan.recompute} recompute")
    return " · ".join(parts)
