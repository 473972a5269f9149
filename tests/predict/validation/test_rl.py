"""Published RL steps: rows that become configs, rows that are refused, and the figures over them."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import predict
from predict.huggingface.config_json import load_model
from predict.rl.phases import FACTORS, FITTED_TO, TERMS, Factors, sync_time, tensor_count
from predict.rl.section import ASYNC
from predict.rl.step import scaled_step, unscaled_step
from predict.truth_table import faults_of_cells
from predict.validation.published_row import NotExpressibleError, PublishedRow
from predict.validation.rl import PHASES, ComparedPhase, ComparedStep, compare, predict_rows, rl_json, summary
from predict.validation.rl_fit import Observed, doubts, factors_without, fitted_factors, fitted_half_width, refit
from predict.validation.rl_rows import LIKELY_MEANS, STEPS, cut_mean, lognormal_of, read_rl_rows, rl_runs_of
from sampling.errors import ConfigError
from sampling.hardware.cluster import Link
from tests.predict.command import Command
from tests.predict.validation.published_rows import ROWS, written

ROW = ROWS["rl"]


def compared(one: PublishedRow) -> ComparedStep:
    (found,) = together(one)
    return found


def together(*rows: PublishedRow) -> list[ComparedStep]:
    return compare(rows, predict_rows(rows, predict.estimate, lambda *_: None))


def row(**cells: str) -> PublishedRow:
    return PublishedRow(cells=ROW | cells, fault="; ".join(faults_of_cells(ROW | cells, STEPS)), columns=STEPS)


def test_a_row_becomes_its_config() -> None:
    (run,) = rl_runs_of(row(ppo_epochs="2", mini_batch_prompts="8", recompute="full", offload="params, optimizer"))
    plan, section = run.base.plan, run.section
    assert (plan.tp, plan.dp, plan.zero, plan.recompute) == (2, 4, 1, "full")
    assert (section.samples, section.optimizer_steps, section.rollout.tp) == (64, 4, 2)
    assert section.offload == ("parameters", "optimizer")
    assert run.samples.response.mean() == pytest.approx(100, rel=0.02)
    apart = rl_runs_of(row(mode="async", gen_gpus="8", staleness="0.5"))[0].section
    assert (apart.placement, apart.staleness, apart.old_log_prob) == (ASYNC, 0.5, False)
    on_policy = rl_runs_of(row(mode="async", gen_gpus="8", staleness="0.0"))[0].section
    assert (on_policy.placement, on_policy.ahead, on_policy.rollout.partial) == (ASYNC, 0, False)
    streamed = row(mode="async", gen_gpus="8", staleness="0.5", mini_batch_prompts="2", notes="require_batches 4; slow")
    assert rl_runs_of(streamed)[0].section.fetches == 2
    sharded = rl_runs_of(row(train_engine="FSDP2", tp="", sp_ulysses="2", fsdp_size="4"))[0].base.plan
    assert (sharded.cp, sharded.cp_method, sharded.dp, sharded.zero, sharded.shard) == (2, "all_to_all", 4, 3, 4)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"response_mean": "", "response_max": "900"}, "response_mean: not published"),
        ({"gpu": "T800-64GB"}, "T800-64GB is not in configs/hardware"),
        ({"model": "Nobody-7B"}, "model: Nobody-7B"),
        ({"train_engine": "DeepSpeed ZeRO-3"}, "DeepSpeed ZeRO-3 is not modelled"),
        ({"tp": "3"}, "do not divide"),
        ({"prompts": ""}, "prompts: not published"),
        ({"clip_ratio": "1.0"}, "clip_ratio: 1.0 is out of range"),
        ({"step_s": "abc"}, "step_s: 'abc' is not a number"),
    ],
)
def test_a_row_that_cannot_be_expressed_says_why(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(NotExpressibleError, match=reason):
        rl_runs_of(row(**cells))
    assert reason in compared(row(**cells)).reason


@pytest.mark.parametrize(("mean", "clipped"), [(100.0, None), (3200.0, None), (3500.0, 0.6), (2000.0, 0.05)])
def test_a_distribution_has_the_published_mean_and_cut_share(mean: float, clipped: float | None) -> None:
    median, sigma = map(float, lognormal_of(mean, 4096.0, clipped).removeprefix("lognormal:").split(","))
    assert cut_mean(median, sigma, 4096.0) == pytest.approx(mean, rel=1e-3)
    drawn = np.random.default_rng(0).lognormal(np.log(median), sigma, 100_000)
    assert np.minimum(drawn, 4096).mean() == pytest.approx(mean, rel=0.02)
    if clipped:
        assert (drawn > 4096).mean() == pytest.approx(clipped, abs=0.02)


def test_responses_that_are_all_cut_are_constant() -> None:
    assert lognormal_of(4096.0, 4096.0) == "constant:4096"


def test_figures_over_rows(tmp_path: Path, command: Command) -> None:
    step = scaled_step(unscaled_step(rl_runs_of(row())[0], predict.estimate), FACTORS)
    exact = {"step_s": f"{step.time.median_us / 1e6}", "gen_s": f"{step.phases[0].time.median_us / 4e6}"}
    table = [ROW | exact, ROW | {"row_id": "A2", "model": "Nobody-7B"}]
    path = written(tmp_path / "steps.csv", *table)
    found: dict[str, Any] = command.json("validate", "rl", "--truth", str(path))
    assert found["version"] == 1
    assert set(found["summary"]) == set(PHASES)
    assert found["summary"]["step"] == {"rows": 1, "mean": pytest.approx(0, abs=1e-9), "median": pytest.approx(0, abs=1e-9), "bias": pytest.approx(0, abs=1e-9), "coverage": 1.0}  # fmt: skip
    assert found["summary"]["gen"]["mean"] == pytest.approx(3.0)
    assert found["summary"]["gen"]["coverage"] == 0.0
    assert "Nobody-7B" in found["rows"][1]["reason"]
    assert re.search(r" 1  A2 +model: Nobody-7B", command.text("validate", "rl", "--truth", str(path)))


def test_factors_are_found_again_and_a_source_is_judged_without_its_own() -> None:
    true = Factors(rollout=1.5, update=1.2, passes=1.4)
    cells: list[dict[str, str]] = [
        {"n": "4"}, {"n": "16"}, {"n": "16", "ppo_epochs": "4"}, {"n": "8", "response_mean": "800", "response_max": "2048"}
    ]  # fmt: skip
    observed = []
    for place, each in enumerate(cells):
        step = unscaled_step(rl_runs_of(row(**each))[0], predict.estimate)
        scaled = scaled_step(step, true)
        times = {f"{phase.name}_s": f"{phase.time.median_us / 1e6}" for phase in scaled.phases}
        times["step_s"] = f"{scaled.time.median_us / 1e6}"
        observed.append(Observed(row=row(**each, **times, gpu=f"H100-{place}"), step=step))
    found = fitted_factors(observed)
    # to the grid's step, as phases tell them apart
    for name in ("rollout", "update", "passes"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.03)
    assert fitted_factors([]).rollout == pytest.approx(1, abs=0.02)
    known, other = row(source_id=FITTED_TO[0], row_id="B1"), row()
    of_known, of_other = (one.phases["step"].predicted.median_us for one in together(known, other))
    assert of_known < of_other  # fitted to no row at all, against the shipped factors


def test_the_half_width_is_the_least_that_holds_nine_in_ten_runs_of_sources_left_out() -> None:
    long = {
        "n": "16",
        "response_mean": "2000",
        "response_max": "4096",
    }  # so that kernels, which have factors, are most of it
    step = unscaled_step(rl_runs_of(row(**long))[0], predict.estimate)
    own = scaled_step(step, Factors()).time.median_us / 1e6
    observed = [
        Observed(row=row(source_id=name, step_s=f"{own * off}"), step=step)
        for name, off in (("a", 1.0), ("b", 1.0), ("c", 2.0))
    ]
    without, width = factors_without(observed), fitted_half_width(observed)
    far = observed[2]

    def holds(half_width: float) -> bool:
        time = scaled_step(step, replace(without["c"], half_width=half_width)).time
        return time.low_us <= far.measured_us("step") <= time.high_us

    assert holds(width) and not holds(width - 0.01)
    assert fitted_half_width(observed[:2]) == 0.0
    found = refit(observed)
    assert found is not None and found.half_width == width
    assert refit(observed[:1]) is None


def test_updates_that_two_rows_seem_to_have_of_each_other_are_doubted() -> None:
    whole = row(row_id="A1", gen_s="60", old_log_prob_s="10", update_actor_s="25", step_s="100")
    late = row(row_id="A2", update_actor_s="30", step_s="28", n_gpus="16")
    found = doubts([whole, late, row(row_id="A3", update_actor_s="20", step_s="28", model="Llama-3.1-8B")])
    assert set(found) == {"A1", "A2"}
    assert found["A2"].startswith(
        "update_actor_s: 30.0 s are longer than the step, 28.0 s; those of A2 and A1 look swapped"
    )
    assert "swapped" not in doubts([late])["A2"]
    assert doubts([whole]) == {}


def test_a_length_that_is_open_is_what_other_rows_of_the_source_agree_with() -> None:
    open_row = {"response_mean": "", "response_max": "4000", "n": "8"}
    runs = rl_runs_of(row(**open_row))
    assert [run.samples.response.mean() for run in runs] == pytest.approx(LIKELY_MEANS[:3], rel=0.02)
    short, _, long = (scaled_step(unscaled_step(run, predict.estimate), FACTORS) for run in runs)
    update = short.phase("update_actor")
    assert update is not None
    stated = row(**open_row, row_id="B1", update_actor_s=f"{update.time.median_us / 1e6}")
    alone, beside = compared(row(**open_row)), together(row(**open_row), stated)[0]
    assert alone.open_length
    assert alone.phases["step"].predicted.low_us == short.time.low_us
    assert alone.phases["step"].predicted.high_us == long.time.high_us
    assert beside.phases["step"].predicted.low_us == short.time.low_us
    assert beside.phases["step"].predicted.high_us < long.time.high_us
    assert compared(stated).phases["step"].predicted == alone.phases["step"].predicted  # a row has no say in its own
    content = rl_json([alone])
    assert content["summary"]["step"]["rows"] == 0
    assert content["summary_of_open_lengths"]["step"]["rows"] == 1


def test_pairs_of_placements_are_ordered() -> None:
    def judged(mode: str, step_s: str) -> ComparedStep:
        return compared(row(mode=mode, gen_gpus="8" if mode == "async" else "", step_s=step_s))

    colocated = judged("colocated", "60")
    assert rl_json([colocated, judged("async", "40")])["order"] == {"pairs": 1, "right": 1.0}
    assert rl_json([colocated, judged("async", "80")])["order"] == {"pairs": 1, "right": 0.0}


def test_a_table_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"--truth: nowhere\.csv"):
        read_rl_rows(Path("nowhere.csv"))


# Published weight transfers: rows by hand, and rows that are refused.

TABLE = """\
source,model,placement,method,seconds,notes
page (H20),Qwen3-30B-A3B,16 + 16,default,20,
page (H20),Qwen3-30B-A3B,16 + 16,checkpoint engine,6,
page,GLM-4.5-Air BF16,"8 x H800, TP8",broadcast,3,
page,DeepSeek-V3.1 FP8,"16 x H20, TP16",broadcast,10,
page,DeepSeek-V3.1 FP8,"16 x H20, TP16",point to point,10,
page,Nobody-7B,"8 x H800, TP8",broadcast,10,
page,Qwen3-30B-A3B,somewhere,broadcast,10,
page,Qwen3-30B-A3B,16 + 16,default,,
MoonshotAI/checkpoint-engine README.md,GLM-4.5-Air BF16,"8 x H800, TP8",broadcast,3,
"""


def test_transfers_are_judged_by_their_phase(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "transfers.csv"
    path.write_text(TABLE)
    found = command.json("validate", "rl", "--truth", str(path))
    seconds = [row["phases"]["update_weights"]["predicted_s"] if row["phases"] else None for row in found["rows"]]
    tensors, bytes_30b = 48 * (128 * 3 + 9) + 3, 30.5e9 * 2
    assert seconds[0] == pytest.approx(bytes_30b / 50e9 + 1e-3 * tensors, rel=0.01)
    assert seconds[1] == pytest.approx(bytes_30b / 50e9 + 3e-4 * tensors, rel=0.01)
    assert seconds[2] == pytest.approx(106e9 * 2 / 66e9, rel=0.05)
    assert seconds[3] == pytest.approx(671e9 / 66e9, rel=0.05)
    assert [bool(row["reason"]) for row in found["rows"]] == [False] * 4 + [True] * 4 + [False]
    reasons = " ".join(row["reason"] or "" for row in found["rows"])
    for part in ("method: point to point", "Nobody-7B is not in", "placement: somewhere", "seconds: not published"):
        assert part in reasons
    assert found["summary"]["update_weights"]["rows"] == 4
    # the source that the rate of transfers was read from is judged apart
    assert found["summary_in_sample"]["update_weights"]["rows"] == 1
    assert [row["phases"].get("update_weights", {}).get("in_sample") for row in found["rows"]][-1:] == [True]
    assert "update_weights (in-sample)" in command.text("validate", "rl", "--truth", str(path))


def test_a_table_of_other_columns_is_refused(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "other.csv"
    path.write_text("model,seconds\nx,1\n")
    assert (
        "lacks the columns row_id, step_s; give a table of published RL steps, or of weight transfers"
        in command.refused("validate", "rl", "--truth", str(path))
    )


def test_figures_of_judged_times() -> None:
    from predict.model.shipped import shipped_model

    path = shipped_model("llama3-8b")
    assert path is not None
    model = load_model(path)
    time = sync_time(model, Link(latency_us=1, gb_per_s=100), "bf16", "tensors")
    assert time.low_us < time.median_us < time.high_us
    assert time.median_us == pytest.approx(
        2 * model.parameters / 1e5 + 1e6 * TERMS["tensor_s"].value * tensor_count(model)
    )
    half, exact = (
        ComparedPhase(predicted=time, measured=2 * time.median_us),
        ComparedPhase(predicted=time, measured=time.median_us),
    )
    assert summary([half, exact])["mean"] == pytest.approx(0.25)
    assert summary([half, exact])["bias"] == pytest.approx(-0.25)
    assert summary([])["mean"] is None
