"""The differences of runs as ledgers in a terminal and as JSON."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from predict.kinds import RL, SERVING, TRAINING, Kind
from predict.memory.peak import TERMS
from predict.plan_search.compare import BesideFirst, Difference, beside_first, setting_text
from predict.plan_search.serving import carried, carried_cost, money, per_gpu
from predict.reports.memory import likelihood
from predict.reports.money import amount_text
from predict.reports.printed import Renderable, Table
from predict.reports.rl_step import notes_on_steps, rl_step_json
from predict.reports.serving import answer_json
from predict.reports.serving_step import CAPACITY_BELOW, coefficients_line, notes_on_answers
from predict.reports.sweep import rate_in_words
from predict.reports.text import escape, figures_table, first_lines_of, stacked
from predict.rl.phases import NAMES
from predict.rl.step import RlStep
from predict.run.model_flops import tokens_per_step
from predict.serialise import each_picked, picked, versioned
from predict.serving.questions import ServerAnswer, objectives_text
from predict.step.prediction import Prediction
from sampling.files.faults import counted
from sampling.number_text import (
    count,
    duration,
    durations,
    gib,
    percent,
    plain,
    signed,
    signed_percent,
    significant,
    size,
)

LEAST_SHARE = 5e-4
"""Share of the step below which a heading is not listed by itself."""
ROUNDING = 1e-9
"""Share of the step below which a sum of floats is nothing."""


def compare_text(of: Kind[Any, Any], found: Sequence[Any]) -> Renderable:
    """Predictions of a kind, each but the first beside the first."""
    beside = beside_first(of, found)
    return differences_text(beside) if of.name == TRAINING else _side_by_side_text(of, beside)


def compare_json(of: Kind[Any, Any], found: Sequence[Any]) -> dict[str, Any]:
    """The same as JSON."""
    beside = beside_first(of, found)
    return differences_json(beside) if of.name == TRAINING else _side_by_side_json(of, beside)


def differences_text(differences: Sequence[Difference]) -> Renderable:
    """The runs, what differs in their settings, the step heading by heading, and memory term by term."""
    names = _names(differences)
    lines = [f"  {name}  {escape(_described(each))}" for name, each in zip(names, _runs(differences), strict=True)]
    for name, each in zip(names[1:], differences, strict=True):
        changes = ", ".join(
            f"{path} {setting_text(first)} → {setting_text(other)}" for path, (first, other) in each.settings.items()
        )
        lines += ["", escape(f"  {names[0]} → {name}: {changes or 'the same settings'}"), f"  {_verdict(each)}"]
    notes = first_lines_of(*_runs(differences))
    return stacked(*notes, "[bold]runs[/]", *lines, "", _step(differences, names), "", _memory(differences, names))


def _names(differences: Sequence[Difference]) -> list[str]:
    """A, B, C, … and numbers beyond Z."""
    return [chr(65 + index) if index < 26 else f"run {index + 1}" for index in range(len(differences) + 1)]


def _runs(differences: Sequence[Difference]) -> list[Prediction]:
    return [differences[0].first, *(each.other for each in differences)]


def _described(prediction: Prediction) -> str:
    step = prediction.step_time
    return (
        f"{prediction.run.name}: step {duration(step.median_us)} (90 %: {durations(step.low_us, step.high_us)}), "
        f"{count(prediction.tokens_per_second)} tokens/s, {count(prediction.tokens_per_second_per_gpu)} per GPU, "
        f"MFU {percent(prediction.mfu)}, {prediction.memory.verdict}"
    )


def _verdict(difference: Difference) -> str:
    if not difference.settings and difference.speed == 1:
        return "equal: the same run"
    how = f"{_more(difference.speed)} tokens/s"
    sure = "their 90 % intervals overlap" if difference.overlap else "beyond their 90 % intervals"
    if bounds := difference.speed_bounds:
        both_run = difference.first.feasible and difference.other.feasible
        is_tied = both_run and bounds[0] <= 1 <= bounds[1]
        tied = ", so they may be equally fast" if is_tied else ""
        sure = f"90 %: {_more(bounds[0])} to {_more(bounds[1])}, as errors common to both cancel{tied}"
    first, other = difference.per_tokens, tokens_per_step(difference.other.run)
    uneven = (
        ""
        if first == other
        else f"; steps of {other:,} tokens beside {first:,}, whose times are given per {first:,} tokens"
    )
    misfits = [
        f"{each.run.name} is {each.memory.verdict} ({likelihood(each.memory.fits_probability)})"
        for each in (difference.first, difference.other)
        if not each.feasible
    ]
    unable = f"; {' and '.join(misfits)}" if misfits else ""
    return f"{how}; {sure}{uneven}{unable}"


def _more(speed: float) -> str:
    """`8.3 % more`, of tokens per second relative to others."""
    if abs(speed - 1) < LEAST_SHARE:
        return "as many"
    return f"{percent(abs(speed - 1))} {'more' if speed > 1 else 'fewer'}"


def _step(differences: Sequence[Difference], names: Sequence[str]) -> Table:
    """µs by heading of the first run, and the change in each other; the total is that of the step."""
    first, tokens = differences[0].first, differences[0].per_tokens
    uneven = any(tokens_per_step(each.other.run) != tokens for each in differences)
    title = f"the step, mean over pipeline ranks{f', per {tokens:,} tokens' if uneven else ''}"
    table = figures_table(title, ("",), _columns(names))
    ledger = [each.change_us for each in differences]
    totals = [each.step_change_us for each in differences]
    headings = sorted(
        dict.fromkeys(heading for changes in ledger for heading in changes),
        key=lambda heading: -max(abs(changes.get(heading, 0.0)) for changes in ledger),
    )
    small = LEAST_SHARE * first.median_us
    listed = [
        heading
        for heading in headings
        if max(first.breakdown_us.get(heading, 0.0), *(abs(changes.get(heading, 0.0)) for changes in ledger)) >= small
    ]
    for heading in listed:
        cells = _cells([changes.get(heading, 0.0) for changes in ledger], first.median_us)
        table.add_row(heading, duration(first.breakdown_us.get(heading, 0.0)), *cells)
    rest_us = first.median_us - sum(first.breakdown_us.get(heading, 0.0) for heading in listed)
    rest = [
        total - sum(changes.get(name, 0.0) for name in listed) for total, changes in zip(totals, ledger, strict=True)
    ]
    if max(abs(time_us) for time_us in (rest_us, *rest)) > ROUNDING * first.median_us:
        table.add_row(counted(len(headings) - len(listed), "other"), duration(rest_us), *_cells(rest, first.median_us))
    table.add_row("step", duration(first.median_us), *_cells(totals, first.median_us), style="bold")
    return table


def _memory(differences: Sequence[Difference], names: Sequence[str]) -> Table:
    first = differences[0].first.memory.worst
    table = figures_table("memory of the worst rank, GiB", ("",), _columns(names))
    for term in TERMS:
        changes = [each.memory_bytes[term] for each in differences]
        size = getattr(first, term)
        table.add_row(term, gib(size), *_sizes(changes, first.peak))
    peaks = [sum(each.memory_bytes.values()) for each in differences]
    table.add_row("peak", gib(first.peak), *_sizes(peaks, first.peak), style="bold")
    return table


def _columns(names: Sequence[str]) -> list[str]:
    return [names[0], *(column for name in names[1:] for column in (f"{name} − {names[0]}", f"of {names[0]}"))]


def _cells(changes_us: Sequence[float], of_us: float) -> Iterator[str]:
    for change_us in changes_us:
        yield signed(change_us, duration)
        yield signed_percent(change_us / of_us)


def _sizes(changes: Sequence[float], of: float) -> Iterator[str]:
    for size_bytes in changes:
        yield signed(size_bytes, gib)
        yield signed_percent(size_bytes / of)


def differences_json(differences: Sequence[Difference]) -> dict[str, Any]:
    """The first run and each other with its changes: times in µs, those of changes per `per_tokens` tokens, sizes in bytes."""
    of_run = """
    run=run.name step_time_us=step_time tokens_per_second breakdown_us memory_bytes=memory.point_bytes verdict=memory.verdict
    """
    changes = """
    settings step_change_us change_us memory_change_bytes=memory_bytes speed speed_bounds intervals_overlap=overlap
    """
    first = differences[0]
    return versioned(
        "compare",
        {
            "per_tokens": first.per_tokens,
            "first": picked(first.first, of_run),
            "others": [picked(each.other, of_run) | picked(each, changes) for each in differences],
        },
    )


# RL steps and servers beside each other: the settings that differ, and a column of figures for each.

Figure = tuple[str, Callable[[Any], float | None], Callable[[Any], str]]
"""Name, value and form of a row."""


def _side_by_side_text(of: Kind[Any, Any], beside: Sequence[BesideFirst[Any]]) -> Renderable:
    """The settings that differ, a column for each config with the change from the first, and how they compare."""
    first, report = beside[0].first, SIDE_BY_SIDE[of.name]
    found = [first, *(each.other for each in beside)]
    names, lines = [of.run_of(each).name for each in found], []
    for name, each in zip(names[1:], beside, strict=True):
        words = ", ".join(
            f"{path} {setting_text(one)} → {setting_text(its)}" for path, (one, its) in each.settings.items()
        )
        lines.append(escape(f"{names[0]} → {name}: {words or 'the same settings'}"))
    table = figures_table("", ("",), [escape(name) for name in names])
    for name, value, write in report.figures(first):
        values = [value(one) for one in found]
        if any(each is not None for each in values):
            table.add_row(name, *_with_changes(values, write))
    ratios = [
        escape(_ratio_text(report.does, names[0], name, each)) for name, each in zip(names[1:], beside, strict=True)
    ]
    return stacked(
        *report.before(found), *lines, table, "", *report.intervals(found), *ratios, *report.after(names, found)
    )


def _ratio_text(does: str, first: str, name: str, beside: BesideFirst[Any]) -> str:
    ratio = beside.rate_ratio
    words = f"{name} {does.format(significant(ratio.median), first)} (90 %: {significant(ratio.low)} to {significant(ratio.high)})"
    if not ratio.covers(1.0):
        return words
    is_same = not beside.settings and ratio.median == 1
    return f"{words}, so they {'are equal' if is_same else 'may be equal'}"


def _with_changes(values: Sequence[float | None], write: Callable[[Any], str]) -> Iterator[str]:
    """Figures, those after the first with their change."""
    first = values[0]
    for place, value in enumerate(values):
        changed = place and first and value is not None and value != first
        change = f" ({signed_percent(value / first - 1, decimals=0)})" if changed else ""  # type: ignore[operator]
        yield "" if value is None else write(value) + change


def _figures_of_servers(first: ServerAnswer) -> Iterator[Figure]:
    yield "GPUs", lambda found: found.server.run.server.placement.gpus, str
    yield "requests at once", lambda found: found.server.at_once, count
    for figure in ("e2e", "ttft", "tpot"):
        of = attrgetter(f"latency.{figure}")
        yield f"{figure.upper()}, mean", lambda found, of=of: of(found.outcomes[0]).mean_us, duration  # type: ignore[misc]
        yield f"{figure.upper()}, p90", lambda found, of=of: of(found.outcomes[0]).percentiles_us[90], duration  # type: ignore[misc]
    yield "capacity, requests/s", lambda found: found.capacity.median, plain
    if first.kept:
        up_to = f"{objectives_text(first.kept.objectives)} up to, requests/s"
        yield up_to, lambda found: carried(found).median, plain
    yield "the same per GPU", per_gpu, plain
    if cost := carried_cost(first):
        name = f"cost per million output tokens at {rate_in_words(first)}"
        yield name, money, lambda amount: amount_text(amount, cost.currency)


def _intervals_of_servers(found: Sequence[ServerAnswer]) -> Iterator[str]:
    """The intervals of their capacities."""
    intervals = ", ".join(f"{significant(one.capacity.low)} to {significant(one.capacity.high)}" for one in found)  # type: ignore[union-attr]
    yield f"90 % intervals of capacity: {intervals} requests/s; {CAPACITY_BELOW}"


def _after_servers(names: Sequence[str], found: Sequence[ServerAnswer]) -> Iterator[str]:
    """Those that are overloaded, and the model of their steps."""
    for name, one in zip(names, found, strict=True):
        if one.outcomes[0].grows:
            yield f"{escape(name)}: OVERLOADED, its times depend on how long the load lasts"
    yield escape(coefficients_line(found[0].server.stepper))


def _intervals_of_rl_steps(found: Sequence[RlStep]) -> Iterator[str]:
    """The intervals of the steps."""
    yield f"90 % intervals of the step: {', '.join(durations(one.time.low_us, one.time.high_us) for one in found)}"


def _figures_of_rl_steps(first: RlStep) -> Iterator[Figure]:
    for name in NAMES:
        yield name, lambda step, name=name: (phase := step.phase(name)) and phase.time.median_us, duration  # type: ignore[misc]
    yield "step", lambda step: step.time.median_us, duration
    yield "tokens/s per GPU", lambda step: step.tokens_per_second_per_gpu, count
    yield "GPUs", lambda step: step.rl.gpus, str
    yield "most memory per GPU", lambda step: step.memory.worst.peak, size


@dataclass(frozen=True, kw_only=True, slots=True)
class SideBySide:
    """The parts of a comparison that differ between RL steps and servers."""

    figures: Callable[[Any], Iterator[Figure]]
    before: Callable[[Sequence[Any]], Sequence[str]]
    """Lines above: what the figures rest on."""
    intervals: Callable[[Sequence[Any]], Iterator[str]]
    does: str
    """What the ratio is of, with places for it and for the first config."""
    after: Callable[[Sequence[str], Sequence[Any]], Iterator[str]] = lambda names, found: iter(())


SIDE_BY_SIDE: Mapping[str, SideBySide] = {
    RL: SideBySide(
        figures=_figures_of_rl_steps,
        before=notes_on_steps,
        intervals=_intervals_of_rl_steps,
        does="trains on {} times the tokens per second and GPU of {}",
    ),
    SERVING: SideBySide(
        figures=_figures_of_servers,
        before=notes_on_answers,
        intervals=_intervals_of_servers,
        does="carries {} times what {} does",
        after=_after_servers,
    ),
}


def _side_by_side_json(of: Kind[Any, Any], beside: Sequence[BesideFirst[Any]]) -> dict[str, Any]:
    """The content of `predict rl-step --json`, or of `predict serving --find-capacity --json`, for each in their order; and what each but
    the first does per second over the first: a ratio with its bounds, in which common errors cancel."""
    found = [beside[0].first, *(each.other for each in beside)]
    ratios = each_picked((each.rate_ratio for each in beside), "median low high")
    if of.name == RL:
        return versioned("rl-compare", {"steps": [rl_step_json(step) for step in found], "throughput_ratios": ratios})
    return versioned("serving-compare", {"servers": [answer_json(one) for one in found], "carried_ratios": ratios})
