"""Every fault of a config is reported at once: where it is, what the value is, and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from predict.config.load import load
from sampling.errors import ConfigError

MODEL = (
    "{model_type: llama, hidden_size: 64, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 96, "
    "num_hidden_layers: 4, vocab_size: 512}"
)
SECTIONS = {
    "model": MODEL,
    "cluster": "{hardware: cpu, nodes: 1, gpus_per_node: 2, profile: nowhere}",
    "plan": "{pp: 2}",
    "batch": "{global: 8, micro: 1, seq_len: 16}",
    "precision": "fp32",
}


def config(*, without: str = "", **sections: str) -> str:
    """A sound config with some sections replaced or left out."""
    lines = {**SECTIONS, **sections}
    return "".join(f"{name}: {text}\n" for name, text in lines.items() if name != without)


def model(**keys: str) -> str:
    """A config whose inline model has keys replaced or added."""
    plain = dict(part.split(": ") for part in MODEL.strip("{}").split(", "))
    return config(model="{" + ", ".join(f"{key}: {value}" for key, value in {**plain, **keys}.items()) + "}")


def refusal(directory: Path, text: str, *overrides: str) -> list[str]:
    path = directory / "run.yml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    assert caught.value.exit_code == 2
    return str(caught.value).splitlines()


GPT2 = "{model_type: gpt2, n_layer: 2, n_embd: 64, n_head: 4, n_positions: 8, vocab_size: 512}"
NEOX = MODEL.replace("llama", "gpt_neox").replace("num_key_value_heads: 2, ", "")
ROWS: list[tuple[str, str, list[str]]] = [
    (config(plan="{tp: two}"), "plan.tp", ["'two'", "whole number"]),
    (config(batch="{global: 8, micro: 1, seq_len: 999999999}"), "batch.seq_len", ["999999999", "134217728"]),
    (config(plan="{tp: 1.5}"), "plan.tp", ["1.5", "whole number"]),
    (config(plan="{tp: true}"), "plan.tp", ["true", "whole number"]),
    (config(plan="{tp: .nan}"), "plan.tp", ["nan", "whole number"]),
    (config(plan="{tp: null}"), "plan.tp", ["null"]),
    (config(plan="{tp: 0}"), "plan.tp", ["0", "out of range", "from 1"]),
    (config(plan="{pp: 2, sp: 1}"), "plan.sp", ["1", "true or false"]),
    (config(plan="{ttp: 2, pp: 2}"), "plan.ttp", ["unknown key"]),
    (config(plan="{pp: 2, schedul: 1f1b}"), "plan.schedul", ["did you mean 'schedule'"]),
    (config(plan="{pp: 2, schedule: 1f1f}"), "plan.schedule", ["'1f1f'", "afab", "did you mean '1f1b'"]),
    (config(plan="{pp: 2, recompute: ful}"), "plan.recompute", ["'ful'", "did you mean 'full'"]),
    (
        config(plan="{pp: 2, recompute: selective}"),
        "plan.recompute",
        ["which execution.framework torch does not model"],
    ),
    (config(plan="{dp: 2, zero: 2}"), "plan.zero", ["2", "which execution.framework torch does not model"]),
    (config(plan="{pp: 2, zero: 4}"), "plan.zero", ["4", "out of range"]),
    (config(plan="{cp: 2}"), "plan.cp", ["2", "which execution.framework torch does not model"]),
    (config(plan="{pp: 2, ep: 2}"), "plan.ep", ["spreads experts", "set both to 1"]),
    (config(plan="{pp: 2, etp: 2}"), "plan.ep", ["plan.etp 2", "set both to 1"]),
    (
        config(plan="{pp: 2, vpp: 2}"),
        "plan.schedule",
        ["1f1b needs one chunk per rank (plan.vpp), not 2", "set plan.vpp to 1"],
    ),
    (
        config(plan="{pp: 2, schedule: zbv}"),
        "plan.schedule",
        ["needs two chunks per rank (plan.vpp), not 1", "set plan.vpp to 2"],
    ),
    (config(plan="{pp: 2, schedule: none.csv}"), "plan.schedule", ["none.csv", "cannot be read"]),
    (config(plan="{pp: 2, schedule: zb-h1, recompute: full}"), "plan.recompute", ["recompute the forward"]),
    (config(plan="{pp: 2, memory_limit: -1}"), "plan.memory_limit", ["-1", "whole number from 0"]),
    (config(plan="{dp: 2, vpp: 2}"), "plan.vpp", ["2 needs plan.pp above 1"]),
    (config(plan="{pp: 2, sp: true}"), "plan.sp", ["needs plan.tp above 1"]),
    (config(plan="{pp: 2, zero: 1}"), "plan.zero", ["1 needs plan.dp above 1", "set plan.zero to 0"]),
    (config(plan="{pp: 1, dp: 1}"), "plan.dp", ["nodes · gpus_per_node = 2", "set plan.dp to 2"]),
    (config(plan="{pp: 3}"), "plan.dp", ["no plan.dp mends that", "1, 2"]),
    (config(plan="3"), "plan", ["3", "mapping"]),
    (config(plan="[tp, 2]"), "plan", ["mapping"]),
    (config(batch="{global: 8, micro: -4, seq_len: 16}"), "batch.micro", ["-4", "out of range"]),
    (config(batch="{global: 8, seq_len: 16}"), "batch.micro", ["missing"]),
    (config(batch="{global: 7, micro: 2, seq_len: 16}"), "batch.global", ["7", "= 2", "set 6 or 8"]),
    (config(batch="{global: 8, micro: 1, seq_len: 1" + "0" * 30 + "}"), "batch.seq_len", ["out of range"]),
    (config(batch="{global: 8, micro: 1, seq_len: 0x" + "f" * 5000 + "}"), "batch.seq_len", ["20000 bits"]),
    (config(plan="{tp: 2, sp: true}", batch="{global: 8, micro: 1, seq_len: 15}"), "batch.seq_len", ["14 or 16"]),
    (config(model=GPT2), "batch.seq_len", ["16", "8 learnt positions"]),
    (config(precision="fp31"), "precision", ["'fp31'", "did you mean"]),
    (config(precision="fp8"), "precision", ["fp8", "CPU core", "fp32"]),
    (config(without="precision"), "precision", ["missing", "bf16", "no default"]),
    (config(without="model"), "model", ["missing", "config.json"]),
    (config(without="batch"), "batch", ["missing", "seq_len"]),
    (config(without="cluster"), "cluster", ["missing", "gpus_per_node"]),
    (config(tp="2"), "tp", ["unknown key", "put it under plan"]),
    (config(bacth="2"), "bacth", ["did you mean 'batch'"]),
    (config(cluster="{hardware: cpuu, nodes: 1, gpus_per_node: 2, profile: x}"), "cluster.hardware", ["'cpu'"]),
    (config(cluster="{hardware: cpu, nodes: 1, gpus_per_node: 2, profile: ../x}"), "cluster.profile", ["plain name"]),
    (
        config(cluster="{hardware: cpu, nodes: 1, gpus_per_node: 2, profile: x, cores: 1}"),
        "cluster.gpus_per_node",
        ["2 ranks", "need a core each, and a machine has 1;", "set it to 1 or less, or cluster.cores to 2 or more"],
    ),
    (config(cluster="nowhere.yml"), "cluster", ["'nowhere.yml'", "no such file"]),
    (config(cluster="."), "cluster", ["directory"]),
    (config(cluster="7"), "cluster", ["7", "path"]),
    (config(model="nowhere.json"), "model", ["'nowhere.json'", "no such file"]),
    (config(model="."), "model", ["directory"]),
    (config(model='"a\\0b"'), "model", ["cannot be read"]),
    (config(plan="{tp: 2}").replace("size: 64", "size: 66"), "model.hidden_size", ["4 heads", "64 or 68"]),
    (config(plan="{tp: 4}"), "plan.tp", ["2 key and value heads", "copies no heads", "1, 2"]),
    (config(plan="{tp: 3}"), "plan.tp", ["4 attention heads", "1, 2, 4"]),
    (config(plan="{tp: 2}").replace("size: 96", "size: 97"), "plan.tp", ["MLP's width 97"]),
    (config(plan="{tp: 2}").replace("size: 512", "size: 50257"), "model.vocab_size", ["pad it to 50432"]),
    (model(num_key_value_heads="3"), "model.num_key_value_heads", ["4 query heads", "1, 2, 4"]),
    (model(num_hidden_layers="1"), "plan.pp", ["2 stages are more than the 1 layers"]),
    (model(head_dim="15"), "model.head_dim", ["15", "even"]),
    (model(hidden_act="relu"), "model.hidden_act", ["'relu'", "not modelled yet", "silu"]),
    (model(num_hiden_layers="3"), "model.num_hiden_layers", ["did you mean 'num_hidden_layers'"]),
    (model(num_layers="3"), "model.num_layers", ["3", "num_hidden_layers", "keep one"]),
    (model(num_local_experts="8"), "model.num_local_experts", ["mixture of experts", "not part of llama", "mixtral"]),
    (model(n_routed_experts="8"), "model.n_routed_experts", ["mixture of experts"]),
    (model(kv_lora_rank="512"), "model.kv_lora_rank", ["latent attention"]),
    (model(sliding_window="4096"), "model.sliding_window", ["sliding-window", "remove it", "mistral"]),
    (model(layer_types="[sliding_attention]"), "model.layer_types", ["'sliding_attention'"]),
    (model(model_type="mistral", sliding_window="-1"), "model.sliding_window", ["-1", "from 0"]),
    (model(model_type="qwen4"), "model.model_type", ["'qwen4'", "not modelled yet", "did you mean 'qwen3'"]),
    (model(model_type="mamba2"), "model.model_type", ["state-space layers would be needed"]),
    (model(add_cross_attention="true"), "model.add_cross_attention", ["not modelled yet", "false"]),
    (model(model_type="qwen3", layer_types="[full_attention]"), "model.layer_types", ["1 types", "4 layers", "null"]),
    (model(model_type="3"), "model.model_type", ["3"]),
    (config(model=NEOX.replace("}", ", rotary_pct: 1.5}")), "model.rotary_pct", ["1.5", "at most 1"]),
    (model(partial_rotary_factor="0.5"), "model.partial_rotary_factor", ["0.5", "set it to 1.0"]),
    (config(tensor_model_parallel_size="2", plan="{tp: 1, pp: 2}"), "tensor_model_parallel_size", ["plan.tp", "is 1"]),
    (config(plan="{pp: 2, tensor-model-parallel-size: 2, tp: 1}"), "plan.tensor-model-parallel-size", ["keep one"]),
    (config(plan="{pp: 2, pp: 1}"), "plan.pp", ["given twice", "lines 3 and 3"]),
    (config() + "precision: fp32\n", "precision", ["given twice", "lines 5 and 6"]),
]


@pytest.mark.parametrize(("text", "path", "fragments"), ROWS, ids=[f"{n}-{row[1]}" for n, row in enumerate(ROWS)])
def test_names_the_place_the_value_and_the_fix(tmp_path: Path, text: str, path: str, fragments: list[str]) -> None:
    lines = [line for line in refusal(tmp_path, text) if f"run.yml: {path}: " in line]
    assert any(all(fragment in line for fragment in fragments) for line in lines), refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        (b"", ["is empty"]),
        (b"- 1\n- 2\n", ["[1, 2]", "mapping"]),
        (b"plan: {tp: 1\nbatch: [\n", ["not valid YAML at line 2, column"]),
        (b"a: \xff\xfe", ["not UTF-8"]),
        (b"a: 2024-13-45\n", ["not valid YAML"]),
        (b"a: 1" + b"0" * 5000, ["not valid YAML"]),
        (b"[" * 5000, ["not valid YAML"]),
        (b"a: !!python/object:os.system {}\n", ["not valid YAML at line 1"]),
        (b"a: 1\n---\nb: 2\n", ["not valid YAML"]),
    ],
    ids=["empty", "list", "syntax", "binary", "date", "long integer", "deep", "tag", "documents"],
)
def test_names_what_is_wrong_with_the_file(tmp_path: Path, content: bytes, fragments: list[str]) -> None:
    path = tmp_path / "run.yml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert all(fragment in str(caught.value) for fragment in fragments), caught.value


def test_a_missing_run_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "demo.yml").write_text(config())
    with pytest.raises(ConfigError, match=r"there is no such file.*did you mean 'demo.yml'"):
        load(tmp_path / "demmo.yml")
    with pytest.raises(ConfigError, match="is a directory"):
        load(tmp_path)


def test_a_model_file_is_named_with_the_line_of_its_fault(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{\n "hidden_size": 64,\n}')
    (line,) = refusal(tmp_path, config(model="broken.json"))
    assert "broken.json" in line
    assert "line 3" in line or "line 2" in line


def test_a_fault_in_a_model_file_is_blamed_on_that_file(tmp_path: Path) -> None:
    (tmp_path / "tiny.json").write_text('{"model_type": "gpt2", "n_layer": 2, "n_layer": 2, "n_embd": "wide"}')
    lines = refusal(tmp_path, config(model="tiny.json"))
    start = f"{tmp_path / 'tiny.json'}: model."
    assert any(line.startswith(f"{start}n_embd: 'wide'") for line in lines)
    assert any(line.startswith(f"{start}n_layer: given twice") for line in lines)


def test_ten_faults_are_reported_in_one_message(tmp_path: Path) -> None:
    text = """\
model: {model_type: llama, hidden_size: -1, num_attention_heads: 4, num_key_value_heads: 3, intermediate_size: x,
  num_hidden_layers: 1, vocab_size: 511}
cluster: {hardware: gpu9000, nodes: 1, gpus_per_node: 0, profile: p}
plan: {tp: 2, pp: 2, zero: 3, schedule: zigzag}
batch: {global: 7, micro: 2, seq_len: 16}
precision: fp33
execution: {framework: torch}
extra: 1
"""
    reported = {line.split(": ")[1] for line in refusal(tmp_path, text)}
    assert reported == {
        "model.hidden_size",
        "model.num_key_value_heads",
        "model.intermediate_size",
        "plan.pp",
        "plan.tp",
        "model.vocab_size",
        "cluster.hardware",
        "cluster.gpus_per_node",
        "plan.zero",
        "plan.schedule",
        "batch.global",
        "precision",
        "extra",
    }


def test_a_fault_of_an_override_is_blamed_on_it(tmp_path: Path) -> None:
    assert refusal(tmp_path, config(), "plan.tp=two")[0].startswith("--set: plan.tp: 'two'")
    assert "write KEY=VALUE" in refusal(tmp_path, config(), "plan.tp")[0]
    assert "not YAML" in refusal(tmp_path, config(), "plan.tp=[")[0]
    assert "unknown key" in refusal(tmp_path, config(), "plan.tpp=2")[0]


def test_a_section_given_twice_is_a_fault_of_the_config_not_of_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, '
        '"intermediate_size": 96, "num_hidden_layers": 4, "vocab_size": 512}'
    )
    (line,) = refusal(tmp_path, config(model="model.json") + "model: model.json\n")
    assert line.startswith(f"{tmp_path / 'run.yml'}: model: given twice")


def test_a_missing_file_is_not_held_against_one_that_shares_its_suffix_alone(tmp_path: Path) -> None:
    (tmp_path / "abcd.json").write_text("{}")
    (missing,) = refusal(tmp_path, config(model="./e.json"))
    assert "did you mean" not in missing
    (near,) = refusal(tmp_path, config(model="./abce.json"))
    assert "did you mean 'abcd.json'?" in near
