"""The command `predict search`: its answer, its files, and what it says of bad input."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from predict import import_config, load, one_batch, search
from predict.plan_search.answer import Answer
from predict.reports.search import answer_json
from predict.run.training_run import TrainingRun
from sampling.errors import InfeasibleError, UserError
from sampling.files.places import CONFIGS
from tests.predict.command import Command

SMALL = ["--model", "llama3-8b", "--gpus", "8xh100", "--batch", "32", "--set", "plan.tp=[1,2,4]", "--set", "plan.vpp=1"]


def answer(command: Command, *arguments: str) -> dict[str, Any]:
    made: dict[str, Any] = command.json("search", *SMALL, "--jobs", "1", *arguments)
    return made


def test_figures_of_the_answer_agree_and_no_plan_of_its_front_beats_another(command: Command, tmp_path: Path) -> None:
    front = tmp_path / "front.csv"
    found = answer(command, *["--top", "3", "--tokens", "1T", "--price", "$2/gpu-h", "--why", "--pareto"], str(front))
    space = found["space"]
    assert space["plans"] > space["legal"] > space["fit"] > space["priced"] > 0
    assert [plan["rank"] for plan in found["best"]] == [1, 2, 3]
    first, second, _ = found["best"]
    assert first["step_time_us"]["low"] < first["step_time_us"]["median"] < first["step_time_us"]["high"]
    assert first["step_time_us"]["median"] <= second["step_time_us"]["median"]
    assert first["memory_bytes"] + first["headroom_bytes"] == pytest.approx(79.58 * 2**30, rel=1e-3)
    assert first["cost"]["cost"]["median"] == pytest.approx(2 * first["cost"]["gpu_hours"]["median"])
    assert first["energy_j_per_token"] > 0
    assert set(found["left_out"]) == set(found["why"])
    kept = space["plans"] - sum(found["left_out"].values())
    assert 3 <= kept <= space["priced"]
    rows = list(csv.DictReader(front.open()))
    points = [(float(row["us_per_token"]), float(row["memory_gib"])) for row in rows]
    assert len(points) == len(found["pareto"]) > 1
    assert points == sorted(points)
    assert [memory for _, memory in points] == sorted((memory for _, memory in points), reverse=True)
    # the fastest plan of all may be at risk, where a tied one that fits surely stands before it
    assert float(rows[0]["step_time_s"]) * 1e6 <= first["step_time_us"]["median"] * (1 + 1e-6)


def test_winners_are_written_as_run_configs_and_for_other_tools(command: Command, tmp_path: Path) -> None:
    """Each config is predicted as the answer says, and what Megatron-LM is given comes back as the same plan; what a tool lacks is said
    once for all of them."""
    asked = (*SMALL, "--jobs", "1", "--top", "2", "--write", str(tmp_path), "--set", "execution.gemm_efficiency=0.9")
    printed = command.run("search", *asked, "--json")
    for place, best in enumerate(json.loads(printed.out)["best"], 1):
        prediction = one_batch(tmp_path / f"{place}.yml")
        assert prediction.median_us == pytest.approx(best["step_time_us"]["median"], rel=1e-12)
        files = {path.name: path for path in (tmp_path / str(place)).iterdir()}
        ends = (".deepspeed.sh", ".megatron-lm.sh", ".nemo.sh", ".torchtitan.toml")
        assert sorted(files) == [*(f"{place}{end}" for end in ends), "ds_config.json"]
        back = import_config([files[f"{place}.megatron-lm.sh"]], ["cluster.hardware=h100"])
        assert load(back.document).plan == prediction.run.plan
    for tool in ("megatron-lm", "nemo", "torchtitan", "deepspeed"):
        assert printed.err.count(f"not expressed by {tool}: execution.gemm_efficiency") == 1


def test_the_function_gives_what_the_command_prints(command: Command) -> None:
    config = CONFIGS / "runs" / "llama3-70b-64xh100.yml"
    opened = ["plan=auto", "plan.pp=4", "plan.tp=4..8", "plan.cp=[1,2]", "plan.recompute=none"]
    made = search(config, opened, top=8, min_interval_overlap=0.95, jobs=1)
    assert isinstance(made, Answer)
    options = [text for setting in opened for text in ("--set", setting)]
    best_eight = ["--top", "8", "--min-interval-overlap", "0.95", "--jobs", "1"]
    printed = command.json("search", str(config), *options, *best_eight)
    assert answer_json(made) | {"seconds": 0} == printed | {"seconds": 0}
    assert all(plan.ratio.tied for plan in made.plans)
    assert printed["left_out"][
        "apart: the interval of its time overlaps the best one's by less than --min-interval-overlap"
    ]
    assert [best["overlap"] for best in printed["best"]] == sorted(
        (best["overlap"] for best in printed["best"]), reverse=True
    )


def test_a_saved_search_goes_on_without_estimates(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = ["--save", str(tmp_path / "search.json"), "--top", "4"]
    first = answer(command, *saved)
    monkeypatch.setattr("predict.plan_search.search.outcomes", None)
    again = answer(command, *saved)
    assert again["best"] == first["best"]
    assert again["left_out"] == first["left_out"]
    with pytest.raises(UserError, match="estimates of another space"):
        run("--save", str(tmp_path / "search.json"), "--set", "plan.pp=1")


def run(*arguments: str) -> None:
    """The command itself, whose errors are raised."""
    from predict.cli import parser

    options = parser().parse_args(["search", *SMALL, "--jobs", "1", *arguments])
    options.run(options)


def test_a_share_of_the_memory_that_is_too_small_is_reported_with_one_that_does() -> None:
    with pytest.raises(InfeasibleError, match=r"; raise --max-memory to 0\.\d+$") as error:
        run("--max-memory", "0.01")
    share = str(error.value).rpartition(" ")[2]
    run("--max-memory", share, "--top", "1")


def test_measured_plans_are_held_against_the_ranking_and_others_passed_over(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Measured:
        median_us = 2e6

    class Slower:
        median_us = 2.1e6

    monkeypatch.setattr(
        "predict.measurement.real_step.measure_interleaved",
        lambda cases, **_: [Slower(), Measured(), None][: len(cases)],
    )

    def require(run: TrainingRun, _: str) -> None:
        if run.name == "plan 2":
            raise UserError(f"{run.name} cannot be measured: {run.plan.schedule}")

    monkeypatch.setattr("predict.measurement.real_step.require_measurable", require)
    found = answer(command, "--top", "4", "--measure", "3")
    assert [plan["measured_us"] for plan in found["best"]] == [2.1e6, None, 2e6, None]
    assert found["regret"] == pytest.approx(0.05)


def test_an_answer_of_which_nothing_can_be_measured_here_is_kept(command: Command) -> None:
    printed = command.run("search", *SMALL, "--jobs", "1", "--top", "2", "--measure", "2", "--json")
    assert len(json.loads(printed.out)["best"]) == 2
    assert printed.err.count("left out: plan") == 2
