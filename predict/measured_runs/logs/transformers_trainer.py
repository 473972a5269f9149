"""Logs of transformers' Trainer: its progress bar, whose counts and whole seconds give the time of a stretch of steps, and its summary.

Source: `Trainer.log` and `ProgressCallback` of transformers (` 50/1000 [01:23<…`, `{'loss': …, 'learning_rate': …}`,
`{'train_runtime': 1575.0, 'train_samples_per_second': 1.333, 'train_steps_per_second': 0.168, …}`), tqdm's bar. The summary alone has
the warm-up in it, and evaluations; it is used where the bar is not there, or too short for its whole seconds. TRL's GRPO and others log
the seconds of a step themselves, as `step_time`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from predict.measured_runs.logs import figure
from predict.measured_runs.steady_state import LoggedStep

FRAMEWORK = "transformers Trainer"
BAR = re.compile(r"^\s*\d+%\|[^|]*\|\s*(\d+)/(\d+)\s*\[(?:(\d+):)?(\d+):(\d+)<")
FIGURES = re.compile(r"\{'(?:\w+': '?[\d.e+-]+'?, ')*(?:loss|train_runtime)':")
OWN_TIME = re.compile(r"'step_time': '?([\d.]+)")
SHORTEST_S = 20
"""Seconds of a stretch: the bar states whole ones, so that a stretch is known to 5 %."""
LEAST_PER_S = 0.01
"""Rate of the summary, in steps per second, below which its three decimals state it to no more than 5 %."""
STRETCHES = 40
"""Stretches that a long run is divided into, at most."""


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    bars: dict[int, list[tuple[int, int]]] = {}
    """Steps in all → the steps done and the seconds, in order."""
    own: list[LoggedStep] = []
    stated, summary, done = False, None, 0
    for line in lines:
        if found := BAR.match(line):
            done, whole, hours, minutes, seconds = (int(each or 0) for each in found.groups())
            bars.setdefault(whole, []).append((done, 3600 * hours + 60 * minutes + seconds))
        elif FIGURES.search(line):
            stated = True
            summary = _summary(line) or summary
            if found := OWN_TIME.search(line):
                own.append(LoggedStep(step=max(done, len(own) + 1), time_us=float(found[1]) * 1e6 or None))
    if not stated:  # a bar may be anyone's
        return
    if own:
        yield from own
        return
    longest = max(bars.values(), key=lambda bar: bar[-1][1], default=[])
    stretches = [*_stretches(longest)]
    if len(stretches) > 1:
        yield from stretches
    elif summary:
        yield summary


def _stretches(bar: Sequence[tuple[int, int]]) -> Iterator[LoggedStep]:
    """The mean step of each stretch between two states of the bar."""
    least_s = max(SHORTEST_S, bar[-1][1] / STRETCHES) if bar else 0
    (done, at_s) = bar[0] if bar else (0, 0)
    for next_done, next_s in bar:
        if next_done < done or next_s < at_s:  # begun anew
            done, at_s = next_done, next_s
        elif next_done > done and next_s - at_s >= least_s:
            yield LoggedStep(step=next_done, time_us=1e6 * (next_s - at_s) / (next_done - done))
            done, at_s = next_done, next_s


def _summary(line: str) -> LoggedStep | None:
    per_s = figure(line, r"'train_steps_per_second'(?=:)")
    runtime_s = figure(line, r"'train_runtime'(?=:)")
    if not (per_s and runtime_s) or per_s < LEAST_PER_S:
        return None
    samples_per_s = figure(line, r"'train_samples_per_second'(?=:)")
    return LoggedStep(step=max(1, round(per_s * runtime_s)), time_us=1e6 / per_s, samples_per_s=samples_per_s)
