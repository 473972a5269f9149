"""The file trainer_state.json that transformers' Trainer keeps with a checkpoint.

Source: `TrainerState` of transformers/trainer_callback.py: its `log_history` is what the Trainer printed, in order. Only the summary at the
end states a time, with warm-up and evaluations in it, unless the trainer logs a `step_time`, as TRL's GRPO does.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from predict.measured_runs.logs import above_zero
from predict.measured_runs.steady_state import LoggedStep

FRAMEWORK = "trainer_state.json"
HISTORY = '"log_history"'


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    entries = _entries("\n".join(lines))
    timed = [each for each in entries if above_zero(each.get("step_time"))]
    for each in timed or entries:
        step = each.get("step")
        if isinstance(step, int) and step > 0:
            yield LoggedStep(
                step=step,
                time_us=1e6 * above_zero(each.get("step_time"))
                or _of_rate(above_zero(each.get("train_steps_per_second"))),
                samples_per_s=above_zero(each.get("train_samples_per_second")) or None,
            )


def _entries(text: str) -> list[dict[str, Any]]:
    """The entries of the history; none of any other file."""
    if not (text.lstrip().startswith("{") and HISTORY in text):
        return []
    try:
        history = json.loads(text)["log_history"]
    except (ValueError, KeyError, RecursionError):
        return []
    return [each for each in history if isinstance(each, dict)] if isinstance(history, list) else []


def _of_rate(per_s: float) -> float | None:
    return 1e6 / per_s if per_s else None
