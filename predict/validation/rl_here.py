"""RL steps predicted first and then run for real in interleaved rounds, on this machine's CPU."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predict import estimate, rl_step
from predict.measurement.pace import Pace, pace_over
from predict.measurement.real_rl import STEP, MeasuredSpread, RlMeasurement, measure_rl, pool_rl
from predict.measurement.requirements import require_measurable_rl
from predict.measurement.turns import in_turns
from predict.rl.step import RlStep
from predict.serialise import as_json, picked, version_of
from predict.validation.compared import Compared, grouped, scores
from sampling.number_text import duration

STEPS_PER_ROUND = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPhase(Compared):
    """One phase, or the whole step: its prediction, made first, and the median of its measured times, which scatter by `spread`."""

    spread: MeasuredSpread


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRlStep:
    """One run: its phases under verl's names, the step last."""

    run: str
    phases: Mapping[str, MeasuredPhase]
    measurement: RlMeasurement
    pace: Pace | None
    """The machine's pace beside the steps, by the training step of the same model; None where the profile's rows do not know theirs."""


def validate_rl_here(
    configs: Sequence[Path | str], overrides: Sequence[str], *, rounds: int, report: Callable[[str], None]
) -> list[MeasuredRlStep]:
    """Predict every config, then run them in turns, so that a slow spell falls on all alike. UserError for one that cannot run."""
    predicted = [rl_step(config, overrides) for config in configs]
    for step in predicted:
        require_measurable_rl(step.rl)
    report(f"{rounds * len(configs)} measurements, {rounds} of each run")
    measured = in_turns(
        configs,
        rounds,
        lambda config: measure_rl(config, overrides, steps=STEPS_PER_ROUND),
        lambda result: f"{result.run} {duration(result.spread(STEP).median_us)}",
        report,
    )
    return [_row(step, pool_rl(results)) for step, results in zip(predicted, measured, strict=True)]


def _row(step: RlStep, measurement: RlMeasurement) -> MeasuredRlStep:
    times = {phase.name: phase.time for phase in step.phases} | {STEP: step.time}
    spreads = {name: measurement.spread(name) for name in measurement.phase_times_us}
    phases = {
        name: MeasuredPhase(predicted=times[name], measured=spread.median_us, spread=spread)
        for name, spread in spreads.items()
    }
    pace = pace_over(estimate(step.rl.base, require_fit=False), measurement.references)
    return MeasuredRlStep(run=step.rl.name, phases=phases, measurement=measurement, pace=pace)


def by_phase(rows: Sequence[MeasuredRlStep]) -> dict[str, dict[str, Any]]:
    """The figures of each phase over all runs."""
    phases = grouped((pair for row in rows for pair in row.phases.items()), lambda pair: pair[0])
    return {
        name: picked(scores(phase for _, phase in found), "rows mean worst bias coverage")
        for name, found in phases.items()
    }


def measured_rl_json(rows: Sequence[MeasuredRlStep]) -> dict[str, Any]:
    """The stable content of `predict validate CONFIG --json` for RL configs; errors are fractions."""
    return {
        "version": version_of("validate-own-rl"),
        "summary": by_phase(rows),
        "rows": [
            {
                "run": row.run,
                "noisy": bool(row.measurement.noise),
                "threads": row.measurement.threads,
                "steps": len(row.measurement.others_shares),
                "phases": {name: _phase(phase) for name, phase in row.phases.items()},
                **({"pace": row.pace.to_json()} if row.pace else {}),
            }
            for row in rows
        ],
    }


def _phase(phase: MeasuredPhase) -> dict[str, Any]:
    return {
        "predicted_us": as_json(phase.predicted),
        "measured_us": picked(phase.spread, "median=median_us p10=p10_us p90=p90_us"),
        **picked(phase, "error covered"),
    }
