"""The explorer of an RL config: its step under settings, faults by key, the best split, and the config written."""

import pytest

import predict
from predict.explorer.answers import RlExplorer
from predict.plan_search.options import SearchOptions
from predict.plan_search.rl import KIND
from predict.plan_search.whole_search import search_combinations

SMALL = """\
model: llama3-8b
cluster: {hardware: h100-sxm, nodes: 2, gpus_per_node: 8}
plan: {dp: 16, zero: 1}
precision: bf16
rl: {prompts: 16, n: 4, prompt: "constant:64", prompt_max: 64, response: "constant:128", response_max: 128, mini_batch: 8}
"""


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> RlExplorer:
    path = tmp_path_factory.mktemp("rl") / "small.yml"
    path.write_text(SMALL)
    return RlExplorer(path)


def test_an_answer_is_that_of_rl_step_and_dp_takes_the_ranks_that_are_left(explorer: RlExplorer) -> None:
    settings = {"rl.n": 8, "plan.tp": 2}
    found = explorer.answer(settings)
    expected = predict.rl_step(explorer.config, ["rl.n=8", "plan.tp=2", "plan.dp=8"])
    assert found["follows"] == {"plan.dp": "8"}
    assert found["page"]["runs"][0]["prediction"]["step_time_us"]["median"] == expected.time.median_us
    written = explorer.written(settings)
    assert written["set"] == "--set rl.n=8 --set plan.tp=2 --set plan.dp=8"
    assert "n: 8" in written["yaml"] and "dp: 8" in written["yaml"]


def test_controls_are_the_keys_and_faults_stand_beside_them(explorer: RlExplorer) -> None:
    values = {control.path: control.value for control in explorer.controls}
    assert (values["rl.n"], values["rl.rollout.tp"], values["plan.dp"]) == (4, 1, 16)
    assert "batch.micro" not in values
    kinds = {control.path: control.kind for control in explorer.controls}
    assert (kinds["rl.reference"], kinds["rl.old_log_prob"], kinds["rl.offload"]) == ("yaml", "boolean", "yaml")
    assert {"rl.mini_batch", "plan.tp"} <= set(explorer.answer({"rl.mini_batch": 5, "plan.tp": 3})["faults"])
    foreign = explorer.answer({"rl.response": "file:/etc/hostname"})["faults"]["rl.response"]
    assert "'/etc/hostname' lies outside the project" in foreign
    assert "heat map" in explorer.studies({})["faults"][""]


def test_the_best_split_is_that_of_the_search(explorer: RlExplorer) -> None:
    found = explorer.search({"rl.n": 2})
    auto = ["rl.n=2", *(f"rl.{key}=auto" for key in ("placement", "rollout.gpus", "rollout.tp"))]
    best = search_combinations(KIND, explorer.config, auto, SearchOptions(), predict.estimate).best
    assert found["settings"][0] == dict(best[0].settings)
    assert found["search"]["plans"] == 8
