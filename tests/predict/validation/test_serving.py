"""Serving runs made by known coefficients: read, predicted, and their coefficients found again."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from predict.reports.text import show
from predict.reports.validated_servers import serving_validation_text
from predict.serving.coefficients import Client, Coefficients, coefficients_json, shipped_coefficients
from predict.serving.fit import fitted_coefficients
from predict.serving.fitting import first_token_us
from predict.serving.latency import latency_of
from predict.serving.simulate import serve
from predict.serving.stages import Stage, read_stages
from predict.serving.step_model import FORMULA, PUBLISHED
from predict.serving.traffic import traffic_of
from predict.validation.serving import ServingComparison, replayed, transferred
from predict.validation.serving_scores import capacities
from sampling.errors import ConfigError, UserError
from sampling.hardware.cluster import hardware_named
from tests.predict.command import Command

MIXTURE = {"model": "Mixtral", "experts": 8, "top_k": 2, "tp": 2}
DENSE: dict[str, Any] = {
    "model": "Llama",
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 14336,
    "vocab": 32000,
    "dtype": "bf16",
    "gpu": "H100-SXM-80GB",
    "tp": 1,
    "max_num_seqs": 128,
    "max_num_batched_tokens": 2048,
    "n_prefixes": 5,
    "users_per_prefix": 2,
    "prefix_len": 100,
    "question_len": 450,
    "output_len": 120,
    "duration_s": 40.0,
}
TRUE = {"beta1": 1.4, "beta2": 0.5, "beta3": 1.05, "beta4": 50.0, "beta5": 15.0}
CLIENT = Client(first_token_us=9000.0)


def measured(experiment: str, rate: float, **changes: Any) -> Stage:
    """A stage with the latencies that the true coefficients give it."""
    stage = Stage(experiment=experiment, rate_rps=rate, **(DENSE | changes))
    known = shipped_coefficients("formula")
    case = ServingComparison([stage], replace(known, experiments=())).cases[0]
    table = FORMULA.table_from(case.server, case.features, TRUE)
    found = latency_of(serve(case.engine, case.pool, table, traffic_of(case.load)), CLIENT)
    return replace(
        stage,
        e2e_mean_ms=found.e2e.mean_us / 1e3,
        e2e_p90_ms=found.e2e.percentiles_us[90] / 1e3,
        ttft_mean_ms=found.ttft.mean_us / 1e3,
        tpot_mean_ms=found.tpot.mean_us / 1e3,
    )


@pytest.mark.parametrize(
    "model, stated, sampling",
    [
        ("Llama-2-70B", "", "sorted"),
        ("Qwen3-14B", "", "sorted"),
        ("llama3-8b", "", "sorted"),
        ("Meta-Llama-3.1-8B", "", "sorted"),
        ("qwen3-8b", "", "sorted"),
        ("google/gemma-3-27b-it", "", "sorted"),
        ("DeepSeek-R1", "", "random"),
        ("DeepSeek-R1", "sorted", "sorted"),
        ("CodeLlama-34B", "", "random"),
        ("Mixtral-8x7B", "", "random"),
        ("Llama-2-70B", "greedy", "greedy"),
    ],
)
def test_requests_that_say_nothing_take_what_the_publisher_of_the_model_says(
    model: str, stated: Any, sampling: str
) -> None:
    """generation_config.json of Llama 2 and Qwen3 has a top p, that of Code Llama and Mixtral none; vLLM's setting holds for models that
    do not ship."""
    stage = Stage(experiment="one", rate_rps=1.0, **(DENSE | {"model": model, "sampling": stated}))
    assert stage.server().engine.sampling == sampling


@pytest.fixture(scope="module")
def stages() -> list[Stage]:
    return [
        *(measured("dense", rate) for rate in (5.0, 15.0)),
        *(measured("sliced", rate, tp=2) for rate in (10.0, 25.0)),
        *(measured("mixture", rate, **MIXTURE) for rate in (4.0, 12.0)),
        *(measured("a100", rate, gpu="A100-SXM-80GB") for rate in (3.0, 8.0)),
    ]


@pytest.fixture(scope="module")
def fitted(stages: list[Stage]) -> Coefficients:
    return fitted_coefficients(stages, FORMULA, "made by the formula")


def write(stages: list[Stage], folder: Path) -> Path:
    names = [each for each in Stage.__dataclass_fields__ if any(getattr(stage, each) is not None for stage in stages)]
    with (folder / "serving_experiments.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, [*names, "_a_column_of_our_own"])
        table.writeheader()
        for stage in stages:
            table.writerow({name: "" if getattr(stage, name) is None else getattr(stage, name) for name in names})
    return folder


def test_the_coefficients_are_found_again(fitted: Coefficients) -> None:
    # β₁ cannot be distinguished by prompts that are cached, and stays near its prior
    for name, exactness in (("beta3", 0.05), ("beta4", 0.15), ("beta1", 0.1)):
        assert fitted.values[name] == pytest.approx(TRUE[name], rel=exactness)
    assert fitted.client.first_token_us == pytest.approx(CLIENT.first_token_us, rel=0.1)
    assert fitted.half_width < 0.05


def test_each_experiment_is_judged_by_the_others(stages: list[Stage], fitted: Coefficients) -> None:
    comparison = ServingComparison(stages, fitted)
    for case in comparison.cases:
        found = comparison.compared(case)
        assert found.fitted_without == case.stage.experiment
        assert found.compared("e2e").error == pytest.approx(0, abs=0.06)
    without = comparison.fit.left_out
    assert set(without) == {"dense", "sliced", "mixture", "a100"}
    assert tuple(without["a100"]) != tuple(without["dense"])


def test_each_model_is_judged_by_the_others(stages: list[Stage], fitted: Coefficients) -> None:
    slow = [
        replace(one, tpot_mean_ms=2 * (one.tpot_mean_ms or 0.0)) if one.model == "Mixtral" else one for one in stages
    ]
    found = ServingComparison(slow, fitted).errors_without_their_models()
    assert {model for model, _ in found} == {"Llama", "Mixtral"}
    # steps at twice the time have more requests in them, which makes up for some of it
    assert all(-0.5 <= error < -0.1 for error in found["Mixtral", 2])
    assert not ServingComparison([one for one in stages if one.model == "Llama"], fitted).errors_without_their_models()


def test_another_gpu_is_judged_by_the_coefficients_of_the_first(stages: list[Stage]) -> None:
    slow = replace(stages[-1], e2e_mean_ms=2 * (stages[-1].e2e_mean_ms or 0.0))
    found = transferred([*stages[:-1], slow], FORMULA)
    assert found.fitted_on == "H100-SXM-80GB"
    assert [one.stage.experiment for one in found.compared] == ["a100", "a100"]
    # the coefficients are the GPU's own here, but for one of the two that was not made by them
    right, wrong = (one.compared("e2e").error for one in found.compared)
    assert (right, wrong) == (pytest.approx(0, abs=0.06), pytest.approx(-0.5, abs=0.05))
    assert not transferred(stages[:-2], FORMULA).compared
    assert not transferred(stages, PUBLISHED).compared


def test_the_contract_of_the_command(
    stages: list[Stage], fitted: Coefficients, tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = write(stages[:2], tmp_path)
    (tmp_path / "serving_capacity.csv").write_text(
        "model,gpu,tp,profile,prompt,output_len,stable_rate_rps,overloaded_rate_rps,measured_capacity_rps\n"
        "Llama,H100-SXM-80GB,1,,575,120,15,400,\nLlama,H100-SXM-80GB,1,,575,120,,,10\nOther,H100,1,,575,120,,,10\n"
    )
    real = ServingComparison(stages[:1], replace(fitted, experiments=())).cases[0]
    requests = traffic_of(replace(real.load, arrivals="constant"))
    columns = {"arrival_us": requests.arrival_us, "input_tokens": requests.prompt, "output_len": requests.output}
    pd.DataFrame({"experiment": "dense", "stage": 0, **columns}).to_parquet(truth / "serving_requests.parquet")
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(coefficients_json(replace(fitted, experiments=()))))
    content = command.json("validate", "serving", "--truth", str(truth), "--coefficients", str(file))
    assert content["version"] == 1
    assert set(content["summary"]) == {"e2e", "ttft", "tpot", "e2e_p90", "coverage", "capacity"}
    assert [(row["experiment"], row["stage"]) for row in content["rows"]] == [("dense", 0)] * 2
    assert content["summary"]["e2e"] < 0.03
    # both stages have the arrivals of the first, 5 a second, where the second was measured under 15
    assert content["replay"]["stages"] == 2
    assert content["replay"]["e2e"] > 2 * content["summary"]["e2e"]
    assert content["by_source"][""]["e2e"] == content["summary"]["e2e"]
    inside, above = content["capacities"]
    assert inside["error"] == 0
    assert above["error"] == pytest.approx(above["predicted"] / 10 - 1)
    assert content["by_left_out_model"] == {}
    content["by_left_out_model"] = {"Mixtral tp 2": {"rows": 1, "tpot": 0.1, "tpot_bias": -0.1}}
    content["closed_loop"]["refused"] = [{"group": name, "rows": 2, "why": "no config"} for name in ("this", "that")]
    errors = {"rows": 1, "tpot": 0.1, "tpot_bias": 0.1, "coverage": 1.0, "ttft": None}
    groups = {"sound": errors | {"left_out": ""}, "cached": errors | {"left_out": "some were found in a cache"}}
    content["closed_loop"] |= {
        "by_group": groups,
        "summary": errors,
        "by_version": {"vllm 0.12": errors | {"ttft_bias": None}},
    }
    show(serving_validation_text(content))
    printed = capsys.readouterr().out
    assert re.search(r"15 or more, less than 400 +within", printed)
    assert re.search(r"Mixtral tp 2 +1 +10.0 % +−10.0 %", printed)
    assert "cached (not judged) " in printed and "sound (not judged)" not in printed
    assert printed.count("no config") == 1 and re.search(r" 4  this +no config", printed)
    assert "is for the model formula" in command.refused(
        "validate", "serving", "--truth", str(truth), "--model", "kernels", "--coefficients", str(file)
    )


def test_the_published_weights_compute_every_prompt(stages: list[Stage]) -> None:
    found = {
        name: ServingComparison(stages[:1], shipped_coefficients(name)).cases[0] for name in ("published", "formula")
    }
    assert [found[name].engine.prefix_caching for name in found] == [False, True]


def test_a_table_of_requests_of_another_schema_is_refused(stages: list[Stage], tmp_path: Path) -> None:
    pd.DataFrame({"experiment": ["dense"]}).to_parquet(tmp_path / "serving_requests.parquet")
    with pytest.raises(ConfigError, match="give a table with the columns"):
        list(replayed(tmp_path, ServingComparison(stages[:1], shipped_coefficients("published"))))


def test_a_stage_that_cannot_be_predicted_is_marked(stages: list[Stage], fitted: Coefficients) -> None:
    too_large, unknown = replace(stages[0], layers=400), replace(stages[0], gpu="H1000")
    comparison = ServingComparison([stages[0], too_large, unknown], replace(fitted, experiments=()))
    assert [case.stage for case in comparison.cases] == [stages[0]]
    assert ["no block" in one.why for one in comparison.refused] == [True, False]


@pytest.mark.parametrize(
    ("named", "entry"),
    [
        ("H100-SXM-80GB", "h100-sxm"),
        ("A100-SXM-80GB", "a100-80gb"),
        ("L40S-PCIE-48GB", "l40s"),
        ("h100_sxm", "h100-sxm"),
        ("A100-PG509-200", "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("NVIDIA GB200", "gb200"),
        ("H100 PCIe 80GB", "h100-pcie"),
        ("GH200-120GB", "gh200"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", ""),
        ("H1000-X", ""),
    ],
)
def test_a_device_goes_by_the_longest_name_that_is_known(named: str, entry: str) -> None:
    assert hardware_named(named) == entry


def test_a_chip_with_several_memories_is_the_one_of_the_memory_stated() -> None:
    assert [hardware_named("A100", 40), hardware_named("NVIDIA A100-PG509-200", 39.4)] == ["a100-40gb"] * 2
    assert hardware_named("H100", 96) == "h100-96gb"


def test_faults_of_a_table_are_reported_at_once(stages: list[Stage], tmp_path: Path) -> None:
    wrong = replace(stages[0], output_len=-5, dtype="fp7")
    folder = write([stages[1], wrong], tmp_path)
    with pytest.raises(ConfigError) as error:
        read_stages(folder)
    assert [line.split(": ")[1] for line in str(error.value).splitlines()] == ["row 2.dtype", "row 2.output_len"]
    with pytest.raises(ConfigError, match="give the folder of"):
        read_stages(tmp_path / "none")
    with pytest.raises(UserError, match="1 experiment below saturation"):
        fitted_coefficients(stages[:2], FORMULA, "few")


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("a,b\n1,2\n", "lacks the columns model, gpu, tp"),
        ("model,gpu,tp,prompt,output_len\nLlama,H100,1,,120\n", r"row 1\.prompt: missing"),
        (None, r"serving_capacity\.csv"),
    ],
)
def test_a_faulty_table_of_capacities_is_reported(
    table: str | None, fault: str, stages: list[Stage], fitted: Coefficients, tmp_path: Path
) -> None:
    path = tmp_path / "serving_capacity.csv"
    path.mkdir() if table is None else path.write_text(table)
    with pytest.raises(ConfigError, match=fault):
        list(capacities(tmp_path, ServingComparison(stages[:1], replace(fitted, experiments=()))))


def test_the_clients_time_is_never_negative() -> None:
    assert first_token_us([(10.0, 5.0)]) == 0.0
    assert first_token_us([(10.0, 15.0), (20.0, 25.0)]) == pytest.approx(5.0)
