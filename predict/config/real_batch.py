"""A batch of sequences of several lengths, on its way from a config to the rows that a run computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from predict.run.lengths import PACKED, RealSequences, laid_out, real_lengths
from predict.run.plan import BEST, Batch, Plan
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from sampling.errors import ConfigError
from sampling.files.faults import Fault, config_error

Values = dict[str, Any]
REAL = "real_lengths"
"""Name of the lengths among the batch's values: no key of a config."""


def with_real_lengths(batch: Values, folder: Path, faults: list[Fault]) -> Values:
    """The batch's values with the lengths of its sequences where it gives a distribution; a fault where that cannot be read. A file's
    path starts in `folder`, and is whole afterwards."""
    text = batch.get("lengths")
    if not text or "global" not in batch:
        return batch
    kind, _, path = text.partition(":")
    if kind == "file":
        text = f"file:{(folder / path).absolute()}"
    try:
        return batch | {"lengths": text, REAL: real_lengths(text, batch["global"], folder)}
    except ConfigError as error:
        faults.append(Fault(path="batch.lengths", problem=str(error)))
        return batch


def batch_in_rows(values: Mapping[str, Any], plan: Plan) -> tuple[Batch, RealSequences | None]:
    """The rows that a step computes, and the sequences in them; None where each sequence is a row."""
    lengths = values.get(REAL)
    batch = Batch(**{f"{key}_" if key == "global" else key: value for key, value in values.items() if key != REAL})
    if lengths is None:
        return batch, None
    real = laid_out(
        lengths,
        padding=batch.padding,
        longest=batch.seq_len,
        micro=batch.micro,
        replicas=plan.dp,
        multiple=plan.cp * (plan.tp if plan.sp else 1),
    )
    rows = {"global_": real.rows, "seq_len": real.row_tokens}
    return Batch(micro=batch.micro, lengths=batch.lengths, padding=batch.padding, **rows), real


def require_packable(run: TrainingRun, sources: Mapping[str, str]) -> None:
    """ConfigError where the schedule does not run the number of microbatches that packing leaves."""
    plan = run.plan
    if run.batch.padding != PACKED or run.real is None or plan.schedule == BEST or run.order is not None:
        return
    reason = registry.get(plan.schedule).refusal(plan.pp, plan.vpp, run.microbatches)
    if reason:
        problem = (
            f"packed makes {run.batch.global_} rows, so {run.microbatches} microbatches, and {plan.schedule} {reason}; "
            "change batch.global, batch.micro or plan.schedule"
        )
        raise config_error([Fault(path="batch.padding", problem=problem)], sources)
