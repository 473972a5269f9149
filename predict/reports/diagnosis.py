"""A diagnosis on one screen, and as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from predict.convert.spelling import config_lines
from predict.diagnosis import Diagnosis, Suggestion
from predict.interval import Interval
from predict.kinds import Values
from predict.measured_runs.judge import Cause, Judgement
from predict.measured_runs.log_matches_config import unit_mistake
from predict.reports.memory import summary
from predict.reports.printed import Renderable
from predict.reports.text import chance, escape, fact, first_lines_of, hanging, head, interval_text, run_text, stacked
from predict.run.model_flops import mfu
from predict.serialise import each_picked, picked, version_of
from predict.validation.nearest import NearRun, kind_in_words
from sampling.files.faults import as_written, counted
from sampling.number_text import duration, percent, signed_percent

COLOURS = {"faster": "yellow", "normal": "green", "perhaps slow": "yellow", "slow": "red"}


def diagnosis_text(found: Diagnosis) -> Renderable:
    prediction, judgement = found.prediction, found.judgement
    step = prediction.step_time
    return stacked(
        *first_lines_of(prediction),
        head(prediction.run.name, run_text(prediction.run)),
        *(fact("read as", escape(note)) for note in found.notes),
        "",
        fact("memory", summary(prediction.memory)),
        fact("predicted", f"{duration(step.median_us)} a step ({interval_text(step)})"),
        *(
            _measured(judgement)
            if judgement
            else [fact("measured", "nothing is: --log or --trace shows whether it is normal")]
        ),
        *(fact("" if place else "published", escape(each)) for place, each in enumerate(_published(found))),
        *(["", *_causes(found.causes, judgement)] if judgement else []),
        "",
        *_changes(found),
    )


def _measured(judgement: Judgement) -> Iterator[str]:
    prediction, measured = judgement.prediction, judgement.measured
    yield fact("measured", f"{duration(measured.step_us)}, by {escape(measured.source)}")
    yield fact(
        "error", f"{signed_percent(prediction.median_us / measured.step_us - 1)} (predicted over measured, less 1)"
    )
    yield fact("MFU", f"{percent(mfu(prediction.run, measured.step_us))} measured, {percent(prediction.mfu)} predicted")
    verdict = judgement.verdict
    yield fact("verdict", f"[bold {COLOURS[verdict]}]{verdict}[/]: {_reason(judgement)}")


def _reason(judgement: Judgement) -> str:
    if mfu(judgement.prediction.run, judgement.measured.step_us) > 1:
        return "no run is above 100 % of the peak: the unit of the time is probably wrong, or the log is another run's"
    if mistaken := unit_mistake(judgement.measured.step_us / judgement.prediction.median_us):
        return f"about {mistaken} the prediction: the unit of the time is probably wrong"
    if judgement.verdict == "faster":
        is_open = judgement.prediction.run.cluster.gpu.kind == "cpu" and judgement.slowdown is None
        faster = ", or this machine is faster than when its rows were taken" if is_open else ""
        return f"below the prediction's interval: the run is hardly as its config says{faster}; check its settings, first those that were assumed"
    is_short = judgement.measured.step_us <= judgement.prediction.median_us and judgement.verdict != "normal"
    paced = "slower than this machine's pace allows; " if is_short and (judgement.slowdown or 1.0) < 1 else ""
    return f"{paced}{chance(judgement.normal_probability)} likely that only the prediction's error and noise lie between the two"


def verdict_line(judgement: Judgement) -> str:
    """The verdict in one sentence, for other answers."""
    likely = next((each for each in judgement.causes), None)
    cause = f" {likely.text}" if likely and judgement.verdict != "normal" else ""
    return f"{judgement.verdict}: {_reason(judgement)}.{cause}"


def judgement_text(judgement: Judgement) -> Renderable:
    """A measured step beside its prediction, without a trace."""
    prediction = judgement.prediction
    step = prediction.step_time
    return stacked(
        *first_lines_of(prediction),
        head(prediction.run.name, run_text(prediction.run)),
        "",
        fact("predicted", f"{duration(step.median_us)} a step ({interval_text(step)})"),
        *_measured(judgement),
        "",
        *_causes(judgement.causes, judgement),
    )


def judgement_json(judgement: Judgement) -> dict[str, Any]:
    """The same as JSON, in the keys of an explanation by a trace, as far as a log has them."""
    causes = {"verdict": "text", "causes": "cause", "probabilities": "probability"}
    return {
        "version": version_of("explain"),
        "step_us": picked(judgement, "predicted=prediction.median_us measured=measured.step_us"),
        "interval_us": picked(judgement.prediction.step_time, "low high"),
        "normal_probability": judgement.normal_probability,
        **{key: [getattr(cause, of) for cause in judgement.causes] for key, of in causes.items()},
    }


def _published(found: Diagnosis) -> Iterator[str]:
    """The published runs beside the run, or that none is known on a GPU; nothing on a CPU, of which no run is published."""
    run = found.prediction.run
    yield from (_near(each, run.precision) for each in found.published)
    if not found.published and run.cluster.gpu.kind != "cpu":
        yield f"no run like this is known: {kind_in_words(run)} of about this size on {run.cluster.gpu.name}"


def _near(near: NearRun, own_precision: str) -> str:
    by = f", {near.framework}" if near.framework else ""
    of = "" if near.precision == own_precision else f" of the {near.precision} peak"
    return f"{percent(near.mfu)} MFU{of}: {near.model} in {near.precision} on {counted(near.gpus, 'GPU')}, sequences of {near.seq_len:,}{by} ({near.row_id})"


def _causes(causes: Sequence[Cause], judgement: Judgement) -> Iterator[str]:
    step_us = judgement.measured.step_us
    if not causes:
        is_open = judgement.verdict in ("slow", "perhaps slow")
        why = (
            "none of the causes that are tried explains the step; a --trace shows where its time goes"
            if is_open
            else "nothing stands out"
        )
        yield f"[bold]where time is lost[/]: {why}"
        return
    yield "[bold]where time is lost[/]"
    for place, cause in enumerate(causes, 1):
        yield hanging(f"  {place}. ", f"{escape(cause.text)}{_weight(cause, step_us)}")
    if any(cause.probability < 1 for cause in causes):
        yield hanging(
            "     ", "by the step's time alone: other causes may take as long, and a --trace shows which it is"
        )


def _weight(cause: Cause, step_us: float) -> str:
    parts = [f"{percent(cause.share_of(step_us))} of the step"] if cause.cost_us else []
    parts += [f"{chance(cause.probability)} likely"] if cause.probability < 1 else []
    return f" [{', '.join(parts)}]".replace("[", r"\[") if parts else ""


def _changes(found: Diagnosis) -> Iterator[str]:
    if not found.changes:
        yield "[bold]what helps most[/]: no change of plan, kernels, overlap or precision saves half a percent"
        return
    yield "[bold]what helps most[/] (what is wrong first, fewer bits last)"
    for place, each in enumerate(found.changes, 1):
        yield hanging(f"  {place}. ", f"{gain_text(each.gain)}, {fits_text(each)}: {escape(_set(each))}")
        said = () if each.mends else config_lines(each.settings)
        yield from (hanging("       ", escape(line)) for line in each.in_their_words if line not in said)


def gain_text(gain: Interval) -> str:
    """The share of the step that a change saves or costs, with its bounds."""
    word = "saves" if gain.median >= 0 else "costs"
    bounds = sorted((abs(gain.low), abs(gain.high))) if gain.low * gain.high >= 0 else (gain.low, gain.high)
    return f"{word} {percent(abs(gain.median))} ({percent(bounds[0])} to {percent(bounds[1])})"


def fits_text(each: Suggestion) -> str:
    return f"fits at {chance(each.fits_probability)}"


def _set(each: Suggestion) -> str:
    return f"mend {each.mends.replace('_', ' ')}" if each.mends else " ".join(_texts(each.settings))


def _texts(settings: Values) -> list[str]:
    """Settings as `--set` takes them."""
    return [f"{path}={as_written(value)}" for path, value in settings.items()]


def diagnosis_json(found: Diagnosis) -> dict[str, Any]:
    """The contract of `predict diagnose --json`: times in µs, gains as shares of the step."""
    return {
        "version": version_of("diagnose"),
        **picked(
            found, "config notes fits_probability=prediction.memory.fits_probability step_us=prediction.step_time"
        ),
        **picked(found.judgement, "measured_us=measured.step_us normal_probability verdict"),
        "published": each_picked(found.published, "*"),
        "causes": each_picked(found.causes, "cause text cost_us probability"),
        "changes": [_suggestion_json(each) for each in found.changes],
    }


def _suggestion_json(each: Suggestion) -> dict[str, Any]:
    return {
        "set": _texts(each.settings),
        **picked(each.gain, "gain=median low high"),
        **picked(each, "fits_probability in_their_words mends"),
    }
