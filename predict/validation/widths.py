"""Widths learnt from published runs: how wide each unknown must make an interval to contain 90 % of the runs that have it.

Unknowns are learnt in turn, each on the runs that have no later one, so that each covers what those before it leave. What every step
has is the need of the median framework: one whose runs scatter widens its own steps, not everyone's. Sources weigh by the square root
of their configurations: a long sweep of one stack does not speak for all of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from predict import estimate
from predict.interval import Interval, equally_likely, width_of_step
from predict.prices.published_constants import CONSTANTS
from predict.run.training_run import TrainingRun
from predict.serialise import version_of
from predict.step.composition_error import particulars
from predict.step.interval import step_interval
from predict.step.prediction import Prediction
from predict.validation.compared import Compared, grouped, mean_over_sources, scores
from predict.validation.published import ComparedRun, Comparison, configurations, unstated_recipe
from predict.validation.published_runs import candidates
from predict.validation.ranking import MeasuredPlan, large_groups, ratio_coverage, that_ran
from sampling.errors import UserError

LEVEL = 0.90
TRIED = tuple(0.005 * step for step in range(301))
"""Half-widths in log time; the greatest stands for all beyond."""
EVERY, FP8, MIXTURE, UNKNOWN_RECIPE = "every step", "fp8", "mixture of experts", "unstated recipe of a mixture"
LONG_KNOWN = ("ampere", "hopper")

Widths = Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A configuration: its unknowns, and the intervals that calls and its particulars leave the runs that it stands for."""

    source: str
    judged_as: str
    measured_us: float
    framework: str
    unknowns: tuple[str, ...]
    """Unknowns in the order in which they are learnt, without the framework."""
    intervals: tuple[Interval, ...]

    def interval(self, widths: Widths) -> Interval:
        own = [widths.get(name, 0.0) for name in (*self.unknowns, self.framework) if name != UNKNOWN_RECIPE]
        of_recipe = widths.get(UNKNOWN_RECIPE, 0.0) if UNKNOWN_RECIPE in self.unknowns else 0.0
        return equally_likely([one.widened(width_of_step(*own)) for one in self.intervals], of_recipe)

    def covered(self, widths: Widths) -> bool:
        return self.interval(widths).covers(self.measured_us)


@dataclass(frozen=True, kw_only=True, slots=True)
class Width:
    """The half-width in log time that an unknown needs, and the least and the greatest learnt with one source left out."""

    unknown: str
    width: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """Share of a class's intervals that contain the measurement, and their mean half-width in log time, each source's with the
    widths that the others teach."""

    judged_as: str
    configurations: int
    coverage: float | None
    log_half_width: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LearntWidths:
    widths: tuple[Width, ...]
    left_out: tuple[Coverage, ...]


def learn_widths(comparisons: Sequence[ComparedRun]) -> LearntWidths:
    """The width of each unknown, and how well the widths that other sources teach cover each source."""
    return learnt_widths([_known(one) for one in configurations(comparisons)])


def learnt_widths(known: Sequence[Known]) -> LearntWidths:
    """Widths as `learn_widths` gives them, of configurations whose unknowns are known."""
    sources = sorted({one.source for one in known})
    without = {source: _learnt([one for one in known if one.source != source]) for source in sources}
    return LearntWidths(
        widths=tuple(_width(name, width, without) for name, width in _learnt(known).items()),
        left_out=tuple(_coverages(known, without)),
    )


def _known(one: Comparison) -> Known:
    runs = candidates(one.row).runs
    run = runs[0]
    has = {
        EVERY: True,
        run.cluster.gpu.architecture: run.cluster.gpu.architecture not in LONG_KNOWN,
        FP8: run.precision == "fp8",
        MIXTURE: bool(run.model.experts),
        UNKNOWN_RECIPE: bool(unstated_recipe(runs)),
    }
    return Known(
        source=one.source,
        judged_as=one.judged_as,
        measured_us=one.measured_us,
        framework=run.execution.framework,
        unknowns=tuple(name for name, true in has.items() if true),
        intervals=tuple(_of_calls(run) for run in runs),
    )


def _of_calls(run: TrainingRun) -> Interval:
    """The interval that the bounds of calls and the particulars of the run leave."""
    predicted: Prediction = estimate(run)
    error = width_of_step(*particulars(run).values())
    return step_interval(predicted.median_us, predicted.timeline.order, predicted.ranks, error)


def _learnt(known: Sequence[Known]) -> dict[str, float]:
    """Unknown → width; frameworks, in any precision, before mixtures."""
    widths: dict[str, float] = {}
    dense = [one for one in known if MIXTURE not in one.unknowns]
    if dense:
        widths[EVERY] = _of_median_framework([one for one in dense if one.unknowns[-1] == EVERY])
    for name in dict.fromkeys(name for one in dense for name in one.unknowns if name != EVERY):
        _learn(name, [one for one in dense if one.unknowns[-1] == name], widths)
    for framework in sorted({one.framework for one in dense}):
        _learn(framework, [one for one in dense if one.framework == framework], widths)
    for name in (MIXTURE, UNKNOWN_RECIPE):
        _learn(name, [one for one in known if one.unknowns[-1] == name], widths)
    return widths


def _of_median_framework(known: Sequence[Known]) -> float:
    """The width that the median framework needs; 0 without any."""
    needs: dict[str, float] = {}
    for framework in {one.framework for one in known}:
        _learn(framework, [one for one in known if one.framework == framework], needs)
    return median(needs.values()) if needs else 0.0


def _learn(name: str, having: Sequence[Known], widths: dict[str, float]) -> None:
    """Set the least width that contains LEVEL of the configurations; nothing where there are none."""
    if having:
        enough = (width for width in TRIED if _weighted_coverage(having, {**widths, name: width}) >= LEVEL)
        widths[name] = next(enough, TRIED[-1])


def _weighted_coverage(known: Sequence[Known], widths: Widths) -> float:
    return mean_over_sources((one.source, one.covered(widths)) for one in known)


def _width(name: str, width: float, without: Mapping[str, Widths]) -> Width:
    others = [widths[name] for widths in without.values() if name in widths]
    return Width(unknown=name, width=width, low=min(others, default=width), high=max(others, default=width))


def _coverages(known: Sequence[Known], without: Mapping[str, Widths]) -> list[Coverage]:
    found = []
    for judged_as, own in sorted(grouped(known, lambda one: one.judged_as).items()):
        left_out = scores(
            Compared(predicted=one.interval(without[one.source]), measured=one.measured_us) for one in own
        )
        found.append(
            Coverage(
                judged_as=judged_as,
                configurations=left_out.rows,
                coverage=left_out.coverage,
                log_half_width=left_out.half_width_log,
            )
        )
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceNeed:
    """The width that one source's ratios need, and that of the other sources; widths are half-widths in log time."""

    source: str
    pairs: int
    width: float
    by_others: float
    """The width that the other sources teach; its own where there are none."""
    coverage_by_others: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LearntPlanSetting:
    """The learnt half-width in log time per differing setting, and the least and the greatest that a source needs."""

    width: float
    low: float
    high: float
    sources: tuple[SourceNeed, ...]


def learn_plan_setting(groups: Mapping[str, Sequence[MeasuredPlan]]) -> LearntPlanSetting:
    """The width of the ratio of two plans for each setting in which they differ. UserError where no group has plans enough to judge.

    Each source needs the least width at which its intervals of measured ratios contain 90 %. The median over the sources is
    learnt: pairs of one group share runs, so a long sweep of one stack says no more than a short one.
    """
    by_source = grouped(large_groups(groups).values(), lambda plans: plans[0].row.text("source_id"))
    if not by_source:
        raise UserError("--widths: no group of the table has three timed plans; give a table that has one with --truth")
    covered = {source: _covered(of_source) for source, of_source in by_source.items()}
    needs = {source: _need(of_width) for source, of_width in covered.items()}
    return LearntPlanSetting(
        width=median(needs.values()),
        low=min(needs.values()),
        high=max(needs.values()),
        sources=tuple(_source(source, by_source[source], covered[source], needs) for source in sorted(by_source)),
    )


def _covered(groups: Iterable[Sequence[MeasuredPlan]]) -> Callable[[float], float]:
    """The share of a source's measured ratios that a width contains."""
    scaled = [list(plans) for plans in groups]

    def at(width: float) -> float:
        found = [ratio_coverage([_with_width(plan, width) for plan in plans]) for plans in scaled]
        return sum(one.pairs * (one.ratio_coverage or 0.0) for one in found) / sum(one.pairs for one in found)

    return at


def _with_width(plan: MeasuredPlan, width: float) -> MeasuredPlan:
    contender = plan.contender
    return replace(
        plan, contender=replace(contender, per_setting=contender.per_setting * width / CONSTANTS["PLAN_SETTING"].value)
    )


def _need(covered: Callable[[float], float]) -> float:
    """The least width that contains LEVEL of the ratios, which a wider one never loses; the greatest tried where none does."""
    low, high = 0, len(TRIED) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if covered(TRIED[middle]) >= LEVEL else (middle + 1, high)
    return TRIED[low]


def _source(
    source: str,
    groups: Sequence[Sequence[MeasuredPlan]],
    covered: Callable[[float], float],
    needs: Mapping[str, float],
) -> SourceNeed:
    by_others = median([need for other, need in needs.items() if other != source] or [needs[source]])
    timed = [len(that_ran(plans)) for plans in groups]
    return SourceNeed(
        source=source,
        pairs=sum(count * (count - 1) // 2 for count in timed),
        width=needs[source],
        by_others=by_others,
        coverage_by_others=covered(by_others),
    )


def plan_setting_json(learnt: LearntPlanSetting) -> dict[str, Any]:
    return {"version": version_of("learn-plan-setting"), **asdict(learnt)}
