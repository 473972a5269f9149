"""Public logs and traces whose model, plan and device are known, beside what is predicted of them.

    python -m tests.oracles.public_runs

Each run's file is in `../shared/data/traces`; what it does not state itself is from the launch script or the system description beside its
source, which the entry names. The measured step is the one that the reader of the log or trace finds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from predict import estimate, infer_config, load, serving_step
from predict.config.document import Document
from predict.measured_runs.steady_state import RunLog
from predict.reports.inferred import steady_us
from sampling.number_text import duration, signed_percent
from tests.oracles.shared import SHARED

TRACES = SHARED / "data" / "traces"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownRun:
    """A run, and what its file does not say."""

    name: str
    file: str
    settings: Sequence[str]
    source: str
    prefill: Sequence[str] = ()
    decodes: Sequence[str] = ()
    """The batch of a server's step, as the trace's annotation has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """A measured step beside its prediction, in µs."""

    name: str
    measured_us: float
    predicted_us: float
    low_us: float
    high_us: float

    @property
    def within(self) -> bool:
        return self.low_us <= self.measured_us <= self.high_us


RUNS = tuple(KnownRun(**each) for each in yaml.safe_load(Path(__file__).with_suffix(".yml").read_text()))


def held(runs: Sequence[KnownRun] = RUNS, folder: Path = TRACES) -> Iterator[Held]:
    """The runs whose files are there, each beside its prediction."""
    for run in runs:
        if not (folder / run.file).is_file():
            continue
        found = infer_config(folder / run.file).with_settings(run.settings)
        document = Document(name=run.name, content=found.document)
        if isinstance(found.measured, RunLog):
            predicted = estimate(load(document), require_fit=False).step_time
            times_us = (predicted.median_us, predicted.low_us, predicted.high_us)
            measured_us = steady_us(found.measured) or 0.0
        else:
            assert isinstance(found.measured, tuple)
            step = serving_step(document, decodes=run.decodes, prefill=run.prefill)
            time = step.steppers[0].step_times([step.batch])[0]
            times_us = (time.median, time.low, time.high)
            measured_us = found.measured[0].busy_us
        predicted_us, low_us, high_us = times_us
        yield Held(name=run.name, measured_us=measured_us, predicted_us=predicted_us, low_us=low_us, high_us=high_us)


def table(rows: Sequence[Held]) -> str:
    lines = [
        f"{row.name:56} {duration(row.measured_us):>9} {duration(row.predicted_us):>9} {signed_percent(row.predicted_us / row.measured_us - 1):>8}  "
        f"{duration(row.low_us)} to {duration(row.high_us)}{'' if row.within else '  outside'}"
        for row in rows
    ]
    inside = sum(row.within for row in rows)
    return "\n".join(
        [
            f"{'run':56} {'measured':>9} {'predicted':>9} {'error':>8}  90 %",
            *lines,
            f"{inside} of {len(rows)} within the interval",
        ]
    )


if __name__ == "__main__":
    print(table([*held()]))
