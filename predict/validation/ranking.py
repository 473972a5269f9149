"""The order in which predictions put measured plans, and which they say fit: `predict validate ranking`."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from statistics import fmean, median
from typing import Any, TypeAlias

from predict import estimate
from predict.interval import equally_likely
from predict.memory.estimate import VERDICTS, Verdict
from predict.plan_search.options import OBJECTIVES
from predict.plan_search.ties import Contender, contender, ratio
from predict.run.execution import Execution
from predict.run.plan import Batch, Plan
from predict.serialise import as_json, version_of
from predict.validation.compared import Compared, grouped, mean_or_none, reliability, scores
from predict.validation.published_row import NotExpressibleError, PublishedRow
from predict.validation.published_runs import candidates
from predict.validation.published_scores import DISTINCT
from sampling.errors import InfeasibleError
from sampling.progress import Progress, silent

# The measured plans of a table, each with its predicted time and memory verdict, in groups that a user would choose within.

Settings: TypeAlias = tuple[Plan, Batch, Execution]
TIMED, OUT_OF_MEMORY = "ok", "oom"
SAME_IN_A_GROUP = (
    "source_id", "framework", "gpu", "gpu_mem_gb", "n_gpus", "gpus_per_node", "precision", "seq_len", "gbs", "model",
    "layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "experts", "topk", "moe_ffn", "shared_experts",
)  # fmt: skip
"""Columns that agree where rows differ in the plan alone: the work, the GPUs and the software."""
KERNELS = ("attn_kernel", "rms_kernel", "recompute")
"""Columns that make the class within which plans differ in how they divide the work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPlan(Compared):
    """One plan. Its measured time, in µs, is infinite where it ran out of memory."""

    row: PublishedRow
    settings: tuple[Settings, ...]
    """Plan, batch and execution of the runs that the row may stand for."""
    contender: Contender
    """The plan as a search compares it with others."""
    verdict: Verdict
    fits_probability: float

    @property
    def ran(self) -> bool:
        return self.measured < math.inf

    @property
    def said_to_fit(self) -> bool:
        """Whether it is said to be more likely to fit than not."""
        return self.fits_probability >= 0.5

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(map(self.row.text, KERNELS))


def measured_plans(
    rows: Sequence[PublishedRow], progress: Progress = silent
) -> tuple[dict[str, list[MeasuredPlan]], list[str]]:
    """The distinct plans of each group, by the group's name, and why each other row is left out.

    The column `group` names groups; without one, rows that agree in SAME_IN_A_GROUP make a group, named after its first row.
    """
    plans, left_out = [], []
    for done, row in enumerate(rows, 1):
        try:
            plans.append(_plan(row))
        except (NotExpressibleError, InfeasibleError) as error:
            left_out.append(f"{row.row_id}: {error}")
        progress(done, len(rows), row.row_id)
    groups = grouped(plans, lambda plan: plan.row.text("group") or tuple(map(plan.row.text, SAME_IN_A_GROUP)))
    return {_name(key, own): _distinct(own) for key, own in groups.items()}, left_out


def _name(key: Hashable, plans: Sequence[MeasuredPlan]) -> str:
    return key if isinstance(key, str) else plans[0].row.row_id


def _plan(row: PublishedRow) -> MeasuredPlan:
    status = row.text("status") or TIMED
    if status not in (TIMED, OUT_OF_MEMORY):
        raise NotExpressibleError(f"status: {status} says nothing of time or memory")
    runs = candidates(row, timed=status == TIMED).runs
    estimates = [estimate(run) for run in runs]
    predicted = equally_likely([one.step_time for one in estimates])
    nearest = min(estimates, key=lambda one: abs(one.median_us - predicted.median_us))
    return MeasuredPlan(
        row=row,
        settings=tuple((run.plan, run.batch, run.execution) for run in runs),
        measured=row.measured_us or math.nan if status == TIMED else math.inf,
        predicted=predicted,
        contender=contender(nearest, OBJECTIVES["time"]),
        # a setting that is not published may be the one that fits
        verdict=min((one.memory.verdict for one in estimates), key=VERDICTS.index),
        fits_probability=max(one.memory.fits_probability for one in estimates),
    )


def _distinct(plans: Sequence[MeasuredPlan]) -> list[MeasuredPlan]:
    """Plans listed more than once, each once, by the median of its times; it ran out of memory if it never ran."""
    return [_once(same) for same in grouped(plans, lambda plan: plan.settings).values()]


def _once(same: Sequence[MeasuredPlan]) -> MeasuredPlan:
    return replace(same[0], measured=median(_times(same) or [math.inf]))


def that_ran(plans: Iterable[MeasuredPlan]) -> list[MeasuredPlan]:
    """The plans that have a time, in order of it."""
    return sorted((plan for plan in plans if plan.ran), key=lambda plan: plan.measured)


def _times(plans: Iterable[MeasuredPlan]) -> list[float]:
    return [plan.measured for plan in that_ran(plans)]


# Figures of an order of plans: how it agrees with their measured times, and what following it costs.

NEAR_BEST = 1.02
"""A plan within 2 % of the best is as good: repeats of one run differ by as much."""
Order = Callable[[MeasuredPlan], tuple[float, ...]]
"""The key that an order sorts plans by; equal keys are ties."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Following:
    """The launches of plans in an order, one after the other; a plan that runs out of memory costs one too."""

    regret: float
    """Time of the first plan that runs over the best plan's, less 1."""
    oom_before: int
    """Plans that run out of memory before it."""
    launches: int
    """Launches until one is within NEAR_BEST of the best."""


def following(plans: Sequence[MeasuredPlan], order: Order) -> Following:
    """The launches of plans sorted by `order`; one of them at least has a time. Ties are launched as they are listed."""
    times = [plan.measured for plan in sorted(plans, key=order)]
    best = best_us(plans)
    first = next(place for place, time in enumerate(times) if time < math.inf)
    return Following(
        regret=times[first] / best - 1,
        oom_before=first,
        launches=1 + next(place for place, time in enumerate(times) if time <= NEAR_BEST * best),
    )


def best_us(plans: Sequence[MeasuredPlan]) -> float:
    return min(plan.measured for plan in plans)


def by_prediction(plan: MeasuredPlan) -> tuple[float, ...]:
    """Plans that are said to fit by predicted time, then the others by predicted time."""
    return (not plan.said_to_fit, plan.predicted.median_us)


def by_time(plan: MeasuredPlan) -> tuple[float, ...]:
    return (plan.predicted.median_us,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Pairs more than 5 % apart as an order has them. `tau` is Kendall's τ-b, None without an ordered pair."""

    pairs: int
    tau: float | None


def agreement(plans: Sequence[MeasuredPlan], order: Order, *, same_kernels: bool = False) -> Agreement:
    """τ-b = (C − D) / √((C + D)(C + D + T)), T the pairs tied by the order (Kendall, Biometrika 33, 1945); no measured pair is tied.

    `same_kernels`: only pairs that agree in kernels and recomputation.
    """
    right = wrong = tied = 0
    for faster, slower in _distinct_pairs(plans):
        if same_kernels and faster.kernels != slower.kernels:
            continue
        first, second = order(faster), order(slower)
        tied += first == second
        right += first < second
        wrong += second < first
    pairs = right + wrong + tied
    ordered = right + wrong
    return Agreement(pairs=pairs, tau=(right - wrong) / math.sqrt(ordered * pairs) if ordered else None)


def _distinct_pairs(plans: Sequence[MeasuredPlan]) -> Iterator[tuple[MeasuredPlan, MeasuredPlan]]:
    """Pairs of plans that ran more than 5 % apart, the faster one first."""
    for faster, slower in combinations(that_ran(plans), 2):
        if slower.measured > DISTINCT * faster.measured:
            yield faster, slower


# Choices that need no prediction: plans at random, and a rule of four lines.

SAMPLED = 5
FASTEST_FIRST = ("flash2", "flash", "", "megatron", "torch")
"""Attention kernels; a table without the column has one kernel."""
LEAST_FIRST = ("none", "selective", "", "full")
"""Recomputation; blank is not published."""


def random_regret(plans: Sequence[MeasuredPlan]) -> float:
    """The expected regret of one plan drawn among those that run."""
    return fmean(_times(plans)) / best_us(plans) - 1


def best_of_random_regret(plans: Sequence[MeasuredPlan], drawn: int = SAMPLED) -> float:
    """The expected regret of the best of `drawn` plans among those that run, drawn without repetition.

    The plan at place i of n in order of time is the best in C(n − i − 1, drawn − 1) of C(n, drawn) draws.
    """
    times = _times(plans)
    drawn = min(drawn, len(times))
    ways = comb(len(times), drawn)
    mean = sum(time * comb(len(times) - place - 1, drawn - 1) for place, time in enumerate(times)) / ways
    return mean / times[0] - 1


def random_launches(plans: Sequence[MeasuredPlan]) -> float:
    """The expected launches of all plans in random order until one is near the best: (N + 1) / (K + 1) for K near it of N."""
    near = sum(time <= NEAR_BEST * best_us(plans) for time in _times(plans))
    return (len(plans) + 1) / (near + 1)


def by_rule(plan: MeasuredPlan) -> tuple[float, ...]:
    """Fastest kernels, then least recomputation, then the smallest microbatch, then the smallest tp · pp, and tp."""
    row = plan.row
    kernel, recompute = row.text("attn_kernel"), row.text("recompute")
    tp, pp = row.number("tp") or 1.0, row.number("pp") or 1.0
    return (
        FASTEST_FIRST.index(kernel),
        row.text("rms_kernel") == "0",
        LEAST_FIRST.index(recompute) if recompute in LEAST_FIRST else len(LEAST_FIRST),
        row.number("mbs") or 1.0,
        tp * pp,
        tp,
    )


# Intervals of the ratio of two plans' times, by which a search calls plans ties, compared with measured ratios.


@dataclass(frozen=True, kw_only=True, slots=True)
class RatioCoverage:
    """Shares of pairs of plans that ran whose measured ratio lies in the 90 % interval of the predicted one; None without a pair."""

    pairs: int
    ratio_coverage: float | None
    tied_pairs: int
    """Pairs whose interval holds 1: ties, as a search calls them."""
    tie_coverage: float | None


def ratio_coverage(plans: Sequence[MeasuredPlan]) -> RatioCoverage:
    """The coverage over all pairs, where the plan of a pair that is predicted to be faster stands for the best one."""
    by_value = sorted((plan for plan in plans if plan.ran), key=lambda plan: plan.contender.value)
    inside, tied_inside = [], []
    for first, second in combinations(by_value, 2):
        predicted = ratio(first.contender, second.contender)
        inside.append(predicted.covers(second.measured / first.measured))
        if predicted.tied:
            tied_inside.append(inside[-1])
    return RatioCoverage(
        pairs=len(inside),
        ratio_coverage=mean_or_none(inside),
        tied_pairs=len(tied_inside),
        tie_coverage=mean_or_none(tied_inside),
    )


# Groups of measured plans judged: order, launches, feasibility and level, next to choices that need no prediction.

LEAST_TIMED = 3
"""Timed plans that make a group: the order of two is a coin's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderScores:
    """An order's figures, as fractions; None without a pair to judge."""

    tau: float | None
    tau_same_class: float | None
    regret: float
    oom_before: float
    launches: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupScores:
    """A group's figures. `oom_recall` is the share of plans out of memory that are said not to fit, `false_oom` the share of plans
    that ran; None where there are none."""

    group: str
    plans: int
    timed: int
    pairs: int
    pairs_same_class: int
    best_us: float
    random_regret: float
    best_of_five_regret: float
    random_launches: float
    oom_recall: float | None
    false_oom: float | None
    bias: float | None
    coverage: float | None
    ratios: RatioCoverage
    ours: OrderScores
    rule: OrderScores
    """The four lines of `by_rule`; its regret assumes that one knows what fits, its launches do not."""


def judged(groups: Mapping[str, Sequence[MeasuredPlan]]) -> tuple[list[GroupScores], int]:
    """The figures of each group of LEAST_TIMED timed plans or more, and how many other groups there are."""
    large = large_groups(groups)
    return [_scores(name, plans) for name, plans in large.items()], len(groups) - len(large)


def large_groups(groups: Mapping[str, Sequence[MeasuredPlan]]) -> dict[str, Sequence[MeasuredPlan]]:
    """The groups of LEAST_TIMED timed plans or more."""
    return {name: plans for name, plans in groups.items() if len(that_ran(plans)) >= LEAST_TIMED}


def _scores(group: str, plans: Sequence[MeasuredPlan]) -> GroupScores:
    ran = that_ran(plans)
    times = scores(ran)
    return GroupScores(
        group=group,
        plans=len(plans),
        timed=len(ran),
        pairs=agreement(plans, by_time).pairs,
        pairs_same_class=agreement(plans, by_time, same_kernels=True).pairs,
        best_us=best_us(plans),
        random_regret=random_regret(plans),
        best_of_five_regret=best_of_random_regret(plans),
        random_launches=random_launches(plans),
        oom_recall=mean_or_none(not plan.said_to_fit for plan in plans if not plan.ran),
        false_oom=mean_or_none(not plan.said_to_fit for plan in ran),
        bias=times.bias,
        coverage=times.coverage,
        ratios=ratio_coverage(plans),
        ours=_order_scores(plans, by_time, following(plans, by_prediction)),
        rule=_order_scores(plans, by_rule, following(plans, by_rule)),
    )


def _order_scores(plans: Sequence[MeasuredPlan], order: Order, followed: Following) -> OrderScores:
    return OrderScores(
        tau=agreement(plans, order).tau,
        tau_same_class=agreement(plans, order, same_kernels=True).tau,
        regret=followed.regret,
        oom_before=followed.oom_before,
        launches=followed.launches,
    )


OF_ORDER = ("tau", "tau_same_class", "regret", "oom_before", "launches")
MEANS = (
    *OF_ORDER,
    *("within_two_launches", "oom_recall", "false_oom", "bias", "coverage", "ratio_coverage", "tie_coverage"),
    *("random_regret", "best_of_five_regret", "random_launches"),
    *(f"rule_{name}" for name in OF_ORDER),
)


def mean_over_groups(groups: Sequence[GroupScores]) -> dict[str, float | None]:
    """Means over the groups: each group is one choice that a user makes, however many plans were tried."""
    figures = [_group_json(one) | {"within_two_launches": one.ours.launches <= 2} for one in groups]
    return {name: mean_or_none(one[name] for one in figures if one[name] is not None) for name in MEANS}


def ranking_json(
    groups: Sequence[GroupScores], small: int, left_out: Sequence[str], plans: Iterable[MeasuredPlan] = ()
) -> dict[str, Any]:
    """Fractions, not percent; null where there is nothing to judge. `plans` are those of all groups."""
    return {
        "version": version_of("validate-ranking"),
        "summary": mean_over_groups(groups),
        "groups": [_group_json(one) for one in groups],
        "reliability": as_json(reliability((plan.fits_probability, plan.ran) for plan in plans)),
        "smaller_groups": small,
        "left_out": list(left_out),
    }


def _group_json(one: GroupScores) -> dict[str, Any]:
    figures = as_json(one)
    ours, rule, ratios = (figures.pop(name) for name in ("ours", "rule", "ratios"))
    of_ratios = {name: ratios[name] for name in ("ratio_coverage", "tied_pairs", "tie_coverage")}
    return {**figures, **of_ratios, **ours, **{f"rule_{name}": value for name, value in rule.items()}}
