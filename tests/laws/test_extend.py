"""The examples of `docs/extend.md`, each in the files that the page states, work in a copy of the project."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.laws.project_copy import EXAMPLES, ONE_STAGE, ROOT, RUN, project_with_examples, python_files, run_modules

FILES = {
    "operator": {"sampling/operators/soft_cap.py", "sampling/torch_work/operators/soft_cap.py"},
    "mixer": {
        "sampling/operators/lightning_attention.py",
        "sampling/torch_work/operators/lightning_attention.py",
        "predict/layers/lightning.py",
        "predict/huggingface/families/minimax.py",
    },
    "model_family": {"predict/huggingface/families/helium.py"},
    "schedule": {"predict/schedules/families/eager_1f1b.py"},
    "importer": {"sampling/importers/hipblaslt_bench.py"},
    "log_format": {"predict/measured_runs/logs/nanogpt.py"},
    "framework": set(),
    "memory_profile": set(),
    "hardware": set(),
}
"""Python files of each example beside its test; the last three are YAML alone."""
ONE_BATCH, MEMORY = ("predict", "one-batch", RUN), ("predict", "memory", RUN, *ONE_STAGE, "--set=plan.zero=3")
ON_EIGHT = ("--set=placement.tp=8", "--set=placement.precision=fp8")
OPERATORS = ("soft_cap", "plain_cap")
SEARCHES = {
    RUN: ("--set=plan.tp=[4,8]", "--jobs=1", "--top=2"),
    "configs/rl/qwen3-30b-a3b-grpo.yml": ("--set=rl.n=[16,32]",),
    "configs/serving/llama3-8b-h100.yml": ("--set=placement.tp=[1,2]", "--model=formula"),
}
COMMANDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "framework": tuple(
        (*ONE_BATCH, *ONE_STAGE, "--set=plan.zero=3", f"--set=execution.framework={name}", "--json")
        for name in ("transformers-trainer", "fsdp")
    ),
    "hardware": tuple((*ONE_BATCH, f"--set=cluster.hardware={name}", "--json") for name in ("a40", "h100-sxm")),
    "importer": (
        ("sampling", "import", "--help"),
        ("sampling", "import", "hipblaslt-bench", "gemm.log", "--system", "mi300x"),
    ),
    "log_format": (("predict", "calibrate", RUN, "--measured", "nanogpt.log", "--dry-run", "--json"),),
    "memory_profile": tuple(
        (*MEMORY, f"--set=execution.framework={name}", "--json") for name in ("fsdp-compile", "fsdp-liger")
    ),
    "model_family": (("predict", "one-batch", "configs/runs/helium.yml", "--json"),),
    "schedule": (
        ("predict", "schedule", "--pp", "4", "--microbatches", "16", "--p2p", "0.5", "--schedule", "all", "--json"),
        (*ONE_BATCH, "--set=plan.vpp=1", "--set=plan.schedule=eager-1f1b", "--json"),
    ),
    "mixer": (
        ("predict", "one-batch", "configs/runs/minimax.yml", "--set=plan.ep=8", "--json"),
        ("predict", "memory", "configs/runs/minimax.yml", "--set=plan.ep=8", "--json"),
        ("predict", "serving-step", "configs/serving/minimax.yml", *ON_EIGHT, "--decodes=16x4000", "--json"),
    ),
    "operator": tuple(("tests.operator_everywhere", name) for name in OPERATORS),
    "column": tuple(
        ("predict", "search", config, *options, *form)
        for config, options in SEARCHES.items()
        for form in ((), ("--json",))
    ),
}
"""What is run of each example."""
MINIMAX_TEXT_01 = {
    "model_type": "minimax",
    "num_hidden_layers": 80,
    "hidden_size": 6144,
    "intermediate_size": 9216,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 200064,
    "num_local_experts": 32,
    "num_experts_per_tok": 2,
    "layer_types": (["linear_attention"] * 7 + ["full_attention"]) * 10,
}
"""Of arXiv 2501.08313."""
LISTS = (
    "examples_cover or importer_is_found or catalogue_has or every_family or every_part or ends_divide or every_format or eager-1f1b "
    "or transformers-trainer or hipblaslt-bench",
    "tests/test_architecture.py",
    "tests/sampling/importers/test_storing.py",
    "tests/sampling/test_hardware.py",
    "tests/conformance",
    "tests/predict/memory/test_activations.py",
)
FIGURES = ("figures and not (engines or fleets)", "tests/golden/test_figures.py")
"""Engines and fleets are played over tables of the tests' own, which no example changes."""
PAGES = ("up_to_date or names_listed", "tests/docs/test_pages.py")
Outputs = Mapping[str, list[str]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_with_examples(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def outputs(project: Path, warm_python: Path) -> Outputs:
    """What each command prints, one after the other in one process, in which the examples' own tests pass too, and the project's."""
    write_inputs(project)
    add_operator_without_optional_properties(project)
    add_column(project)
    own = sorted(path for example in FILES for path in python_files(example) if path.startswith("tests/"))
    tests = [("pytest", "-p", "no:cacheprovider", *own)]
    tests += [("pytest", "-p", "no:cacheprovider", "-k", *each) for each in (LISTS, FIGURES, PAGES)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(warm_python))
        every = [command for commands in COMMANDS.values() for command in commands]
        printed = iter(run_modules(project, *every, *tests))
    return {example: [next(printed) for _ in commands] for example, commands in COMMANDS.items()}


def write_inputs(project: Path) -> None:
    """The logs and configs that the commands read."""
    header = "transA,transB,M,N,K,d_type,compute_type,hipblaslt-Gflops,us"
    good = [f"N,N,{1024 * m},4096,4096,bf16_r,f32_r,600000,{57.3 * m}" for m in range(1, 6)]
    impossible = "N,N,8192,4096,4096,bf16_r,f32_r,60000000,4.0"
    (project / "gemm.log").write_text("\n".join((header, *good, impossible)))
    lines = (f"iter {step}: loss 2.5, time {15_000 + step % 3:.2f}ms, mfu 40.00%" for step in range(20))
    (project / "nanogpt.log").write_text("\n".join(lines))
    configs = project / "configs"
    (configs / "models/minimax-text-01.json").write_text(json.dumps(MINIMAX_TEXT_01))
    for source, named, made, model in (
        (RUN, "llama3-70b", "runs/helium.yml", "helium-1-preview-2b"),
        (RUN, "llama3-70b", "runs/minimax.yml", "minimax-text-01"),
        ("configs/serving/llama3-8b-h100.yml", "llama3-8b", "serving/minimax.yml", "minimax-text-01"),
    ):
        config = (project / source).read_text().replace(f"model: {named}", f"model: ../models/{model}.json")
        (configs / made).write_text(config)


def add_operator_without_optional_properties(project: Path) -> None:
    """`plain_cap`, which is `soft_cap` without any of the properties that an operator may declare."""
    optional = ("FUSIBLE", "BANDWIDTH", '"""The shares of GELU')
    for path in FILES["operator"]:
        lines = (project / path).read_text().splitlines()
        kept = [line for line in lines if not line.strip().startswith(optional)]
        assert len(lines) - len(kept) == (0 if "torch_work" in path else 3)
        text = "\n".join(kept).replace("soft_cap", "plain_cap").replace("SoftCap", "PlainCap")
        (project / path).with_name("plain_cap.py").write_text(text)


def add_column(project: Path) -> None:
    """A further column of the tables of all searches, in one line."""
    before = "COMMON: Columns[Mapping[str, Any]] = ("
    column = (
        '\n    Column(key="gpu_pairs", heading="pairs", value=lambda row: row["n_cards"] / 2, write="{:g} p".format),'
    )
    place = project / "predict/reports/search_columns.py"
    assert place.read_text().count(before) == 1
    place.write_text(place.read_text().replace(before, before + column))


def json_of(outputs: Outputs, example: str) -> list[Any]:
    """What the commands of an example print as JSON."""
    return [json.loads(output) for output in outputs[example]]


@pytest.mark.parametrize("example", FILES)
def test_an_example_is_as_many_files_as_stated_and_one_test(example: str) -> None:
    tests = {path for path in python_files(example) if path.startswith("tests/")}
    assert len(tests) == 1
    assert python_files(example) - tests == FILES[example]


def test_the_page_shows_the_operator_as_it_is() -> None:
    page = (ROOT / "docs" / "extend.md").read_text()
    for path in (EXAMPLES / "operator" / "sampling").rglob("*.py"):
        assert path.read_text() in page, path


def test_a_framework_is_predicted_with_its_own_settings(outputs: Outputs) -> None:
    added, fsdp = json_of(outputs, "framework")
    assert added["step_time_us"]["median"] != fsdp["step_time_us"]["median"]


def test_a_run_names_hardware_and_takes_longer_on_a_slower_device(outputs: Outputs) -> None:
    a40, h100 = json_of(outputs, "hardware")
    assert a40["step_time_us"]["median"] > 2 * h100["step_time_us"]["median"]


def test_the_import_command_knows_an_importer_and_its_rows_pass_the_gate(outputs: Outputs, project: Path) -> None:
    help_text, printed = outputs["importer"]
    assert "hipblaslt-bench" in help_text
    assert "kept 5 rows (1 quarantined)" in printed
    assert "faster than the physical bound" in printed
    assert (project / "data/imported/samples/mi300x-hipblaslt-bench/gemm.parquet").is_file()


def test_a_calibration_is_fitted_to_a_log_of_a_format(outputs: Outputs) -> None:
    (fitted,) = outputs["log_format"]
    assert "nanogpt.log (nanoGPT, " in fitted


def test_a_framework_with_a_memory_profile_keeps_its_activations_that_way(outputs: Outputs) -> None:
    plain, liger = json_of(outputs, "memory_profile")
    assert (plain["memory_profile"], liger["memory_profile"]) == ("fsdp2-compile", "liger")
    of_plain, of_liger = (
        unit["activations"] for memory in (plain, liger) for unit in memory["layers"] if unit["unit"] == "head"
    )
    logits = 4 * 8192 * 128256
    assert of_plain - of_liger == logits


def test_a_run_of_a_family_is_predicted(outputs: Outputs) -> None:
    (predicted,) = json_of(outputs, "model_family")
    assert predicted["step_time_us"]["median"] > 0


def test_a_schedule_is_compared_with_the_others_and_a_run_takes_it_by_its_name(outputs: Outputs) -> None:
    compared, predicted = json_of(outputs, "schedule")
    times = {each["name"]: each.get("makespan") for each in compared["schedules"]}
    assert times["eager-1f1b"] < times["1f1b"]
    assert predicted["step_time_us"]["median"] > 0


def test_a_mixer_has_a_step_time_memory_by_kind_of_layer_and_servers(outputs: Outputs) -> None:
    step, memory, server_step = json_of(outputs, "mixer")
    assert step["step_time_us"]["median"] > 0
    assert {"full_moe", "lightning_attention_moe"} <= {unit["unit"] for unit in memory["layers"]}
    assert server_step["models"][0]["step_us"]["median"] > 0


def test_an_operator_is_sampled_learnt_priced_and_in_the_ledger(outputs: Outputs) -> None:
    for name, found in zip(OPERATORS, json_of(outputs, "operator"), strict=True):
        assert found["registered"]
        assert found["survives_its_fields"]
        assert found["timed_us"].keys() == {"forward", "backward"}
        assert min(found["timed_us"].values()) > 0
        assert found["learnt"]["source"] == "measured"
        assert found["learnt"]["us"] == pytest.approx(found["expected_us"], rel=0.02)
        assert found["analytic"] == ["analytic"]
        assert found["ledger_us"].keys() == {name}


def test_a_column_of_one_line_is_in_every_searchs_text_and_json(outputs: Outputs) -> None:
    """For training, RL and serving configs alike."""
    texts, contents = outputs["column"][::2], map(json.loads, outputs["column"][1::2])
    for text in texts:
        assert "pairs" in text and " p" in text
    for content in contents:
        rows = content.get("best") or content["rows"]
        assert all(row["gpu_pairs"] == row["gpus"] / 2 for row in rows)
