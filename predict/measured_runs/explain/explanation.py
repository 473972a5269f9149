"""The explanation: predicted and measured µs term by term, the largest difference first; it closes with what is unexplained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

from predict import estimate, load
from predict.config.document import Config
from predict.measured_runs.explain import causes
from predict.measured_runs.explain.measured import TracedStep, without_profiler
from predict.measured_runs.explain.naming import direction
from predict.measured_runs.explain.predicted import PredictedStep, predicted_step
from predict.measured_runs.explain.read_traces import read_measured
from predict.measured_runs.explain.timeline import UNNAMED
from predict.measured_runs.explain.trace_matches_config import CallTimes, require_same_step
from predict.measured_runs.judge import Judgement, judge
from predict.measured_runs.measured_step import logged_us, measured_step
from predict.measurement.pace import Pace, pace_over
from predict.serialise import each_picked, picked, version_of
from predict.step.breakdown import HOST, P2P, TP
from predict.step.prediction import Prediction
from sampling.call import Call
from sampling.errors import UserError
from sampling.number_text import duration, multiple, signed_percent, whole_percent

LAYERS = "layers, with the host's time between their operators,"
"""Row of layers that samples show only as a whole."""


def findings(predicted: PredictedStep, measured: TracedStep, *, profiler_us: float = 0.0) -> list[causes.Finding]:
    """The causes, the costliest first; a step as predicted has one finding that says so. `profiler_us` is what the profiler added to the
    traced step, and `measured` the step without it."""
    pace = causes.pace_of(predicted, measured)
    found = [
        *causes.standstill(measured),
        *causes.slow_ranks(predicted, measured),
        *causes.attention(predicted, measured, pace),
        *causes.operators(predicted, measured, pace),
        *causes.all_slower(predicted, measured, pace),
        *causes.slow_messages(predicted, measured, 1.0 if measured.on_device else max(1.0, pace)),
        *causes.bubble(predicted, measured),
        *causes.host(predicted, measured, pace),
        *causes.unexplained(measured),
    ]
    least_us = causes.LEAST_SHARE * measured.step_us
    worth = sorted((each for each in found if each.cost_us >= least_us), key=lambda each: -each.cost_us)
    largest = [*_largest_row(predicted, measured, worth)]
    worth += [each for each in largest if each.cost_us]  # after the causes: its waiting may be for what they name
    notes = [] if any(each.cause == "attention" for each in worth) else [*causes.unfused_kernel(predicted, measured)]
    named = [*worth, *notes] or [_as_predicted(predicted, measured, pace)]
    named += causes.without_shapes(measured)
    shorter = [each for each in largest if not each.cost_us]
    in_flight = [each for each in found if each.cause == causes.MESSAGES and each not in worth]
    slowed = [each for each in causes.profiler(profiler_us, measured.step_us) if each.cost_us >= least_us]
    return [*named, *causes.noise(measured), *shorter, *in_flight, *slowed]


def _largest_row(
    predicted: PredictedStep, measured: TracedStep, stated: Sequence[causes.Finding]
) -> Iterator[causes.Finding]:
    """The row of the ledger that differs most, where no cause explains it."""
    expected, seen = dict(predicted.headings), dict(measured.headings)
    seen.pop(UNNAMED, None)
    if together := _layers(predicted):
        for of in (expected, seen):
            of[LAYERS] = sum(of.pop(each, 0.0) for each in together)
    off_us = {name: seen.get(name, 0.0) - expected.get(name, 0.0) for name in (*expected, *seen)}
    name = max(off_us, key=lambda each: abs(off_us[each]), default="")
    explained = {LAYERS if each in together else each for one in stated for each in one.headings}
    if not name or abs(off_us[name]) < causes.LEAST_SHARE * measured.step_us or name in explained:
        return
    s = "" if name == LAYERS else "s"
    longer = "longer" if off_us[name] > 0 else "shorter"
    yield causes.Finding(
        cause="largest_row",
        text=f"The largest difference that no other cause explains: {name} take{s} {duration(seen.get(name, 0.0))}, "
        f"{duration(abs(off_us[name]))} {longer} than predicted.",
        cost_us=max(0.0, off_us[name]),
        headings=frozenset([name]),
    )


def _layers(predicted: PredictedStep) -> frozenset[str]:
    """Rows that samples of whole layers do not part: operators that no sample covers by themselves, the host's time between operators, and
    the messages of layers over several ranks."""
    spread = [TP] if causes.layers_rest(predicted) else []
    return frozenset([*predicted.guessed, *spread, HOST]) if predicted.guessed or spread else frozenset()


def _as_predicted(predicted: PredictedStep, measured: TracedStep, pace: float) -> causes.Finding:
    error = predicted.step_us / measured.step_us - 1
    return causes.Finding(
        cause="none",
        text=f"The prediction's error is {signed_percent(error)} of the step, and no single cause makes up {whole_percent(causes.LEAST_SHARE)} of it; its operators take "
        f"{multiple(pace)} their prediction at the median.",
        cost_us=0.0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One heading of both ledgers, in µs a step of the mean rank; for communication also what it hides and waits: sends between pipeline
    ranks wait under the bubble."""

    name: str
    predicted_us: float
    measured_us: float
    hidden_us: float | None = None
    waiting_us: float | None = None
    guessed: bool = False
    """The prediction is for the most part of operators that no sample covers, in layers that were sampled whole."""

    @property
    def difference_us(self) -> float:
        return self.measured_us - self.predicted_us


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTerm:
    """One call in one direction that the prediction has and the trace shows, in µs a step of the mean rank."""

    call: Call
    direction: str
    predicted_us: float
    measured_us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """A prediction next to the measured step."""

    prediction: Prediction
    predicted: PredictedStep
    measured: TracedStep
    """The step without its profiler, where its log or its trace shows it."""
    traced: TracedStep
    terms: tuple[Term, ...]
    """The largest difference first."""
    calls: tuple[CallTerm, ...]
    verdict: tuple[causes.Finding, ...]
    pace: Pace | None
    """The machine's pace beside the steps; None where the trace or the profile's rows do not know it."""

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted.step_us / self.measured.step_us - 1

    @property
    def profiler_us(self) -> float:
        """The time that the profiler adds to the traced step, as far as it is known."""
        return self.traced.step_us - self.measured.step_us

    @property
    def unexplained_us(self) -> float:
        """Remainder of the measured step that is in no term: kernels that no operator names."""
        return self.measured.step_us - sum(term.measured_us for term in self.terms)

    def to_json(self) -> dict[str, Any]:
        """The stable shape that `--json` prints."""
        remainders = """
        untraced_step_us=measured.untraced_us noise=traced.noise traced_step_us=traced.step_us profiler_us unexplained_us
        """
        return {
            "version": version_of("explain"),
            "step_us": picked(self, "predicted=predicted.step_us measured=measured.step_us"),
            "terms": [_term_json(term) for term in self.terms],
            "interval_us": picked(self.prediction.step_time, "low high"),
            **picked(self, remainders),
            "verdict": [finding.text for finding in self.verdict],
            "causes": [finding.cause for finding in self.verdict],
            "calls": [
                {"call": each.call.NAME, **each.call.fields()} | picked(each, "direction predicted_us measured_us")
                for each in self.calls
            ],
            "ranks": each_picked(self.measured.ranks, "rank steps step_us headings_us=headings"),
            **picked(self.measured, "matched_share steps_found_by=rule"),
            **({"pace": self.pace.to_json(), "error_at_pace": self.pace.of_models(self.error)} if self.pace else {}),
        }


def _term_json(term: Term) -> dict[str, Any]:
    beside = picked(term, "hidden_us waiting_us") | {"guessed": term.guessed or None}
    stated = {name: value for name, value in beside.items() if value is not None}
    return picked(term, "name predicted_us measured_us") | stated


@overload
def explain(
    config: Config,
    overrides: Sequence[str] = ...,
    *,
    trace: Path | str,
    log: str | None = ...,
    report: Callable[[str], None] = ...,
) -> Explanation: ...
@overload
def explain(
    config: Config,
    overrides: Sequence[str] = ...,
    *,
    trace: Path | str | None = ...,
    log: str | None = ...,
    report: Callable[[str], None] = ...,
) -> Explanation | Judgement: ...
def explain(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    trace: Path | str | None = None,
    log: str | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Explanation | Judgement:
    """Hold the prediction of a config against a trace of the same run, or a folder of the traces of its ranks, or without one against its
    log alone; UserError for another file, for a trace or a log of another run, or for neither.

    `log` is the step that no profiler slowed: a time such as `412ms`, the run's training log, or a file of `predict measure --json`.
    """
    if trace is None and log is None:
        raise UserError("--trace: missing; give a trace of the run, or its --log")
    prediction = estimate(load(config, overrides), require_fit=False)
    if trace is not None:
        return explained_trace(prediction, Path(trace), log=log, report=report)
    assert log is not None
    return judge(prediction, measured_step(log, prediction.run, option="--log"))


def explained_trace(
    prediction: Prediction,
    trace: Path,
    *,
    log: str | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Explanation:
    """The same of a run that is predicted already, with its trace."""
    run = prediction.run
    step_us = logged_us(log, run, report)
    return explained(prediction, replace(read_measured(trace, run), logged_us=step_us))


def explained(prediction: Prediction, measured: TracedStep) -> Explanation:
    predicted = predicted_step(prediction, measured.pipeline_ranks(prediction.run))
    calls_us = measured_calls(measured)
    require_same_step(
        prediction.run,
        predicted,
        calls=calls_us,
        headings=measured.headings,
        sent=measured.sent,
        splits=measured.splits(prediction.run),
        forwards_first=measured.forwards_first(prediction.run),
        logged_us=measured.logged_us,
    )
    plain = without_profiler(measured)
    profiler_us = measured.step_us - plain.step_us
    return Explanation(
        prediction=prediction,
        predicted=predicted,
        measured=plain,
        traced=measured,
        terms=_terms(predicted, plain),
        calls=_calls(predicted, measured_calls(plain)),
        verdict=tuple(findings(predicted, plain, profiler_us=profiler_us)),
        pace=pace_over(prediction, measured.references),
    )


def _terms(predicted: PredictedStep, measured: TracedStep) -> tuple[Term, ...]:
    found = measured.headings
    terms = []
    for name in dict.fromkeys((*predicted.headings, *found)):
        expected_us, seen_us = predicted.headings.get(name, 0.0), found.get(name, 0.0)
        if name == UNNAMED or not (expected_us or seen_us):
            continue
        messages = measured.messages(name)
        terms.append(
            Term(
                name=name,
                predicted_us=expected_us,
                measured_us=seen_us,
                hidden_us=messages.hidden_us if messages else None,
                waiting_us=messages.waiting_us if messages and len(measured.ranks) > 1 and name != P2P else None,
                guessed=name in predicted.guessed,
            )
        )
    return tuple(sorted(terms, key=lambda term: -abs(term.difference_us)))


def _calls(predicted: PredictedStep, seen: CallTimes) -> tuple[CallTerm, ...]:
    found = [
        CallTerm(call=call, direction=way, predicted_us=time_us, measured_us=seen[call, way][1])
        for (call, way), (_, time_us) in predicted.calls.items()
        if (call, way) in seen
    ]
    return tuple(sorted(found, key=lambda each: -abs(each.measured_us - each.predicted_us)))


def measured_calls(measured: TracedStep) -> CallTimes:
    """Call and direction → (runs, µs) a step, the mean over the ranks."""
    found: dict[tuple[Call, str], tuple[float, float]] = {}
    for rank in measured.ranks:
        for (call, phase), (runs, time_us) in rank.calls.items():
            key, share = (call, direction(phase)), 1 / len(measured.ranks)
            before_runs, before_us = found.get(key, (0.0, 0.0))
            found[key] = before_runs + share * runs, before_us + share * time_us
    return found
