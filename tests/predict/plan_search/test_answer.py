"""The order of the plans in an answer: by time, but for those at risk of not fitting."""

from types import SimpleNamespace
from typing import Any

from predict.plan_search.answer import Estimated, sure_first
from predict.plan_search.ties import REPEATS, Contender


def plan(value: float, verdict: str, *, composition_error: float = 0.0) -> Estimated:
    prediction: Any = SimpleNamespace(memory=SimpleNamespace(verdict=verdict))
    ranked: Any = None
    contender = Contender(value=value, repeats=REPEATS, composition_error=composition_error)
    return Estimated(ranked=ranked, others=(), prediction=prediction, contender=contender)


def order(*plans: Estimated) -> list[float]:
    return [each.contender.value for each in sure_first(plans)]


def test_plans_that_fit_surely_stand_by_their_time_though_some_are_tied_and_faster_ones_are_not() -> None:
    tied = plan(1.06, "FITS", composition_error=0.1)
    assert order(plan(1.0, "FITS"), plan(1.05, "FITS"), tied) == [1.0, 1.05, 1.06]


def test_plans_at_risk_stand_behind_those_that_fit_surely_and_may_be_as_good() -> None:
    plans = [plan(1.0, "AT RISK"), plan(1.005, "FITS"), plan(1.01, "AT RISK"), plan(1.015, "FITS")]
    assert order(*plans, plan(1.2, "FITS")) == [1.005, 1.015, 1.0, 1.01, 1.2]


def test_plans_at_risk_stand_first_where_none_that_fits_surely_may_be_as_good() -> None:
    assert order(plan(1.0, "AT RISK"), plan(1.01, "AT RISK"), plan(1.2, "FITS")) == [1.0, 1.01, 1.2]
