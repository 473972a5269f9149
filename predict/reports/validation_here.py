"""Runs, RL steps and loads of this machine next to the predictions that were made before, for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from predict.measurement.real_rl import STEP
from predict.measurement.system_noise import noise_notes
from predict.reports.compared import LATENCIES, beside, counts, share, shares
from predict.reports.measurement import clock_of
from predict.reports.memory import headlines
from predict.reports.printed import Renderable
from predict.reports.text import Columns, escape, noted, stacked, table
from predict.validation.compared import scores
from predict.validation.here import ValidationRow, mean_error_at_pace
from predict.validation.rl_here import MeasuredPhase, MeasuredRlStep, by_phase
from sampling.files.faults import counted
from sampling.number_text import (
    count,
    duration,
    durations,
    percent,
    seconds,
    signed_percent,
    significant,
    size,
    whole_percent,
)


def validation_text(
    rows: Sequence[ValidationRow], notes: Sequence[str] = (), misfits: Sequence[str] = ()
) -> Renderable:
    """The rows and what they sum up to, after `misfits`, why runs do not fit, and `notes` on what the predictions rest on."""
    paced = {"pace": _pace, "error at it": _error_at_pace} if any(row.pace for row in rows) else {}
    columns = (
        beside(lambda row: row)
        | paced
        | {
            "p10 to p90": lambda row: durations(row.measured_low_us, row.measured_high_us),
            "": lambda row: "NOISY" if row.noisy else "",
        }
    )
    found = scores(rows)
    quiet = [row for row in rows if not row.noisy]
    dropped = f"; {counted(sum(row.dropped_steps for row in quiet), 'noisy step')} dropped" if quiet else ""
    return stacked(
        *headlines(misfits),
        *noted(notes),
        table("", rows, {"run": lambda row: row.run, "plan": lambda row: row.plan}, columns),
        "",
        *_devices([row for row in rows if row.device]),
        *noise_notes([(escape(row.run), row.noise) for row in rows]),
        f"{counted(found.rows, 'run')}: mean error {share(found.mean)}, worst {share(found.worst)}, bias {signed_percent(found.bias or 0.0)}, "
        f"intervals cover {share(found.coverage, write=whole_percent)}{dropped} (errors are predicted over measured, less 1)",
        *_pace_lines(rows),
    )


def _pace(row: ValidationRow) -> str:
    return significant(row.pace.of_step) if row.pace else ""


def _error_at_pace(row: ValidationRow) -> str:
    return "" if row.error_at_pace is None else signed_percent(row.error_at_pace)


def _pace_lines(rows: Sequence[ValidationRow]) -> Iterator[str]:
    """A verdict on a single run, or the pace of the machine beside the last of several and the errors that the pace does not make; nothing
    where the pace is not known."""
    paces = [row.pace for row in rows if row.pace]
    mean = mean_error_at_pace(rows)
    if len(rows) == 1 and paces:
        (row,), (pace,) = rows, paces
        inside = "inside" if row.covered else "outside"
        yield (
            f"{escape(row.run)}: predicted {duration(row.predicted.median)}, measured {duration(row.measured)}, {inside} the 90 % "
            f"interval; {'its steps were too disturbed to say why' if row.noisy else pace.parts_of(row.error)}"
        )
        yield str(pace)
    elif paces and mean is not None:
        yield f"{paces[-1]}; with each run at the pace beside its steps, and what other work took from them, the mean error is {percent(mean)}"


def _devices(rows: Sequence[ValidationRow]) -> Iterator[Renderable]:
    """A table of what the GPUs reported while they trained, and the error of the predicted peak of memory; none for a CPU."""
    if not rows:
        return
    figures: Columns[ValidationRow] = {
        "tensors at most": lambda row: size(row.memory.measured) if row.memory else "",
        "error": lambda row: signed_percent(row.memory.error) if row.memory else "",
        "clock": lambda row: (
            f"{count(row.device.clock_mhz)} MHz" if row.device and row.device.clock_mhz is not None else ""
        ),
        "power": lambda row: f"{count(row.device.power_w)} W" if row.device and row.device.power_w is not None else "",
    }
    experts: Columns[ValidationRow] = {
        "run": lambda row: row.run,
        "experts": lambda row: row.device.expert_products if row.device else "",
    }
    yield table("", rows, experts, figures)
    yield ""


def measured_rl_text(rows: Sequence[MeasuredRlStep]) -> Renderable:
    """Every phase of every run, then a line for each phase over all runs."""
    phases = [
        ("" if place else row.run, name, phase)
        for row in rows
        for place, (name, phase) in enumerate(row.phases.items())
    ]
    columns = beside(_phase) | {
        "p10 to p90": lambda one: durations(_phase(one).spread.p10_us, _phase(one).spread.p90_us)
    }
    means = {"mean error": "mean", "worst": "worst", "bias": "bias", "in 90 % interval": "coverage"}
    return stacked(
        table("", phases, {"run": lambda one: one[0], "phase": lambda one: one[1]}, columns),
        "",
        table(
            "",
            [{"name": name, **figures} for name, figures in by_phase(rows).items()],
            {"all runs": lambda row: row["name"]},
            {**counts({"rows": "rows"}), **shares(means)},
        ),
        "",
        f"times are {clock_of(rows[0].measurement)}",
        *(f"{escape(row.run)}: {row.pace.parts_of(row.phases[STEP].error)}; {row.pace}" for row in rows if row.pace),
        *noise_notes([(escape(row.run), row.measurement.noise) for row in rows]),
    )


def _phase(one: tuple[str, str, MeasuredPhase]) -> MeasuredPhase:
    return one[2]


def own_loads_text(content: Mapping[str, Any]) -> Renderable:
    """The content of `predict validate CONFIG… --json` of serving configs."""
    rows, summary = content["rows"], content["summary"]
    kernels = ", ".join(f"{whole_percent(part)} {source}" for source, part in content["kernels"].items())
    waited = sum(row["waited_s"] for row in rows)
    return stacked(
        table(
            "predicted, then served; ms, and predicted over measured less 1",
            [(row, title) for row in rows for title in LATENCIES],
            {"load": lambda one: one[0]["load"] if one[1] == "E2E" else "", "of": lambda one: one[1]},
            {
                "predicted": lambda one: _ms(one, "predicted_ms"),
                "served": lambda one: _ms(one, "measured_ms"),
                "error": lambda one: signed_percent(one[0]["errors"][LATENCIES[one[1]]]),
                "spread": lambda one: whole_percent(one[0]["spread"][LATENCIES[one[1]]]),
                "requests": lambda one: str(one[0]["requests"]) if one[1] == "E2E" else "",
                "pace": lambda one: significant(median(one[0]["paces"])) if one[1] == "E2E" else "",
            },
        ),
        "",
        f"mean error: {_each(summary)}",
        f"with each round at the pace of the machine when the model was fitted: {_each(summary['paced'])}",
        f"bias: {_each(content['bias'], signed=True)}",
        f"90 % interval of mean E2E covers {whole_percent(summary['coverage'])} of the loads",
        f"rests on {escape(content['source'])} (half-width {whole_percent(content['half_width'])}); kernels {kernels}",
        f"served: the median of {counted(rows[0]['rounds'], 'round')}; spread: their largest over their smallest, less 1; pace: the time of chosen "
        f"steps just before the load, over the model's; {seconds(waited)} in which other processes had the core are not counted",
    )


def _ms(one: tuple[Mapping[str, Any], str], kind: str) -> str:
    return significant(one[0][kind][LATENCIES[one[1]]])


def _each(errors: Mapping[str, float], *, signed: bool = False) -> str:
    return ", ".join(
        f"{title} {share(errors[figure], write=signed_percent if signed else percent)}"
        for title, figure in LATENCIES.items()
    )
