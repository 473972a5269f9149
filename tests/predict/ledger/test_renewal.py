"""Failures at a constant rate: identities of renewal processes, Erlang's formula, and draws beside the closed form."""

import heapq
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predict.ledger import renewal
from predict.ledger.renewal import JobTimes, Repairs, best_between, draw_failures, factors, young

TIMES = JobTimes(work=800, between=2.0, save=0.05, recover=0.4, rate=0.08)
REPAIRS = Repairs(nodes=64, node_share=0.7, hours=20.0, spares=1)
JOBS = st.builds(
    JobTimes,
    work=st.floats(50, 3000),
    between=st.floats(0.1, 5),
    save=st.floats(0.001, 0.2),
    recover=st.floats(0.01, 1),
    rate=st.floats(1e-4, 0.5),
    rate_width=st.sampled_from([0.0, 0.5, 1.3]),
)


@given(JOBS, st.floats(0.01, 100))
def test_hours_scale_with_the_unit_of_time(times: JobTimes, unit: float) -> None:
    other = replace(
        times,
        work=times.work * unit,
        between=times.between * unit,
        save=times.save * unit,
        recover=times.recover * unit,
        rate=times.rate / unit,
    )
    assert other.mean() == pytest.approx(times.mean() * unit, rel=1e-9)


@given(JOBS, st.integers(2, 5))
def test_intervals_renew_so_that_twice_the_work_takes_twice_the_time(times: JobTimes, many: int) -> None:
    whole = replace(times, work=times.between * 10)
    assert replace(whole, work=whole.work * many).mean() == pytest.approx(many * whole.mean(), rel=1e-9)


@given(JOBS, st.sampled_from(["rate", "save", "recover", "work"]))
def test_more_of_anything_takes_longer(times: JobTimes, what: str) -> None:
    assert replace(times, **{what: 1.2 * getattr(times, what)}).mean() > times.mean()


@given(JOBS)
def test_rare_failures_cost_half_an_interval_and_a_recovery(times: JobTimes) -> None:
    """The first order of Daly's form, from which Young's rule follows."""
    rare = replace(times, rate=1e-6 / times.between, rate_width=0.0)
    never = replace(rare, rate=0.0).mean()
    each = (rare.work / rare.intervals + rare.save) / 2 + rare.recover
    assert rare.mean() - never == pytest.approx(rare.rate * never * each, rel=1e-3)


def test_no_failures_leave_the_work_and_its_saves() -> None:
    assert replace(TIMES, rate=0.0).mean() == 800 + 400 * 0.05


@pytest.mark.parametrize("width", [0.0, 1.3])
@pytest.mark.parametrize(
    "repairs",
    [replace(REPAIRS, hours=0.0), REPAIRS, replace(REPAIRS, replica_nodes=2)],
    ids=["at once", "wait", "shrink"],
)
def test_draws_have_the_mean_of_the_closed_form(width: float, repairs: Repairs) -> None:
    times = replace(TIMES, rate_width=width, repairs=repairs)
    work = np.full(10_000, times.work)
    drawn = draw_failures(np.random.default_rng(1), times, work, np.full(10_000, times.intervals))
    hours = work + times.intervals * times.save + drawn.fewer_replicas + drawn.lost + drawn.recovering + drawn.waiting
    assert hours.mean() == pytest.approx(times.mean(), rel=0.01)


def test_losses_too_many_to_draw_one_by_one_have_their_mean_and_width(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> renewal.Hours:
        often = replace(TIMES, rate=0.5)
        return draw_failures(np.random.default_rng(1), often, np.full(2_000, 800.0), np.full(2_000, 400.0)).lost

    one_by_one = lost()
    monkeypatch.setattr(renewal, "MOST_LOSSES", 0)
    together = lost()
    assert together.mean() == pytest.approx(one_by_one.mean(), rel=0.01)
    assert together.std() == pytest.approx(one_by_one.std(), rel=0.1)


def test_as_many_failures_as_the_rate_says_of_the_time_that_the_job_runs() -> None:
    """Wald's identity: failures are Poisson in the hours that are not waited."""
    drawn = draw_failures(np.random.default_rng(1), TIMES, np.full(10_000, 800.0), np.full(10_000, 400.0))
    assert drawn.failures.mean() == pytest.approx(TIMES.rate * TIMES.mean(), rel=0.01)


@pytest.mark.parametrize(("spares", "load", "blocked"), [(0, 3.0, 1.0), (1, 1.0, 0.5), (10, 5.0, 0.018385)])
def test_waiting_is_erlang_s_loss_formula(spares: int, load: float, blocked: float) -> None:
    repairs = Repairs(nodes=8, node_share=1.0, hours=10.0, spares=spares)
    assert repairs.waited(np.array([load / 10])) == pytest.approx([blocked], rel=1e-4)


def test_waiting_is_that_of_nodes_broken_and_mended_one_by_one() -> None:
    random, clock, waited, back = np.random.default_rng(0), 0.0, 0.0, list[float]()
    rate = 0.05
    repairs = Repairs(nodes=64, node_share=1.0, hours=20.0, spares=1)
    while clock < 400_000:
        clock += random.exponential(1 / rate)
        heapq.heappush(back, clock + waited + random.exponential(repairs.hours))
        while back and back[0] <= clock + waited:
            heapq.heappop(back)
        if len(back) > repairs.spares:
            waited += heapq.heappop(back) - clock - waited
    rates = np.array([rate])
    assert waited / clock == pytest.approx(float(rates[0] * repairs.waited(rates)[0] * repairs.wait_hours), rel=0.05)


def test_missing_nodes_are_what_a_poisson_number_has_beyond_the_spares() -> None:
    repairs = replace(REPAIRS, replica_nodes=2, spares=2)
    rates = np.array([0.1])
    broken = np.random.default_rng(0).poisson(0.1 * 0.7 * 20, 400_000)
    assert repairs.missing(rates)[0] == pytest.approx(np.maximum(0, broken - 2).mean() * 2 / 64, rel=0.01)


@given(spares=st.integers(0, 20), hours=st.floats(0, 100))
def test_a_spare_more_never_waits_longer(spares: int, hours: float) -> None:
    times = replace(TIMES, repairs=replace(REPAIRS, spares=spares, hours=hours))
    assert replace(times, repairs=replace(times.repairs, spares=spares + 1)).mean() <= times.mean() * (1 + 1e-12)


def test_likely_rates_are_those_of_the_log_normal() -> None:
    made = factors(1.3)
    assert float(np.log(made).mean()) == pytest.approx(0, abs=1e-9)
    assert np.quantile(made, 0.95) == pytest.approx(math.exp(1.3), rel=0.1)
    assert factors(0.0).tolist() == [1.0]


@settings(max_examples=25)
@given(JOBS)
def test_the_best_time_between_saves_beats_its_neighbours(times: JobTimes) -> None:
    best = best_between(times)
    at = {factor: replace(times, between=min(times.work, best * factor)).mean() for factor in (0.5, 1.0, 2.0)}
    assert at[1.0] <= min(at.values()) * (1 + 1e-9)


def test_the_best_time_is_near_young_s_and_no_shorter_than_a_write() -> None:
    times: dict[str, Any] = {"work": 1000, "between": 1, "save": 0.02, "recover": 0.3, "rate": 0.2}
    assert best_between(JobTimes(**times)) == pytest.approx(young(JobTimes(**times)), rel=0.1)
    assert best_between(JobTimes(**times), least=3.0) == pytest.approx(3.0)
    assert young(replace(JobTimes(**times), rate=0.0)) == math.inf
