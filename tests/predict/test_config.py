"""Every fault of a config is reported at once: where it is, what the value is, and the fix."""

from pathlib import Path

import pytest

from predict.config.document import Document
from predict.config.load import load
from predict.plan_search.default_plan import default_config
from sampling.errors import ConfigError
from tests.predict.config.fault_rows import ROWS, config


def refusal(directory: Path, text: str, *overrides: str) -> list[str]:
    path = directory / "run.yml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    assert caught.value.exit_code == 2
    return str(caught.value).splitlines()


@pytest.mark.parametrize(("text", "path"), ROWS, ids=[f"{n}-{row[1]}" for n, row in enumerate(ROWS)])
def test_the_key_is_blamed(tmp_path: Path, text: str, path: str) -> None:
    assert [line for line in refusal(tmp_path, text) if f"run.yml: {path}: " in line]


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


@pytest.mark.parametrize("path", ["model", "cluster", "cluster.hardware", "plan.schedule", "cluster.profile"])
def test_a_name_that_no_file_can_have_is_a_fault_of_its_key(tmp_path: Path, path: str) -> None:
    assert [line for line in refusal(tmp_path, config(), f"{path}={'x' * 5000}") if path in line]


def test_a_fault_across_keys_names_the_settings_that_it_looked_at(tmp_path: Path) -> None:
    """What the file says is sound by itself: the setting is as likely to blame."""
    (found,) = (
        line for line in refusal(tmp_path, config(), "plan.dp=3", "cluster.gpus_per_node=6") if "batch.global" in line
    )
    assert found.startswith(f"{tmp_path / 'run.yml'} with --set plan.dp=3: batch.global: ")
    assert "gpus_per_node" not in found, "which that rule does not look at"


def test_a_made_config_refuses_settings_that_have_no_place_but_those_of_files() -> None:
    made = Document(name="made", content={"batch": 8, "model": "models/llama3-8b.json"})
    assert made.with_settings(["model.layers=2", "plan.tp=2"]).content == {**made.content, "plan": {"tp": 2}}
    with pytest.raises(ConfigError, match=r"(?m)^--set: batch.micro: batch is 8") as caught:
        made.with_settings(["batch.micro=1", "plan.tp"])
    assert "'plan.tp' is not a setting" in str(caught.value)


def test_a_fault_of_a_made_config_names_its_settings() -> None:
    made = default_config("llama3-8b", "8xh100").with_settings(["plan.tp=3", "batch.micro=none"])
    with pytest.raises(ConfigError) as caught:
        load(made)
    lines = str(caught.value).splitlines()
    assert any(line.startswith("--set: plan.tp: 3 does not divide") for line in lines)
    assert any(line.startswith("--set: batch.micro: ") for line in lines)
    assert any("with --set plan.tp=3: plan.dp: " in line for line in lines)
