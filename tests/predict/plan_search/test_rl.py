"""Search and sweep over RL steps."""

import csv
import json
from pathlib import Path
from typing import ClassVar

import pytest

import predict
from predict.cli import main
from predict.plan_search.answer import RankedRows
from predict.plan_search.rl import KIND, length_map
from predict.plan_search.sweep import SweptRows, opened_space
from predict.plan_search.ties import REPEATS
from predict.plan_search.whole_search import Listener
from predict.rl.step import RlStep
from sampling.errors import ConfigError, InfeasibleError, UserError
from tests.predict.command import Command

SMALL = """\
model: llama3-8b
cluster: {hardware: h100-sxm, nodes: 2, gpus_per_node: 8}
plan: {dp: 16, zero: 1}
precision: bf16
rl: {prompts: 16, n: 4, prompt: "constant:64", prompt_max: 64, response: "constant:128", response_max: 128, mini_batch: 8, offload: [parameters]}
"""
AUTO = ("rl.placement=auto", "rl.rollout.gpus=auto", "rl.rollout.tp=[2, 4]")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rl") / "small.yml"
    path.write_text(SMALL)
    path.with_name("other.yml").write_text(SMALL.replace("n: 4", "n: 2"))
    return path


def found(config: Path, *settings: str) -> SweptRows[RlStep]:
    """Every combination of the open keys."""
    return opened_space(KIND, config, settings, predict.estimate).rows()


def searched(config: Path, *settings: str, listener: Listener | None = None) -> RankedRows[RlStep]:
    answer = predict.search(config, settings, listener=listener)
    assert isinstance(answer, RankedRows)
    return answer


def test_every_combination_is_predicted_and_the_best_comes_first(small: Path) -> None:
    class Done(Listener):
        seen: ClassVar[list[tuple[int, int]]] = []

        def combination(self, done: int, count: int, name: str) -> None:
            self.seen.append((done, count))

    answer = searched(small, *AUTO, listener=Done())
    assert Done.seen == [(each, 4) for each in range(1, 5)]
    steps = [one.prediction for one in answer.best]
    assert len(answer.best) + sum(left.count for left in answer.left_out.values()) == 4 == answer.space["plans"]
    per_gpu = [step.tokens_per_second_per_gpu for step in steps]
    assert per_gpu == sorted(per_gpu, reverse=True)
    for one in answer.best:
        alone = predict.rl_step(small, [f"{path}={json.dumps(value)}" for path, value in one.settings.items()])
        assert one.prediction.time == alone.time
    first, *others = (one.ratio for one in answer.best)
    assert first.median == 1 and all(ratio.low < ratio.median < ratio.high for ratio in others)
    assert {step.rl.gpus for step in steps} == {16}


def test_settings_reach_into_a_model_that_is_named(small: Path) -> None:
    (best,) = searched(small, "rl.rollout.tp=[2]", "model.num_hidden_layers=16").best
    assert best.prediction.rl.base.model.layers == 16


def test_lengths_and_counts_about_the_config_are_mapped(small: Path) -> None:
    mapped = length_map(small, ["rl.max_tokens=256"], predict.estimate)
    assert mapped is not None and mapped.own == (128, 4)
    settings = {(one.settings["rl.response_max"], one.settings["rl.n"]): one for one in mapped.cells}
    assert set(settings) == {(length, n) for length in (32, 64, 128, 256) for n in (2, 4, 8)}
    longest = settings[256, 4]
    assert longest.settings["rl.response"] == "constant:256" and longest.settings["rl.max_tokens"] == 64 + 256
    assert longest.prediction is not None
    own = settings[128, 4].prediction
    assert own is not None and own.time == predict.rl_step(small, ["rl.max_tokens=256"]).time
    lengths = small.with_name("lengths.txt")
    lengths.write_text("100 120")
    assert length_map(small, [f"rl.response=file:{lengths}"], predict.estimate) is None


def test_dp_takes_the_ranks_that_the_engines_leave(small: Path) -> None:
    every = [row.settings for row in found(small, *AUTO).rows]
    split = [each for each in every if each["rl.rollout.gpus"]]
    assert len(every) == 4
    assert {(each["cluster.nodes"], each["plan.dp"]) for each in split} == {(1, 8)}
    assert {each["rl.placement"] for each in split} == {"one_step_off"}


def test_a_first_combination_that_cannot_run_keeps_its_reason(small: Path) -> None:
    rows = predict.sweep(small, ["plan.tp=3,2"]).rows
    assert rows[0].prediction is None and "plan.tp: 3" in rows[0].reason
    assert rows[1].prediction is not None and rows[1].settings["plan.dp"] == 8


def test_without_an_open_key_the_degree_of_the_engines_is_open(small: Path) -> None:
    (varied,) = found(small).varied
    assert (varied.path, varied.values) == ("rl.rollout.tp", (1, 2, 4, 8))


def test_wrong_choices_are_refused(small: Path) -> None:
    with pytest.raises(UserError, match=r"rl\.n: auto is for rl\.placement"):
        found(small, "rl.n=auto")
    with pytest.raises(UserError, match=r"rl\.n: 'many'"):
        found(small, "rl.n=[1, many]")
    with pytest.raises(ConfigError, match=r"rl\.prompts"):
        found(small, "rl.rollout.tp=[1]", "rl.prompts=0")
    with pytest.raises(InfeasibleError, match="memory"):
        searched(small, "rl.rollout.tp=[1]", "plan.zero=0", "rl.rollout.memory_share=0.9")
    with pytest.raises(UserError, match=r"--max-memory, --jobs: does not apply to an RL config"):
        predict.search(small, ["rl.rollout.tp=[2]"], max_memory=0.5, jobs=1)


def test_the_commands_print_and_write(small: Path, tmp_path: Path, command: Command) -> None:
    content = command.json("search", str(small), "--set", "rl.rollout.tp=[2]")
    (best,) = content["best"]
    assert (best["rank"], best["settings"], best["tied"]) == (1, {"rl.rollout.tp": 2}, False)
    assert best["step_time_us"]["low"] < best["step_time_us"]["median"] < best["step_time_us"]["high"]
    assert content["space"] == {"plans": 1, "legal": 1, "fit": 1, "priced": 1}
    table = tmp_path / "rl.csv"
    assert main(["sweep", str(small), "--vary", "rl.n=2,4", "--output", str(table)]) == 0
    rows = list(csv.DictReader(table.open()))
    assert [row["n"] for row in rows] == ["2", "4"]
    assert float(rows[0]["t_gen"]) < float(rows[1]["t_gen"])
    assert float(rows[0]["kv_gb"]) > 0 and rows[0]["t_old_log_prob"]
    in_all = sum(float(rows[0][f"t_{name}"]) for name in ("compute", "memory", "comm", "idle"))
    assert in_all == pytest.approx(float(rows[0]["t_step"]))
    assert "analytic; no calibration" in rows[0]["calibration_note"].replace("assumed; ", "analytic; ")
    assert rows[0]["verdict"] == "FITS" and float(rows[0]["gradient_gb"]) > 0


def test_a_slow_trainer_fills_the_queue_and_a_slow_engine_empties_it(small: Path) -> None:
    apart = ("rl.placement=async", "rl.staleness=2", "rl.rollout.gpus=8")
    fast_engines = predict.rl_step(small, [*apart, "rl.epochs=64"]).queue
    fast_trainer = predict.rl_step(small, [*apart, 'rl.response="constant:4096"', "rl.response_max=4096"]).queue
    assert fast_engines.staleness == 2
    assert fast_engines.waiting == pytest.approx(2 - fast_engines.generating)
    assert 0 < fast_trainer.staleness <= 2 and fast_trainer.waiting == 0
    assert predict.rl_step(small).queue.staleness == 0
    assert predict.rl_step(small, ["rl.placement=one_step_off", "rl.rollout.gpus=8"]).queue.staleness == 1


def test_a_step_equals_itself_and_common_errors_cancel(small: Path) -> None:
    same, other = predict.compare(small, small, small.with_name("other.yml"))
    assert same.rate_ratio.median == 1
    assert same.rate_ratio.half_width_log == pytest.approx(REPEATS)
    alone = [step.time.half_width_log for step in (other.first, other.other)]
    assert REPEATS < other.rate_ratio.half_width_log < min(alone)


def test_comparison_states_what_it_rests_on_and_its_ratio(small: Path, command: Command) -> None:
    shown = command.run("compare", str(small), str(small)).out
    assert "rests on: " in shown
    assert "trains on 1.00 times the tokens per second and GPU of small" in shown and "so they are equal" in shown
    for words in (["search", str(small), "--set", "rl.rollout.tp=[2,4]"], ["sweep", str(small), "--vary", "rl.n=2,4"]):
        (line,) = (each for each in command.run(*words).out.splitlines() if each.startswith("rests on: "))
        assert " to " in line and "  " not in line
