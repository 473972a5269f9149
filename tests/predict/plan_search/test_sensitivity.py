"""Sensitivities: each is the prediction of the run with that one change, and better figures never cost."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import predict
from predict.plan_search.sensitivity import Sensitivities
from predict.reports.sensitivity import sensitivity_text
from sampling.files.places import CONFIGS
from tests.predict.plan_search.test_rl import SMALL

RUNS = CONFIGS / "runs"


@pytest.fixture(scope="module")
def found() -> Sensitivities:
    return predict.sensitivity(RUNS / "llama3-70b-64xh100.yml")


def test_a_change_is_the_prediction_of_the_changed_run(found: Sensitivities) -> None:
    by_name = {each.name: each for each in found.figures}
    run = found.prediction.run
    link = replace(run.cluster.intra_node, gb_per_s=run.cluster.intra_node.gb_per_s * 1.1)
    changed = predict.estimate(replace(run, cluster=replace(run.cluster, intra_node=link)))
    assert by_name["intra_node.gb_per_s"].step_us == pytest.approx(changed.median_us, rel=1e-8)
    assert by_name["intra_node.gb_per_s"].gain == pytest.approx(1 - changed.median_us / found.prediction.median_us)
    setting = next(each for each in found.settings if each.change == "pipelined → none")
    alone = predict.one_batch(RUNS / "llama3-70b-64xh100.yml", ["execution.overlap_tp=none"])
    assert (setting.name, setting.step_us) == ("execution.overlap_tp", pytest.approx(alone.median_us))


def test_better_figures_never_cost_and_are_ranked(found: Sensitivities) -> None:
    fitting = [each for each in found.settings if each.may_fit]
    assert [*found.settings][: len(fitting)] == fitting, "what does not fit comes last"
    for changes in (found.figures, fitting):
        assert [each.gain for each in changes] == sorted((each.gain for each in changes), reverse=True)
    assert all(each.gain >= -1e-9 for each in found.figures)
    assert found.figures[0].name == "peak_tflops.bf16"
    assert sum(each.gain for each in found.figures) < 0.3, "each is 10 %, and what is compute is not memory as well"


def test_changes_of_one_effect_share_a_line_where_each_name_has_each_change(found: Sensitivities) -> None:
    first = found.settings[0]

    def pairs(*given: tuple[str, str]) -> list[list[str]]:
        changes = tuple(replace(first, name=name, change=change) for name, change in given)
        console = Console(width=200)
        with console.capture() as captured:
            console.print(sensitivity_text(replace(found, settings=changes)))
        below = captured.get().partition("another setting")[2]
        return [re.split(r"\s{2,}", line.strip())[:2] for line in below.splitlines() if "→" in line]

    assert pairs(("a", "1 → 2"), ("a", "1 → 4")) == [["a", "1 → 2, 4"]]
    assert pairs(("a", "1 → 2"), ("b", "1 → 2"), ("a", "1 → 4"), ("b", "1 → 4")) == [["a, b", "1 → 2, 4"]]
    assert pairs(("a", "1 → 2"), ("a", "2 → 4")) == [["a", "1 → 2; 2 → 4"]]
    assert pairs(("a", "1 → 2"), ("b", "1 → 2")) == [["a, b", "1 → 2"]]
    crossed = pairs(("a", "1 → 2"), ("b", "1 → 2"), ("c", "2 → 4"), ("a", "1 → 4"))
    assert crossed == [["a", "1 → 2, 4"], ["b", "1 → 2"], ["c", "2 → 4"]]


def test_values_that_the_run_cannot_have_are_left_out(found: Sensitivities) -> None:
    assert not any(each.change.endswith("→ unfused") for each in found.settings), (
        "context parallelism needs a fused kernel"
    )
    assert not any(each.name in ("execution.framework", "execution.stragglers") for each in found.settings)


def test_what_was_sampled_is_judged_beside_itself_carried_over() -> None:
    found = predict.sensitivity(RUNS / "demo.yml")
    assert found.prediction.sources["analytic"] == 0
    assert found.carried_over["step_us"] != found.prediction.median_us
    gains = {each.name: each.gain for each in found.figures}
    assert gains["peak_tflops.fp32"] > 0.01
    assert gains["peak_tflops.bf16"] == gains["peak_tflops.fp16"] == pytest.approx(0, abs=1e-9), (
        "an fp32 run has no work of those"
    )
    assert gains["inter_node.gb_per_s"] == gains["efficiency.gemm"] == pytest.approx(0, abs=1e-9)
    assert {each.name.partition(".")[0] for each in found.settings} == {"plan", "batch"}, (
        "plain torch has no other settings"
    )


def test_the_plan_and_the_batch_are_changed_with_what_follows_from_it(found: Sensitivities) -> None:
    by_change = {(each.name, each.change): each for each in found.settings}
    assert {"plan.recompute", "batch.micro", "plan.zero", "plan.tp", "plan.pp", "plan.cp"} <= {
        name for name, _ in by_change
    }
    alone = predict.one_batch(RUNS / "llama3-70b-64xh100.yml", ["plan.tp=8", "plan.dp=1"])
    wider = by_change["plan.tp", "4 → 8"]
    assert wider.step_us == pytest.approx(alone.median_us)
    assert wider.fits_probability == pytest.approx(alone.memory.fits_probability)


def test_figures_of_the_hardware_move_the_step_of_an_rl_config(tmp_path: Path) -> None:
    (config := tmp_path / "small.yml").write_text(SMALL)
    found = predict.sensitivity(config)
    gains = {each.name: each.gain for each in found.figures}
    assert gains["memory_gb_per_s"] > 0.01, "generation reads weights and caches"
    assert all(gain >= -1e-9 for gain in gains.values())
    eager = next(each for each in found.settings if each.name == "rl.rollout.enforce_eager")
    alone = predict.rl_step(config, ["rl.rollout.enforce_eager=true"])
    assert eager.step_us == pytest.approx(alone.time.median_us)


def test_figures_of_the_hardware_move_what_a_server_carries_and_its_latencies() -> None:
    config, short = (
        CONFIGS / "serving" / "llama3-8b-h100.yml",
        ["load.duration_s=5", "load.output=20", "engine.max_num_seqs=8"],
    )
    found = predict.sensitivity(config, short)
    memory = next(each for each in found.figures if each.name == "memory_gb_per_s")
    answer = predict.serving_answer(config, short, find_capacity=True)
    assert answer.capacity is not None
    assert memory.values["carried_rps"] > 1.005 * answer.capacity.median
    assert memory.values["tpot_us"] < 0.995 * answer.outcomes[0].latency.tpot.mean_us
    assert (
        found.figures[0].gain >= memory.gain == pytest.approx(memory.values["carried_rps"] / answer.capacity.median - 1)
    )
    assert {"placement.kv_precision", "engine.enforce_eager"} <= {each.name for each in found.settings}
