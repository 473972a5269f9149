"""Questions on a server that is to be set up: the rate that keeps objectives, and what tokens cost."""

from math import exp, inf

import numpy as np
import pytest

from predict.interval import Interval
from predict.ledger.training_cost import parse_price
from predict.reports.serving import answer_text
from predict.reports.serving_step import CAPACITY_BELOW
from predict.reports.text import show
from predict.serving import loaded_server
from predict.serving.latency import RequestTimes
from predict.serving.loaded_server import LoadedServer, bisected
from predict.serving.questions import (
    Questions,
    ServiceObjective,
    answer,
    cost_at_rate,
    cost_of_load,
    met_share,
    parse_objectives,
    rate_of_objectives,
    rate_of_slow_first_tokens,
)
from predict.serving.simulate import OVERLOAD
from predict.serving.token_gaps import TokenGaps
from sampling.errors import InfeasibleError, UserError
from tests.predict.serving.servers import loaded

FEW_PLACES = ("engine.max_num_seqs=8", "load.output=12", "load.prompt=200", "load.duration_s=5")


@pytest.fixture(scope="module")
def server() -> LoadedServer:
    return loaded(*FEW_PLACES)


@pytest.fixture(scope="module")
def capacity(server: LoadedServer) -> Interval:
    return server.capacity()


def test_conversations_that_pause_leave_their_places_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The capacity is a rate, whatever its conversations wait for; a loop of so many of them once idled while they paused."""
    monkeypatch.setattr(loaded_server, "CONVERSED_S", 150.0)
    talks = ("load.prompt=4000", "load.output=2", "load.prefix.turns=2", "load.prefix.pause_s=20")
    one = loaded(*talks, "engine.max_num_seqs=8", "load.duration_s=30")
    capacity = one._most_that_settles(one.tables[1])
    below, above = one.at_rates([0.9 * capacity, 1.3 * capacity])
    assert (below.grows, above.grows) == (False, True)
    assert rate_of_slow_first_tokens(one, capacity) <= capacity


def test_the_capacity_of_conversations_is_the_rate_that_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    one = loaded("load.prefix.turns=2", *FEW_PLACES)
    rates = iter((3.0, 2.0, 1.0))
    monkeypatch.setattr(one, "_most_that_settles", lambda tables: next(rates))
    capacity = one.capacity()
    assert capacity.median == 2 and capacity.low <= 1 and capacity.high >= 3


def times(ttft: list[float], tpot: list[float]) -> RequestTimes:
    """Requests of two tokens; a TPOT of 0 stands for one of a single token."""
    first, further = np.array(ttft), np.array(tpot)
    gaps = TokenGaps.of_steps(further[further > 0], np.ones(int((further > 0).sum())))
    return RequestTimes(e2e=first + further, ttft=first, tpot=further, has_tpot=further > 0, gaps=gaps)


def test_an_objective_bounds_the_mean_or_a_percentile() -> None:
    both = parse_objectives(["ttft_p90=1s", "TPOT_mean <= 50ms"])
    assert both == (
        ServiceObjective(figure="ttft", percentile=90.0, limit_us=1e6),
        ServiceObjective(figure="tpot", percentile=None, limit_us=5e4),
    )
    seen = times([0.5e6] * 8 + [3e6] * 2, [4e4] * 8 + [6e4, 0.0])
    assert [one.holds(seen) for one in both] == [False, True]  # a TTFT of 3 s; a mean of 42 ms over nine requests
    assert met_share(both, seen) == pytest.approx(0.8)


def test_all_objectives_that_are_none_are_reported_at_once() -> None:
    wrong = ["tft_p90=1s", "ttft_p90=1", "ttft_p0=1s", "e2e_p100=1s", "ttft_p90", "tpot_mean=-3ms"]
    with pytest.raises(UserError) as error:
        parse_objectives([*wrong, "ttft_p9=1s", "ttft_p9=2s"])
    lines = str(error.value).splitlines()
    assert all(repr(text) in line for text, line in zip(wrong, lines, strict=False))
    assert "did you mean 'ttft_p90'?" in lines[0] and "'1' is not a time above 0 with its unit" in lines[1]
    assert lines[-1] == "--slo: ttft_p9 is given twice; give it once"


def test_bisection_finds_an_edge() -> None:
    found = bisected(lambda rate: rate <= 3.3, 0.0, 10.0)
    assert found.holds <= 3.3 < found.fails
    assert found.fails - found.holds < 0.05


def test_a_tighter_objective_holds_at_a_lower_rate_and_binds(server: LoadedServer, capacity: Interval) -> None:
    loose, tight = (
        rate_of_objectives(server, parse_objectives([text]), capacity) for text in ("e2e_p90=60s", "tpot_p90=9ms")
    )
    assert (loose.rate, loose.binding) == (capacity, ())
    assert tight.rate.low < tight.rate.median < tight.rate.high <= capacity.high
    assert [one.name for one in tight.binding] == ["tpot_p90"]
    assert 0.85 <= tight.met_share <= 0.97
    assert tight.outcome.latency.tpot.percentiles_us[90] == pytest.approx(9e3, rel=0.05)
    assert tight.servers_for(2.5 * tight.rate.median).with_spare == 4


def test_an_objective_that_no_rate_keeps_is_infeasible(server: LoadedServer, capacity: Interval) -> None:
    with pytest.raises(InfeasibleError, match=r"no rate keeps it: .* tpot_mean is .* ms, above 1.00 ms"):
        rate_of_objectives(server, parse_objectives(["tpot_mean=1ms"]), capacity)


def test_tokens_cost_what_the_gpus_cost_while_they_are_made() -> None:
    """$3.6 per hour are $0.001 per second; at 10 requests of 50 tokens per second that is $2 per million tokens."""
    one = loaded()
    (outcome,) = one.at_rates([10.0])
    rate = Interval(median=10.0, low=5.0, high=20.0)
    cost = cost_at_rate(one, outcome, rate, parse_price("$3.6/gpu-h"))
    assert (cost.output.median, cost.output.low, cost.output.high) == pytest.approx((2.0, 1.0, 4.0))
    divided = cost.input_alone.median * 600 + cost.output_alone.median * 50
    assert divided == pytest.approx(cost.output.median * 50)
    assert 0 < cost.input_alone.median < cost.output_alone.median
    never = cost_at_rate(one, outcome, Interval(median=10.0, low=0.0, high=20.0), parse_price("3/gpu-h"))
    assert never.output.high == inf


def test_prompts_of_a_pool_of_their_own_cost_its_gpus() -> None:
    """3 of 4 GPUs compute prompts: $1.5 of the $2 per million tokens of answers, 50 for each prompt of 600."""
    (outcome,) = loaded().at_rates([10.0])
    pools = loaded("fleet.prefill_replicas=3", "fleet.replicas=1")
    cost = cost_at_rate(pools, outcome, Interval.exactly(10.0), parse_price("$0.9/gpu-h"))
    assert cost.output.median == pytest.approx(2.0)
    assert cost.input_alone.median == pytest.approx(1.5 * 50 / 600)
    assert cost.output_alone.median == pytest.approx(0.5)


def test_twice_the_gpus_cost_twice_as_much_at_the_same_load() -> None:
    price, costs = parse_price("2/gpu-h"), []
    for tp in (1, 2):
        one = loaded(f"placement.tp={tp}")
        costs.append(cost_of_load(one, one.as_configured(), price).output.median)
    assert costs[1] == pytest.approx(2 * costs[0], rel=0.02)


@pytest.mark.parametrize("rate", [0.05, 1.0])
def test_a_sparse_load_pays_for_the_time_between_its_requests(rate: float) -> None:
    """$3.6 per hour are $0.001 per second, over 50 tokens of each request."""
    one = loaded("load.duration_s=60")
    (outcome,) = one.at_rates([rate])
    cost = cost_of_load(one, outcome, parse_price("$3.6/gpu-h")).output
    assert (cost.low, cost.median, cost.high) == pytest.approx((20 / rate,) * 3)


def test_a_load_that_is_not_carried_costs_what_the_server_can_do() -> None:
    one = loaded("engine.max_num_seqs=8", "load.rate=200")
    loop = loaded("engine.max_num_seqs=8", "load.rate=0", "load.concurrency=8")
    outcome, full = one.as_configured(), loop.as_configured()
    assert outcome.grows
    assert outcome.answered.median < 100
    assert outcome.answered.low < outcome.answered.median < outcome.answered.high
    assert full.answered.median == full.latency.requests_per_s == pytest.approx(outcome.answered.median, rel=0.1)


def test_throughput_is_the_rate_of_arrivals_below_saturation() -> None:
    for rate in (2.0, 10.0):
        (outcome,) = loaded("load.duration_s=100").at_rates([rate])
        assert outcome.latency.requests_per_s == pytest.approx(rate, rel=0.02)


def test_goodput_over_rates_rises_and_falls(server: LoadedServer, capacity: Interval) -> None:
    """All requests meet the limits at a low rate; beyond the capacity few do, however many are answered."""
    asked = Questions(
        rates=(0.3 * capacity.median, 1.6 * capacity.median), objectives=parse_objectives(["ttft_p90=500ms"])
    )
    found = answer(server, asked)
    assert found.met_shares[0] > 0.99
    assert found.met_shares[1] < 0.5
    assert found.goodputs_per_s[0] == pytest.approx(0.3 * capacity.median, rel=0.02)
    assert found.goodputs_per_s[1] < 0.5 * capacity.median


def test_the_answer_says_why_a_capacity_may_be_far_lower_but_hardly_higher(
    server: LoadedServer, capacity: Interval, capsys: pytest.CaptureFixture[str]
) -> None:
    assert capacity.median / capacity.low > exp(OVERLOAD) > capacity.high / capacity.median
    show(answer_text(answer(server, Questions(capacity=True, slow_first_tokens=True))))
    said = " ".join(capsys.readouterr().out.split())
    assert CAPACITY_BELOW in said and "slow TTFT from" in said
