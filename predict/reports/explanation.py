"""A traced step as text: next to its prediction, with the terms and the calls that differ most, and replayed under changes."""

from typing import Any

from predict.measured_runs.explain.causes import PROFILER
from predict.measured_runs.explain.explanation import CallTerm, Explanation, Term
from predict.measured_runs.explain.measured import TracedStep, without_profiler
from predict.measured_runs.explain.predicted import predicted_step
from predict.measured_runs.replay.pace import CARRIED, MODELLED, REPLAYED
from predict.measured_runs.replay.replay import FOLLOWS, OTHERS_SHARE, Replay, ReplayedTerm
from predict.measurement.system_noise import noise_note
from predict.reports.printed import Renderable, Table
from predict.reports.text import call_text, escape, figures_table, first_lines_of, hanging, stacked, with_provenance
from predict.serialise import picked, version_of
from sampling.files.faults import counted
from sampling.number_text import duration, durations, multiple, percent, signed_percent

# How a traced step was measured, for an explanation and a replay alike.


def measured_text(traced: TracedStep) -> list[str]:
    """The lines on the step without its profiler, and on its noise."""
    noise = [f"  {noise_note(traced.noise)}"] if traced.noise else []
    return [*without_profiler_text(traced), *noise]


def without_profiler_text(traced: TracedStep) -> list[str]:
    """The profiler's cost, and how it is known; nothing where it is not known, or is 0."""
    untraced_us, traced_us = traced.untraced_us, traced.step_us
    known_from = "--log" if traced.logged_us else "the median of its run, timed before the trace"
    if profiler_us := traced_us - without_profiler(traced).step_us:
        return [
            f"  the step without its profiler by {known_from}; the traced step takes {duration(traced_us)}, and what the profiler adds, "
            f"{duration(profiler_us)}, is left out"
        ]
    if untraced_us is not None and untraced_us > traced_us:
        return [
            f"  the step without its profiler takes {duration(untraced_us)} by {known_from}, longer than the traced one: the ledger is of the "
            "traced step"
        ]
    return []


GUESSED = "≈ "
"""Mark of a predicted part of sampled layers that no sample covers by itself."""
CALLS = 8
"""Calls that are listed."""


def explanation_report(explanation: Explanation) -> Renderable:
    guessed = any(term.guessed for term in explanation.terms)
    note = [f"{GUESSED}part of layers that were sampled whole: no sample covers it by itself"] if guessed else []
    terms, calls = _terms(explanation), _calls(explanation.calls)
    return stacked(
        *first_lines_of(explanation.prediction),
        _headline(explanation),
        "",
        *_verdict(explanation),
        "",
        terms,
        *note,
        "",
        calls,
    )


def _headline(explanation: Explanation) -> str:
    measured, predicted, interval = explanation.measured, explanation.predicted, explanation.prediction.step_time
    ranks = counted(len(measured.ranks), "rank")
    lines = [
        f"{explanation.prediction.run.name}: {duration(measured.step_us)} measured, {duration(predicted.step_us)} predicted "
        f"(90 %: {durations(interval.low_us, interval.high_us)}; error {signed_percent(explanation.error)})",
        f"  {ranks} of {explanation.prediction.run.cluster.world_size} traced; steps found by {measured.rule}; "
        f"{percent(measured.matched_share)} of the kernels' time has an operator",
    ]
    pace = explanation.pace
    paced = [f"  {pace}; {pace.parts_of(explanation.error)}"] if pace else []
    return "\n".join([*lines, *measured_text(explanation.traced), *paced])


def _verdict(explanation: Explanation) -> list[str]:
    step_us = explanation.measured.step_us
    return [
        hanging(
            f"{place}. ",
            finding.text
            + (
                f" [adds {percent(finding.cost_us / step_us)} of the step]"
                if finding.cost_us and finding.cause != PROFILER
                else ""
            ),
        )
        for place, finding in enumerate(explanation.verdict, start=1)
    ]


def _terms(explanation: Explanation) -> Table:
    step_us = explanation.measured.step_us
    figures = ("predicted", "measured", "difference", "of the step", "hidden", "waiting")
    table = figures_table(
        "where the step goes, mean over traced ranks; difference: measured less predicted", ("",), figures
    )
    for term in explanation.terms:
        table.add_row(*_row(term, step_us))
    rest_us = explanation.unexplained_us
    table.add_row("unexplained", "", duration(rest_us), duration(rest_us), percent(rest_us / step_us), "", "")
    whole = explanation.predicted.step_us
    table.add_row("step", duration(whole), duration(step_us), duration(step_us - whole), "100.0 %", "", "")
    if added_us := explanation.profiler_us:
        traced = duration(explanation.traced.step_us)
        table.add_row("profiler", "", duration(added_us), duration(added_us), percent(added_us / step_us), "", "")
        table.add_row("traced step", "", traced, "", "", "", "")
    return table


def _row(term: Term, step_us: float) -> tuple[str, ...]:
    beside = ["" if value is None else duration(value) for value in (term.hidden_us, term.waiting_us)]
    return (
        term.name,
        f"{GUESSED * term.guessed}{duration(term.predicted_us)}",
        duration(term.measured_us),
        duration(term.difference_us),
        percent(term.measured_us / step_us),
        *beside,
    )


def _calls(calls: tuple[CallTerm, ...]) -> Table:
    table = figures_table("calls that differ most", ("call", "direction"), ("predicted", "measured", "ratio"))
    for each in calls[:CALLS]:
        ratio = f"{multiple(each.measured_us / each.predicted_us)}" if each.predicted_us else ""
        table.add_row(
            call_text(each.call), each.direction, duration(each.predicted_us), duration(each.measured_us), ratio
        )
    return table


# A replayed step in a terminal and as JSON.

KEYS = {REPLAYED: "replayed", MODELLED: "modelled", CARRIED: "carried_over", FOLLOWS: "follows"}
"""Origin of a time → its word in the JSON."""
COLUMNS = (REPLAYED, MODELLED, CARRIED)
NOTE = (
    "replayed: the same calls in the trace; modelled: at the trace's pace, where it shows any; carried over: the host and what no call "
    "explains. Waiting of pipeline ranks follows from the schedule, which is simulated anew."
)


def replay_json(replay: Replay) -> dict[str, Any]:
    """The stable shape that `--json` prints."""
    alone = _alone(replay)
    step = """
    traced=traced_us replayed=step_time.median low=step_time.low high=step_time.high models_alone=modelled.median_us
    """
    return {
        "version": version_of("what-if"),
        "step_us": picked(replay, step),
        "rest_us": picked(replay, "traced=rest_us carried_over=carried_us"),
        "shares": {KEYS[origin]: replay.share(origin) for origin in KEYS},
        "terms": [
            {"name": term.name, "models_alone_us": alone.get(term.name, 0.0), "replay_us": term.time_us}
            | {f"{KEYS[origin]}_us": time_us for origin, time_us in term.by_origin_us.items() if time_us}
            for term in replay.terms
        ],
        "samples": replay.modelled.provenance["samples"],
    }


def replay_text(replay: Replay) -> Renderable:
    step = replay.step_time
    change = step.median_us / replay.traced_us - 1
    shares = ", ".join(f"{percent(replay.share(origin))} is {origin}" for origin in COLUMNS)
    report = stacked(
        f"{escape(replay.replayed.run.name)}: {duration(step.median_us)} replayed (90 %: {durations(step.low_us, step.high_us)}), "
        f"{signed_percent(change)} against the {duration(replay.traced_us)} of the traced run",
        f"  of the step {shares}; the models alone say {duration(replay.modelled.median_us)}",
        *measured_text(replay.traced),
        f"  {_rest(replay)}",
        "",
        _table(replay),
        NOTE,
    )
    modelled = replay.modelled
    return with_provenance(report, modelled.run, modelled.provenance, analytic=modelled.is_analytic)


def _rest(replay: Replay) -> str:
    """A sentence on what calls and schedule leave of the traced step."""
    less = replay.rest_us < 0
    difference = f"calls and schedule take {percent(abs(replay.rest_us) / replay.traced_us)} {'more' if less else 'less'} than the traced step"
    if replay.same_run:
        return f"{difference}; all of that rest is carried over, since this is the traced run"
    return f"{difference}; {percent(OTHERS_SHARE)} of that rest is carried over"


def _table(replay: Replay) -> Table:
    alone, step_us = _alone(replay), replay.median_us
    table = figures_table("where the step goes", ("",), ("models alone", "replay", "of the step", *COLUMNS))
    for term in replay.terms:
        table.add_row(
            term.name,
            duration(alone.get(term.name, 0.0)),
            duration(term.time_us),
            percent(term.time_us / step_us),
            *(_part(term, origin) for origin in COLUMNS),
        )
    whole = [duration(step_us * replay.share(origin)) for origin in COLUMNS]
    table.add_row("step", duration(replay.modelled.median_us), duration(step_us), "100.0 %", *whole)
    return table


def _part(term: ReplayedTerm, origin: str) -> str:
    time_us = term.by_origin_us.get(origin, 0.0)
    return duration(time_us) if time_us else ""


def _alone(replay: Replay) -> dict[str, float]:
    """µs by heading, by the models alone."""
    return dict(predicted_step(replay.modelled).headings)
