"""The order of measured plans judged: agreement, launches, feasibility, and what needs no prediction beside it."""

import math
from collections.abc import Sequence

import pytest

from predict.interval import Interval
from predict.memory.estimate import Verdict
from predict.plan_search.ties import Contender
from predict.validation.published_row import PublishedRow
from predict.validation.ranking import (
    MeasuredPlan,
    agreement,
    best_of_random_regret,
    by_prediction,
    by_rule,
    by_time,
    following,
    judged,
    mean_over_groups,
    measured_plans,
    random_launches,
    random_regret,
    ratio_coverage,
)
from tests.predict.validation.published_rows import row


def plan(measured: float | None, predicted: float, verdict: Verdict = "FITS", **cells: str) -> MeasuredPlan:
    return MeasuredPlan(
        row=PublishedRow(cells={"row_id": "a", "recompute": "none", "mbs": "1", "tp": "1", "pp": "1"} | cells),
        settings=(),
        measured=math.inf if measured is None else measured,
        predicted=Interval(median=predicted, low=0.9 * predicted, high=1.1 * predicted),
        contender=Contender(value=predicted, repeats=0.05),
        verdict=verdict,
        fits_probability={"FITS": 0.97, "AT RISK": 0.7, "OOM": 0.01}[verdict],
    )


def test_agreement_is_kendall_s_tau_of_pairs_that_are_apart() -> None:
    # 100 and 103 are as good as equal; of the other five pairs, 120 before 110 is wrong
    plans = [plan(100, 10), plan(103, 9), plan(110, 13), plan(120, 12)]
    found = agreement(plans, by_time)
    assert (found.pairs, found.tau) == (5, pytest.approx(3 / 5))


def test_a_tied_pair_weighs_as_in_tau_b() -> None:
    found = agreement([plan(100, 10), plan(120, 10), plan(150, 11)], by_time)
    assert found.tau == pytest.approx(2 / math.sqrt(2 * 3))


def test_plans_without_a_time_make_no_pair() -> None:
    assert agreement([plan(100, 10), plan(None, 5)], by_time).tau is None


def test_a_class_holds_plans_of_the_same_kernels_and_recomputation() -> None:
    plans = [plan(100, 12, recompute="none"), plan(130, 11, recompute="full"), plan(160, 13, recompute="full")]
    assert agreement(plans, by_time).tau == pytest.approx(1 / 3)
    assert agreement(plans, by_time, same_kernels=True).pairs == 1
    assert agreement(plans, by_time, same_kernels=True).tau == 1


def test_a_plan_out_of_memory_costs_a_launch() -> None:
    plans = [plan(100, 12), plan(130, 11), plan(None, 10), plan(101.5, 13)]
    found = following(plans, by_prediction)
    assert (found.oom_before, found.regret, found.launches) == (1, pytest.approx(0.3), 3)


def test_plans_said_not_to_fit_are_launched_last() -> None:
    plans = [plan(100, 10, "OOM"), plan(130, 11), plan(140, 12, "AT RISK")]
    found = following(plans, by_prediction)
    assert (found.regret, found.launches) == (pytest.approx(0.3), 3)


def test_random_plans_have_expected_regrets() -> None:
    plans = [plan(100, 1), plan(200, 1), plan(300, 1), plan(None, 1)]
    assert random_regret(plans) == pytest.approx(1.0)
    # of the three pairs, two hold the best and one the second
    assert best_of_random_regret(plans, drawn=2) == pytest.approx((100 + 100 + 200) / 3 / 100 - 1)
    assert best_of_random_regret(plans) == 0
    assert random_launches(plans) == (4 + 1) / (1 + 1)


def test_the_rule_takes_fast_kernels_then_no_recomputation_then_small_microbatches() -> None:
    best_first = [
        plan(1, 1, attn_kernel="flash2", rms_kernel="1"),
        plan(1, 1, attn_kernel="flash2", rms_kernel="0"),
        plan(1, 1, attn_kernel="flash", tp="2"),
        plan(1, 1, attn_kernel="flash", tp="8"),
        plan(1, 1, attn_kernel="flash", mbs="2"),
        plan(1, 1, attn_kernel="flash", recompute="full"),
        plan(1, 1, attn_kernel="torch"),
    ]
    listed = best_first[::-1]
    assert sorted(listed, key=by_rule) == best_first


def test_feasibility_is_a_share_of_what_was_measured() -> None:
    plans = [plan(100, 90), plan(110, 99, "OOM"), plan(130, 117), plan(None, 1, "OOM"), plan(None, 1, "AT RISK")]
    (scores,), small = judged({"g": plans, "two": plans[:2]})
    assert (scores.oom_recall, scores.false_oom, small) == (0.5, pytest.approx(1 / 3), 1)
    assert (scores.bias, scores.coverage) == (pytest.approx(-0.1), 0)
    means = mean_over_groups([scores])
    assert (means["oom_recall"], means["tau"]) == (0.5, 1)


def test_intervals_of_ratios_hold_the_measured_ratio_or_do_not() -> None:
    """Half-width 5 %: of 100, 104 and 120 predicted, the first two are tied, and measured as predicted; the third is not."""
    found = ratio_coverage([plan(100, 100), plan(104, 104), plan(150, 120), plan(None, 90)])
    assert (found.pairs, found.ratio_coverage) == (3, pytest.approx(1 / 3))
    assert (found.tied_pairs, found.tie_coverage) == (1, 1.0)
    assert ratio_coverage([plan(100, 100), plan(None, 100)]).ratio_coverage is None


def names_of(groups: dict[str, list[MeasuredPlan]]) -> dict[str, int]:
    return {name: len(plans) for name, plans in groups.items()}


def rows_of(*changes: dict[str, str]) -> Sequence[PublishedRow]:
    return [row(**one) for one in changes]


def test_groups_are_those_of_the_table_or_of_rows_that_differ_in_the_plan_alone() -> None:
    named, _ = measured_plans(rows_of({"group": "x"}, {"group": "x", "tp": "4"}, {"group": "y"}))
    assert names_of(named) == {"x": 2, "y": 1}
    found, left_out = measured_plans(rows_of({}, {"row_id": "b", "tp": "4"}, {"row_id": "c", "gbs": "8"}, {"tp": "0"}))
    assert names_of(found) == {"a": 2, "c": 1}
    assert left_out == ["a: tp: 0"]


def test_a_plan_listed_twice_counts_once_and_ran_if_it_ever_did() -> None:
    groups, _ = measured_plans(rows_of({}, {"step_time_s": "1.44"}, {"status": "oom", "step_time_s": ""}))
    ((only,),) = groups.values()
    assert only.measured_us == pytest.approx(1.43e6)
