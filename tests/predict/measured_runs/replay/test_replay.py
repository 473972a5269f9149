"""A made trace replayed as itself and under other plans."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from predict import estimate, load
from predict.measured_runs.explain.explanation import explained
from predict.measured_runs.explain.measured import MeasuredRank, TracedStep
from predict.measured_runs.explain.predicted import PredictedStep, predicted_step
from predict.measured_runs.explain.read_traces import read_measured
from predict.measured_runs.replay.pace import CARRIED, MODELLED, REPEATS, REPLAYED, TraceFactors, paces
from predict.measured_runs.replay.replay import (
    FOLLOWS,
    OPERATORS,
    OTHERS_SHARE,
    REST,
    Replay,
    ReplayedPrices,
    ReplayedTerm,
    half_width,
    replayed,
    terms_of,
)
from predict.prices.open import open_prices
from predict.run.calibration_terms import NINETY
from predict.step.breakdown import HOST
from sampling.errors import UserError
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Gelu
from tests.predict.command import Command
from tests.predict.measured_runs.explain.made_traces import CONFIG, prediction, step_events, write


@pytest.fixture(scope="module")
def slow_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step whose operators take twice, and attention four times, what is predicted."""
    of = prediction()
    events = step_events(of, compute=2.0, attention=2.0)
    return write(tmp_path_factory.mktemp("slow"), [events, events])


def time_of(replay: Replay, origin: str) -> float:
    return replay.share(origin) * replay.median_us


def test_calls_of_the_traced_run_cost_what_they_did_and_the_rest_is_what_else_the_traced_step_takes(
    slow_step: TracedStep, tmp_path: Path
) -> None:
    run = load(CONFIG)
    replay = replayed(run, run, slow_step)
    assert time_of(replay, REPLAYED) == pytest.approx(slow_step.step_us, rel=0.01)
    assert replay.rest_us == pytest.approx(-time_of(replay, MODELLED), rel=0.02)  # of which this trace has nothing
    assert replay.share(FOLLOWS) == 0
    events = step_events(prediction(), compute=2.0, attention=2.0, idle_us=50_000.0)
    still = replayed(run, run, read_measured(write(tmp_path, [events, events]), run))
    assert still.rest_us - replay.rest_us == pytest.approx(50_000.0, rel=0.02)
    logged_us = 0.8 * slow_step.step_us
    assert replayed(run, run, replace(slow_step, logged_us=logged_us)).median_us == pytest.approx(logged_us)


@pytest.fixture(scope="module")
def slow_step(slow_trace: Path) -> TracedStep:
    return read_measured(slow_trace, load(CONFIG))


@pytest.mark.parametrize("change", ["batch.global=32", "plan.recompute=full", "batch.micro=4"])
def test_another_plan_goes_at_the_pace_of_the_trace(slow_step: TracedStep, change: str) -> None:
    run, asked = load(CONFIG), load(CONFIG, [change])
    replay = replayed(run, asked, slow_step)
    pace = replay.traced.step_us / estimate(run).median_us
    assert pace > 1.4
    assert replay.median_us / replay.modelled.median_us == pytest.approx(pace, rel=0.15)


@pytest.mark.parametrize("longer", [0.8, 1.2])
def test_replay_and_explanation_rest_on_the_same_step_without_its_profiler(
    slow_trace: Path, longer: float, command: Command
) -> None:
    """A log shorter than the trace tells the profiler's cost; of a longer one both keep the traced step, and say so."""
    run = load(CONFIG)
    logged = replace(read_measured(slow_trace, run), logged_us=longer * read_measured(slow_trace, run).step_us)
    ledger, replay = explained(estimate(run), logged), replayed(run, run, logged)
    assert replay.traced_us == pytest.approx(ledger.measured.step_us)
    assert replay.traced_us == pytest.approx(min(1.0, longer) * logged.step_us)
    products = {"explained": ledger.measured.headings["gemm"]} | {
        term.name: term.time_us for term in replay.terms if term.name == "gemm"
    }
    assert products["gemm"] == pytest.approx(products["explained"], rel=0.01)
    for name in ("explain", "what-if"):
        text = " ".join(
            command.text(name, CONFIG, "--trace", str(slow_trace), "--log", f"{logged.logged_us}us").split()
        )
        assert ("is left out" if longer < 1 else "longer than the traced one: the ledger is of the traced step") in text


def test_a_faster_kernel_and_faster_links_shorten_the_step(slow_step: TracedStep) -> None:
    run = load(CONFIG)
    asked: list[dict[str, Any]] = [{}, {"kernels": {"attention": 0.5}}, {"link_speed": 2.0}]
    whole, attention, links = (
        {term.name: term.time_us for term in replayed(run, run, slow_step, **each).terms} for each in asked
    )
    assert attention["attention"] == pytest.approx(whole["attention"] / 2)
    assert sum(whole.values()) - sum(attention.values()) == pytest.approx(slow_step.headings["attention"] / 2, rel=0.05)
    assert links["dp_exposed"] == pytest.approx(whole["dp_exposed"] / 2)
    faults = "--kernel: atention: not in the ledger.*; pp_bubble: it follows from the plan.*; host: the trace shows no"
    with pytest.raises(UserError, match=faults):
        replayed(run, run, slow_step, kernels=dict.fromkeys(("atention", "gemm", "pp_bubble", "host"), 0.5))
    with pytest.raises(UserError, match=r"--link-speed: .* sends nothing between ranks"):
        replayed(run, load(CONFIG, ONE_RANK), slow_step, link_speed=2.0)


def test_the_command_prints_the_replay(slow_trace: Path, command: Command) -> None:
    printed = command.json("what-if", CONFIG, "--trace", str(slow_trace), "--set", "batch.micro=4")
    step = printed["step_us"]
    assert step["low"] < step["replayed"] < step["high"] and {"traced", "models_alone"} < set(step)
    assert sum(printed["shares"].values()) == pytest.approx(1)
    assert printed["rest_us"]["carried_over"] == pytest.approx(OTHERS_SHARE * printed["rest_us"]["traced"])
    assert sum(term["replay_us"] for term in printed["terms"]) == pytest.approx(step["replayed"])
    text = command.text("what-if", CONFIG, "--trace", str(slow_trace))
    assert "more than the traced step; all of that rest is carried over" in text and "samples: " in text
    assert "NAME=FACTOR" in command.refused("what-if", CONFIG, "--trace", str(slow_trace), "--kernel", "attention")


GEMM, GELU = Gemm(dtype="fp32", m=8, n=8, k=8), Gelu(dtype="fp32", tokens=8, width=8)


def made_step(gelu_us: float, **of_rank: Any) -> TracedStep:
    """A step of one rank: products that take 1,100 µs, and a pass."""
    rank = MeasuredRank(
        rank=0,
        steps=1,
        step_us=1200.0,
        headings={"gemm": 1100.0, "gelu": gelu_us, "host": 60.0},
        kernels_us=1100.0 + gelu_us,
        matched_us=1100.0 + gelu_us,
        calls={(GEMM, "forward"): (1.0, 1100.0)},
        operators={},
        messages={},
        longest_idle_us=0.0,
        halves={("gemm", "forward"): 1100.0, ("gelu", "forward"): gelu_us},
        **of_rank,
    )
    return TracedStep(ranks=(rank,), rule="", on_device=False)


def alone(gelu_us: float) -> PredictedStep:
    times = {"gemm": 900.0, "gelu": gelu_us}
    return PredictedStep(
        step_us=1000.0,
        headings=times,
        calls={(GEMM, "forward"): (1.0, 900.0), (GELU, "forward"): (2.0, gelu_us)},
        messages_us={},
        deviations_log=dict.fromkeys(times, 0.1),
    )


def test_a_small_part_of_a_step_sets_no_pace_and_a_heading_without_evidence_goes_at_that_of_all() -> None:
    found = paces(alone(0.1), made_step(0.8), sharded=False)
    assert found.of(GEMM, "forward")[0] == pytest.approx(1.2, rel=0.05)
    assert found.halves["gelu", "forward"] == pytest.approx(found.others, rel=0.1)
    assert found.of(Gelu(dtype="fp32", tokens=8, width=8), "backward") == (found.others, MODELLED)
    assert found.others == pytest.approx(1100.8 / 900.1, rel=0.05)


def test_a_large_part_sets_its_own_pace_and_the_host_takes_its_time_beside_each_run() -> None:
    found = paces(alone(20.0), made_step(40.0), sharded=False)
    assert found.halves["gelu", "forward"] == pytest.approx(2.0, rel=0.05)
    assert found.host_us == pytest.approx(60.0 / 3)
    elsewhere = found.on_other_threads(pace=1.44)
    assert (elsewhere.others, elsewhere.host_us) == (pytest.approx(1.2), found.host_us)
    assert elsewhere.others * math.exp(NINETY * elsewhere.pace_doubt) == pytest.approx(1.44)
    assert found.on_other_threads(pace=1 / 1.44).pace_doubt == pytest.approx(elsewhere.pace_doubt)
    assert found.in_other_layers().host_us == 0.0


SHARDED, ONE_RANK = ["plan.tp=2", "plan.dp=1"], ["plan.dp=1", "cluster.gpus_per_node=1"]


@pytest.mark.parametrize(
    ("change", "name", "asked"),
    [
        (SHARDED, "gemm", {"kernels": {"gemm": 0.5}}),
        (SHARDED, "gemm", {"kernels": {"gemm": 2.0}}),
        (SHARDED, "tp", {"link_speed": 2.0}),
        (ONE_RANK, "gemm", {"kernels": {"gemm": 0.5}}),
        (ONE_RANK, "attention", {"kernels": {"attention": 0.5}}),
        (["batch.micro=2"], "dp_exposed", {"link_speed": 2.0}),
    ],
)
def test_what_is_asked_multiplies_its_own_term_of_layers_that_the_trace_lacks(
    slow_step: TracedStep, change: list[str], name: str, asked: dict[str, Any]
) -> None:
    run, other = load(CONFIG), load(CONFIG, change)
    before, after = replayed(run, other, slow_step), replayed(run, other, slow_step, **asked)
    own_us, asked_us = ({term.name: term.time_us for term in each.terms}[name] for each in (before, after))
    factor = asked.get("kernels", {}).get(name, 0.5)
    assert asked_us == pytest.approx(factor * own_us)
    assert after.median_us - before.median_us == pytest.approx((factor - 1) * own_us)


@pytest.mark.parametrize("change", [SHARDED, ONE_RANK])
def test_layers_that_the_trace_lacks_take_at_least_what_their_samples_say(
    slow_step: TracedStep, change: list[str]
) -> None:
    run, asked = load(CONFIG), load(CONFIG, change)
    replay = replayed(run, asked, slow_step)
    assert replay.replayed.median_us > 0.95 * replay.modelled.median_us
    assert replay.share(MODELLED) > 0.5
    own = replayed(run, run, slow_step)
    widths = [math.log(each.step_time.high_us / each.step_time.low_us) for each in (own, replay)]
    assert widths[0] < widths[1]


def test_ranks_of_other_threads_may_share_nothing_of_the_pace_or_all_of_it(slow_step: TracedStep) -> None:
    run, asked = load(CONFIG), load(CONFIG, ONE_RANK)
    replay = replayed(run, asked, slow_step)
    pace = slow_step.step_us / estimate(run).median_us
    assert pace > 1.4
    assert replay.step_time.low_us < replay.modelled.median_us < replay.step_time.high_us
    assert replay.step_time.low_us < pace * replay.modelled.median_us < replay.step_time.high_us


@pytest.mark.parametrize(
    "change", ["batch.global=32", "batch.seq_len=128", "model.num_layers=2", "execution.framework=megatron-core"]
)
def test_another_batch_model_or_execution_is_another_run_whose_rest_is_in_doubt(
    slow_step: TracedStep, change: str
) -> None:
    run = load(CONFIG)
    replay = replayed(run, load(CONFIG, [change]), slow_step)
    assert not replay.same_run and replay.carried_us == OTHERS_SHARE * replay.rest_us
    assert replay.step_time.high_us - replay.median_us > abs(replay.carried_us)


@pytest.mark.parametrize("config", ["llama3-70b-64xh100", "deepseek-v3-1024xh100"])
def test_every_message_goes_at_the_pace_of_the_heading_that_tells_it(config: str) -> None:
    run = load(f"configs/runs/{config}.yml")
    inner = open_prices(run.cluster, run.execution)

    def times(paces: Mapping[str, float]) -> Mapping[str, float]:
        prices = ReplayedPrices(inner, TraceFactors(messages=paces))
        return predicted_step(estimate(run, prices=prices, require_fit=False)).messages_us

    before = times({})
    assert len(before) == 4
    paces = {name: 2.0 + place for place, name in enumerate(before)}
    assert times(paces) == pytest.approx({name: paces[name] * time_us for name, time_us in before.items()})


def test_doubts_add_up_whatever_their_sign() -> None:
    def width(
        rest_us: float, host_us: float = 0.0, *, same_run: bool = False, pace_doubt: float = 0.0, spread: float = 0.0
    ) -> float:
        times = {("gemm", MODELLED): 1000.0, ("host", CARRIED): host_us, (REST, CARRIED): rest_us}
        terms = [ReplayedTerm(name=name, by_origin_us={origin: time}) for (name, origin), time in times.items()]
        return half_width(terms, same_run=same_run, pace_doubt=pace_doubt, spread=spread)

    assert width(0.0, pace_doubt=0.2) == pytest.approx(NINETY * math.hypot(REPEATS, OPERATORS, 0.2))
    assert width(0.0) < width(0.0, 200.0) < width(-200.0, 200.0)
    assert width(-200.0) > width(200.0) > width(0.0)
    assert width(200.0, 200.0, same_run=True) < width(0.0)
    assert width(0.0) == width(0.0, spread=REPEATS / 2) < width(0.0, spread=2 * REPEATS)


@pytest.mark.parametrize(
    ("noted", "traced", "spread"),
    [
        ([100.0, 100.0 * math.e, 100.0 * math.e**2], (1.0, 1.0, 1.0), 1.0),
        ([100.0, 200.0], (1.0, math.e, math.e**2), 0.0),
        (None, (1.0, math.e, math.e**2), 1.0),
        ("of another make", (1.0, math.e), 0.0),
    ],
)
def test_steps_spread_as_those_without_the_profiler_do_where_the_trace_notes_them(
    noted: object, traced: tuple[float, ...], spread: float
) -> None:
    step = made_step(10.0, step_times_us=traced)
    assert replace(step, facts={"untraced_steps_us": noted}).spread == pytest.approx(spread)


def test_a_split_backward_has_at_least_the_hosts_time_of_a_whole_one() -> None:
    carried = []
    for schedule in ("1f1b", "zb-h1"):
        run = load("configs/runs/this-machine/pipeline-1f1b.yml", [f"plan.schedule={schedule}"])
        prices = ReplayedPrices(open_prices(run.cluster, run.execution), TraceFactors(host_us=20.0))
        terms = terms_of(estimate(run, prices=prices, require_fit=False), 0.0)
        carried += [term.by_origin_us[CARRIED] for term in terms if term.name == HOST]
    whole, split = carried
    assert whole <= split < 2 * whole  # more launches for the same work
