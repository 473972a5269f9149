"""A sound config becomes the run it describes, whichever of the accepted names it uses."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from predict.config import load as config
from predict.config.load import load
from predict.model.shipped import shipped_model, shipped_models
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS, DATA_VARIABLE
from sampling.hardware.cluster import device_names, hardware_entry, hardware_facts, known_hardware

SHIPPED = sorted((CONFIGS / "runs").rglob("*.yml"))
SOUND: dict[str, Any] = {
    "model": {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "vocab_size": 512,
    },
    "cluster": {"hardware": "cpu", "nodes": 1, "gpus_per_node": 2, "profile": "nowhere"},
    "plan": {"tp": 1, "pp": 2, "zero": 0, "schedule": "1f1b"},
    "batch": {"global": 8, "micro": 1, "seq_len": 16},
    "precision": "fp32",
}


def loaded(directory: Path, document: Any, overrides: Sequence[str] = ()) -> TrainingRun:
    path = directory / "run.yml"
    path.write_text(yaml.safe_dump(document))
    return load(path, overrides)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_run_loads_and_fills_its_cluster(path: Path) -> None:
    run = load(path)
    assert run.name == path.stem
    assert run.plan.tp * run.plan.pp * run.plan.cp * run.plan.dp == run.cluster.world_size
    assert run.microbatches * run.batch.micro * run.plan.dp == run.batch.global_


def test_the_values_arrive_where_they_belong(tmp_path: Path) -> None:
    run = loaded(tmp_path, SOUND)
    assert (run.model.layers, run.model.head_dim, run.model.kv_heads, run.model.ffn) == (4, 16, 2, 96)
    assert run.plan == Plan(pp=2)
    assert (run.batch.global_, run.batch.micro, run.batch.seq_len) == (8, 1, 16)
    assert (run.precision, run.cluster.profile, run.cluster.gpus_per_node) == ("fp32", "nowhere", 2)


def test_overrides_replace_single_values_and_whole_sections(tmp_path: Path) -> None:
    (tmp_path / "tiny.json").write_text(json.dumps(SOUND["model"]))
    overrides = ["plan.pp=1", "plan.tp=2", "model.num_hidden_layers=12", "batch={global: 4, micro: 2, seq_len: 8}"]
    run = loaded(tmp_path, {**SOUND, "model": "tiny.json"}, [*overrides, "precision=bf16"])
    assert (run.plan.tp, run.plan.pp, run.model.layers, run.model.name) == (2, 1, 12, "tiny")
    assert (run.batch.micro, run.precision) == (2, "bf16")


def test_an_override_finds_a_key_under_its_familys_own_name(tmp_path: Path) -> None:
    run = load(CONFIGS / "runs" / "demo.yml", ["model=../models/gpt2.json", "model.num_hidden_layers=4"])
    assert (run.model.layers, run.model.hidden, run.model.rope) == (4, 768, False)


MEGATRON = {
    "tensor_model_parallel_size": ("plan.tp", 2),
    "pipeline-model-parallel-size": ("plan.pp", 1),
    "sequence_parallel": ("plan.sp", True),
    "recompute-granularity": ("plan.recompute", "full"),
    "global_batch_size": ("batch.global", 4),
    "micro-batch-size": ("batch.micro", 2),
    "seq_length": ("batch.seq_len", 32),
}


def test_megatron_names_mean_the_same_at_the_top_in_a_section_and_as_overrides(tmp_path: Path) -> None:
    values = dict(MEGATRON.values())
    plain = {**SOUND, "plan": {}, "batch": {}}
    named = {name: value for name, (_, value) in MEGATRON.items()}
    in_sections: dict[str, Any] = {**plain, "plan": {}, "batch": {}}
    for name, (path, value) in MEGATRON.items():
        in_sections[path.split(".")[0]][name] = value
    expected = loaded(tmp_path, SOUND, [f"{path}={json.dumps(value)}" for path, value in values.items()])
    assert expected.plan.sp
    assert loaded(tmp_path, {**plain, **named}) == expected
    assert loaded(tmp_path, in_sections) == expected
    assert loaded(tmp_path, SOUND, [f"{name}={json.dumps(value)}" for name, value in named.items()]) == expected


@pytest.mark.parametrize(("routing", "load"), [("natural", "natural"), ("forced", "balanced")])
def test_the_routing_of_experts_is_their_load(tmp_path: Path, routing: str, load: str) -> None:
    framework = {"framework": "megatron-core"}
    mixture = {**SOUND, "model": str(CONFIGS / "models" / "mixtral-8x7b.json"), "execution": framework}
    expected = loaded(tmp_path, mixture, [f"execution.expert_load={load}"])
    assert expected.execution.expert_load == load
    assert loaded(tmp_path, {**mixture, "experts": {"routing": routing}}) == expected
    assert loaded(tmp_path, mixture, [f"experts.routing={routing}"]) == expected
    skewed = {**mixture, "execution": {**framework, "expert_load": "power_law_1.2"}}
    with pytest.raises(ConfigError, match=r"experts.routing: '?.*, but execution.expert_load .* is 'power_law_1.2'"):
        loaded(tmp_path, {**skewed, "experts": {"routing": routing}})
    for setting in ("experts.load=1.4", "execution.expert_load=1.4", "execution.expert_load='1.4'"):
        assert loaded(tmp_path, mixture, [setting]).execution.expert_load == "1.4"
    written = {**mixture, "execution": {**framework, "expert_load": 2}, "experts": {"load": 2}}
    assert loaded(tmp_path, written).execution.expert_load == "2"
    for wrong in ("true", "-1.4", ".nan", "busy"):
        with pytest.raises(
            ConfigError, match=r"expert_load: .*; give one of balanced, natural, untouched, or a number"
        ):
            loaded(tmp_path, mixture, [f"execution.expert_load={wrong}"])
    with pytest.raises(ConfigError, match=r"experts.routng: unknown key; .* 'routing'"):
        loaded(tmp_path, {**mixture, "experts": {"routng": routing}})


def test_the_distributed_optimizer_is_zero_1_and_model_aliases_make_a_model(tmp_path: Path) -> None:
    inline = {key: value for key, value in SOUND["model"].items() if key != "num_hidden_layers"}
    document = {**SOUND, "model": inline, "num_layers": 6, "use_distributed_optimizer": True}
    del document["plan"]
    run = loaded(tmp_path, {**document, "plan": {"dp": 2}})
    assert (run.model.layers, run.plan.zero) == (6, 1)


def test_cores_come_from_the_config_then_from_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    one_machine = os.cpu_count() or 1
    if one_machine > 1:
        assert loaded(tmp_path, SOUND).cluster.threads == one_machine // 2
    profile = tmp_path / "data" / "samples" / "nowhere"
    profile.mkdir(parents=True)
    manifest = {"profile": "nowhere", "hardware": "cpu", "device": {"cores": 64}, "sessions": [], "version": 1}
    (profile / "manifest.json").write_text(json.dumps(manifest))
    assert loaded(tmp_path, SOUND).cluster.threads == 32
    assert loaded(tmp_path, SOUND, ["cluster.cores=8"]).cluster.threads == 4
    with pytest.raises(ConfigError, match=r"--set: cluster\.gpus_per_node: 128 ranks need a core each, and .* has 64;"):
        loaded(tmp_path, SOUND, ["cluster.gpus_per_node=128", "plan.pp=1", "plan.dp=128", "batch.global=128"])
    with pytest.raises(
        ConfigError,
        match=r"run\.yml with --set cluster\.cores=1: cluster\.gpus_per_node: 2 ranks need a core each, and .* has 1;",
    ):
        loaded(tmp_path, SOUND, ["cluster.cores=1"])


RUN: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"hardware": "H100", "nodes": 1, "gpus_per_node": 8},
    "plan": {"tp": 2, "dp": 4},
    "batch": {"global": 8, "micro": 1, "seq_len": 4096},
    "precision": "bf16",
}


@pytest.mark.parametrize(
    ("plan", "settings", "dp"),
    [
        ({"tp": 2}, [], 4),  # nothing gives it
        ({"tp": 2, "dp": 4}, ["plan.tp=1"], 8),
        ({"tp": 2, "dp": 4}, ["plan.tp=1", "plan.cp=2"], 4),
        ({"tp": 2, "dp": 4}, ["cluster.nodes=2"], 8),
        ({"tp": 2, "dp": 4}, ["plan={tp: 8}"], 1),
        ({"tp": 2, "dp": 4}, ["tensor_model_parallel_size=4"], 2),
        ({"tp": 2, "dp": 4}, ["batch.micro=2"], 4),
    ],
)
def test_dp_takes_the_ranks_that_are_left(tmp_path: Path, plan: dict[str, int], settings: list[str], dp: int) -> None:
    run = loaded(tmp_path, {**RUN, "plan": plan}, settings)
    assert run.plan.dp == dp
    assert run.plan.tp * run.plan.cp * run.plan.dp == run.cluster.world_size


@pytest.mark.parametrize(
    ("plan", "settings"), [({"tp": 2, "dp": 2}, []), ({"tp": 2, "dp": 4}, ["plan.tp=1", "plan.dp=4"])]
)
def test_a_dp_that_is_given_is_not_changed(tmp_path: Path, plan: dict[str, int], settings: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"plan.dp: .*; set plan.dp to [48]"):
        loaded(tmp_path, {**RUN, "plan": plan}, settings)


# Shipped models, clusters and devices by name, without a file beside the config.


def loaded_by_name(folder: Path, **changes: object) -> TrainingRun:
    return loaded(folder, {**RUN, **changes})


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("llama3-8b", "llama3-8b"),
        ("Llama-3-8B", "llama3-8b"),
        ("meta-llama/Meta-Llama-3-70B-Instruct", "llama3-70b"),
        ("Llama-3.1-8B", "llama3.1-8b"),
        ("Llama-3.1-405B", "llama3.1-405b"),
        ("meta-llama/Llama-2-7b-hf", "llama2-7b"),
        ("Qwen/Qwen2.5-7B", "qwen2.5-7b"),
        ("deepseek-ai/DeepSeek-V2-Lite", "deepseek-v2-lite"),
    ],
)
def test_a_model_goes_by_its_usual_names(name: str, model: str) -> None:
    path = shipped_model(name)
    assert path is not None
    assert path.stem == model


def test_a_config_names_a_model_and_is_given_its_proper_name(tmp_path: Path) -> None:
    assert loaded_by_name(tmp_path, model="Llama-3.1-8B").model.name == "llama3.1-8b"


def test_no_two_models_go_by_one_name() -> None:
    assert [path.stem for name in shipped_models() if (path := shipped_model(name))] == shipped_models()


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("H100", "h100-sxm"),
        ("H100-SXM", "h100-sxm"),
        ("A100", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("RTX 4090", "rtx-4090"),
        ("MI300X", "mi300x"),
        ("h200", "h200"),
    ],
)
def test_a_device_goes_by_its_usual_names(name: str, entry: str, tmp_path: Path) -> None:
    assert hardware_entry(name) == entry
    run = loaded_by_name(tmp_path, cluster={**RUN["cluster"], "hardware": name}, precision="bf16")
    assert run.cluster.gpu.name == hardware_facts(entry).name


def test_no_two_devices_go_by_one_name() -> None:
    for entry in known_hardware():
        facts = hardware_facts(entry)
        assert {hardware_entry(name) for name in (facts.name, *device_names(entry), *facts.aliases)} == {entry}


def test_a_cluster_goes_by_the_name_of_its_file(tmp_path: Path) -> None:
    cluster = loaded_by_name(tmp_path, cluster="one-node-8xh100").cluster
    assert (cluster.world_size, cluster.profile) == (8, "one-node-8xh100")


def test_a_file_beside_the_config_is_still_a_path(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("{hardware: h200, nodes: 1, gpus_per_node: 8, profile: mine}")
    assert loaded_by_name(tmp_path, cluster="mine").cluster.profile == "mine"


@pytest.mark.parametrize(("hardware", "profile"), [("H100", "h100-sxm"), ("mi300x", "mi300x"), ("cpu", "this-machine")])
def test_a_cluster_needs_no_profile(hardware: str, profile: str, tmp_path: Path) -> None:
    cluster = {**RUN["cluster"], "hardware": hardware, "gpus_per_node": 1}
    run = loaded_by_name(tmp_path, cluster=cluster, plan={}, precision="fp32", execution={})
    assert run.cluster.profile == profile


def test_a_copied_shipped_config_is_the_same_run(tmp_path: Path) -> None:
    shipped = sorted([*(CONFIGS / "runs").rglob("*.yml"), *(CONFIGS / "searches").rglob("*.yml")])
    assert [path.name for path in shipped if "../" in path.read_text()] == []
    copy = tmp_path / "demo.yml"
    copy.write_text((CONFIGS / "runs" / "demo.yml").read_text())
    assert load(copy) == load(CONFIGS / "runs" / "demo.yml")


def test_a_path_of_no_file_is_refused_with_the_shipped_name_that_would_do(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"model: '../models/llama3-70b.json'.*or give a shipped model .*: llama3-70b"
    ):
        loaded_by_name(tmp_path, model="../models/llama3-70b.json")
    with pytest.raises(
        ConfigError, match=r"cluster: '../c/this-machine.yml'.*a shipped cluster by its name: this-machine"
    ):
        loaded_by_name(tmp_path, cluster="../c/this-machine.yml")


# The hardware of a run config: an entry of the catalogue or a file, with every fault of it reported beside the others.

DEMO = CONFIGS / "models" / "demo-llama.json"


def run(folder: Path, hardware: str, precision: str = "bf16", plan: str = "{pp: 2}") -> Path:
    path = folder / "run.yml"
    path.write_text(
        f"model: {DEMO}\ncluster: {{hardware: {hardware}, nodes: 1, gpus_per_node: 2, profile: none}}\n"
        f"plan: {plan}\nbatch: {{global: 8, micro: 2, seq_len: 128}}\nprecision: {precision}\n"
    )
    return path


def refusal(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as error:
        config.load(path)
    return str(error.value).splitlines()


def test_a_run_may_name_a_file_of_hardware_beside_it(tmp_path: Path) -> None:
    facts = yaml.safe_load((CONFIGS / "hardware" / "h200.yml").read_text()) | {"name": "my GPU"}
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(facts))
    path = run(tmp_path, "./mine.yml")
    assert config.load(path).cluster.gpu.name == "my GPU"
    assert config.load(path, ["cluster.hardware=mine.yml"]).cluster.gpu.name == "my GPU"


def test_faults_of_a_hardware_file_are_reported_with_those_of_the_run(tmp_path: Path) -> None:
    facts = yaml.safe_load((CONFIGS / "hardware" / "h200.yml").read_text()) | {"memory_gib": -1, "cache_mib": "big"}
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(facts))
    reported = refusal(run(tmp_path, "mine.yml", plan="{pp: 3}"))
    assert [line for line in reported if "cluster.hardware: " in line and "mine.yml: memory_gib: -1" in line]
    assert [line for line in reported if "cluster.hardware: " in line and "mine.yml: cache_mib: 'big'" in line]
    assert [line for line in reported if ": plan.dp: " in line]


def test_an_unknown_device_says_how_to_describe_it(tmp_path: Path) -> None:
    (line,) = refusal(run(tmp_path, "h300"))
    assert line.startswith(f"{tmp_path / 'run.yml'}: cluster.hardware: hardware 'h300'")
    assert "configs/hardware/h300.yml" in line
    assert "peak_tflops" in line


def test_a_misspelt_key_is_the_one_fault_and_not_what_its_default_would_break(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, SOUND | {"plan": {"ttp": 2, "dp": 1}})
    assert str(refused.value).endswith("plan.ttp: unknown key; did you mean 'tp'?")


def test_the_config_json_of_a_model_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is the config\.json of a model"):
        loaded(tmp_path, SOUND["model"] | {"architectures": ["LlamaForCausalLM"]})


@pytest.mark.parametrize(
    ("folder", "name"),
    [("tiny-llama", "tiny-llama"), ("models--owner--tiny-llama/snapshots/0a1b2c", "tiny-llama")],
)
def test_a_config_json_has_the_name_of_its_folder(folder: str, name: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "config.json").write_text(json.dumps(SOUND["model"]))
    assert loaded(tmp_path, SOUND | {"model": f"{folder}/config.json"}).model.name == name
