"""Runs under every schedule: several chunks per rank, parted backwards, two copies of the model, the best of all."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from predict import estimate, estimate_as_scheduled
from predict.config.load import load
from predict.prices.open import SpeedOfLight
from predict.prices.price_list import PriceList
from predict.rank.blocks import Blocks
from predict.run.plan import BEST
from predict.schedules import registry
from predict.schedules.order_files import write_order
from predict.step.scheduling import compare_schedules
from predict.workload.decompose import decompose, requests_of_runs
from regressors.bank.times import Times
from sampling.errors import InfeasibleError
from tests.predict.command import Command
from tests.predict.step.small_runs import predicted, run, step_us
from tests.tiny_runs import calls_of

ROOT = Path(__file__).resolve().parents[3]
DEMO = str(ROOT / "configs" / "runs" / "demo.yml")
PP = 4


def test_the_halves_of_the_backward_are_asked_for_only_where_they_run() -> None:
    for name, parted in (("1f1b", False), ("zb-h1", True)):
        requests = requests_of_runs([run(pp=PP, schedule=name)])
        phases = {phase for of_ranks in requests.values() for request in of_ranks for phase in request.phases}
        assert ({"backward_input", "backward_weight"} <= phases) == parted


def test_the_halves_cost_what_the_whole_does_under_even_prices() -> None:
    """With analytic prices, halves of a layer add up to its whole: accumulation is counted once."""
    subject = run(pp=PP, schedule="zb-h1")
    prices = PriceList([_PerPhase()], subject.cluster, profile_error=0.0)
    chunk = decompose(subject)[1].chunks[0]

    def total(blocks: Blocks) -> float:
        return sum(unit.total_us for unit in prices.priced(calls_of(blocks)) if unit.call.NAME == "dense_layer")

    assert total(chunk.backward_input) + total(chunk.backward_weight) == pytest.approx(total(chunk.backward))


class _PerPhase:
    """A whole backward of 30 µs, 5 more to accumulate; its halves 14 and 16."""

    def times(self, calls: Any, cluster: Any) -> list[Any]:
        cost = {"forward": 12.0, "backward": 30.0, "backward_accumulate": 35.0, "backward_input": 14.0}
        return [
            Times(median_us=(time := cost.get(phase, 16.0)), low_us=time, high_us=time, source="measured")
            for _, phase in calls
        ]


def test_a_v_keeps_a_tied_weight_on_one_rank() -> None:
    tied = {"tied": True}
    loop, vee = (
        [rank.end.shared_weights_reduction for rank in decompose(run(pp=PP, vpp=2, schedule=name, model=tied))]
        for name in ("interleaved-1f1b", "zbv")
    )
    assert [len(of_rank) for of_rank in loop] == [1, 0, 0, 1]
    assert [len(of_rank) for of_rank in vee] == [0, 0, 0, 0]


def test_two_copies_update_twice_the_weights_and_add_up_their_gradients() -> None:
    def updated(name: str) -> int:
        ranks = decompose(run(pp=PP, vpp=2, schedule=name))
        calls = [counted.call for rank in ranks for counted in rank.end.optimizer if counted.call.NAME == "adamw"]
        return sum(call.parameters for call in calls)  # type: ignore[attr-defined]

    assert updated("dualpipe") == 2 * updated("zbv")
    twins = [rank.end.shared_weights_reduction for rank in decompose(run(pp=PP, vpp=2, schedule="dualpipe"))]
    assert [[counted.call.NAME for counted in of_rank] for of_rank in twins] == [["all_reduce"]] * PP


def test_best_is_the_first_of_the_comparison() -> None:
    subject = run(pp=PP, schedule=BEST)
    result = predicted(subject)
    prices = PriceList([SpeedOfLight()], subject.cluster, profile_error=0.0)
    ranked, _ = compare_schedules(subject, registry.names(), partial(estimate_as_scheduled, prices=prices))
    assert result.run.plan.schedule == ranked[0].name
    others = [step_us(run(pp=PP, schedule=outcome.name)) for outcome in ranked if outcome.valid]
    assert result.step_time.median_us == pytest.approx(min(others))


def test_best_keeps_the_memory_limit_and_recomputation() -> None:
    limited = predicted(run(pp=PP, schedule=BEST, memory_limit=PP)).timeline
    assert max(limited.peak_chunks(0.5)) <= PP
    assert predicted(run(pp=PP, schedule=BEST, recompute="full")).run.plan.schedule in ("1f1b", "afab")
    with pytest.raises(InfeasibleError, match="no schedule can run this"):
        predicted(run(pp=PP, schedule=BEST, memory_limit=1, recompute="full"))
    with pytest.raises(
        InfeasibleError, match=r"holds 7 chunk activations, more than the limit of 4 of plan\.memory_limit"
    ):
        predicted(run(pp=PP, schedule="zb-h2", memory_limit=4))


def test_an_order_file_lies_beside_the_config(tmp_path: Path) -> None:
    text = (ROOT / "configs" / "runs" / "demo.yml").read_text().replace("../", f"{ROOT}/configs/")
    for schedule in ("mine.csv", "zb-h1"):
        (tmp_path / f"{schedule}.yml").write_text(text.replace("schedule: 1f1b", f"schedule: {schedule}"))
    write_order(registry.order("zb-h1", ranks=2, chunks=1, microbatches=4), tmp_path / "mine.csv")
    results = []
    for schedule in ("mine.csv", "zb-h1"):
        of_schedule = load(tmp_path / f"{schedule}.yml")
        results.append(estimate(of_schedule).step_time)
    assert results[0] == results[1]


def test_schedules_of_a_config_have_its_stage_times(command: Command) -> None:
    found = {
        outcome["name"]: outcome for outcome in command.json("schedule", DEMO, "--schedule", "1f1b,zb-h1")["schedules"]
    }
    step = command.json("one-batch", DEMO, "--set", "plan.schedule=zb-h1")
    assert step["schedule"] == "zb-h1"
    assert step["bubble_fraction"] == pytest.approx(found["zb-h1"]["bubble_fraction"])
    assert found["zb-h1"]["makespan"] < step["step_time_us"]["median"]
    assert "--set plan.pp=4" in command.refused("schedule", DEMO, "--pp", "4")
