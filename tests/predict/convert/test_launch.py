"""Launch arguments of other tools: nothing of a run is dropped without a word, and reading them gives the same run."""

import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from predict.config.load import load
from predict.convert.deepspeed import as_megatron
from predict.convert.import_files import import_config
from predict.convert.launch import TOOLS, arguments_of
from predict.convert.tool import flat
from predict.run.execution import NATURAL
from predict.run.stages import stages_of_ranks
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError, UserError
from tests.predict.workload.parallel_runs import made

CLUSTER = ["cluster.hardware=h100-sxm", "cluster.profile=nowhere"]
WIDE = ["execution.wide_first_layers", "execution.wide_last_layers"]
TITAN = {"execution__framework": "torchtitan"}
DEEP = {"execution__framework": "megatron-deepspeed"}
_RUNS = yaml.load(Path(__file__).with_name("launched_runs.yml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
EXPRESSED: dict[str, tuple[str, dict[str, Any]]] = _RUNS["expressed"]
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = _RUNS["changed"]


def written(run: TrainingRun, tool: str, folder: Path) -> list[Path]:
    texts = arguments_of(run, tool).files
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


@pytest.mark.parametrize("name", EXPRESSED)
def test_a_run_comes_back_the_same(name: str, tmp_path: Path) -> None:
    tool, settings = EXPRESSED[name]
    run = made(**{"batch__global": 64, **settings})
    assert arguments_of(run, tool).not_expressed == ()
    document = import_config(written(run, tool, tmp_path), CLUSTER).document
    back = load(document)
    assert asdict(back.plan) == asdict(run.plan)
    # a script leaves its router to training
    routed = NATURAL if run.model.experts and tool != "deepspeed" else run.execution.expert_load
    assert asdict(back.execution) == {**asdict(run.execution), "expert_load": routed}
    assert (back.batch, back.precision, back.cluster) == (run.batch, run.precision, run.cluster)
    assert replace(back.model, name="") == replace(run.model, name="")


@pytest.mark.parametrize(
    ("settings", "name", "lost"),
    [
        ({"precision": "bf16"}, "bf16_mixed", []),
        ({"precision": "fp8", "execution__wide_first_layers": 2}, "bf16_with_fp8_current_scaling_mixed", WIDE),
        ({"precision": "fp8", "execution__fp8_recipe": "mxfp8"}, "bf16_with_mxfp8_mixed", []),
    ],
)
def test_a_bridge_precision_is_its_name_alone_which_hydra_takes(
    settings: Mapping[str, Any], name: str, lost: list[str]
) -> None:
    run = made(model="llama3-8b", plan__dp=8, plan__zero=1, batch__global=64, execution__framework="nemo", **settings)
    found = arguments_of(run, "nemo")
    (text,) = found.files.values()
    (line,) = (line for line in text.splitlines() if line.strip().startswith("mixed_precision"))
    assert line.strip().startswith(f"mixed_precision={name}")
    assert [note.partition(":")[0] for note in found.not_expressed] == lost


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        (
            {"model": "deepseek-v3", "plan__pp": 16, "plan__dp": 4, "plan__count_embedding": 1, "plan__count_loss": 2},
            "Et*3|t*4|",
        ),
        # chunks that the layers do not divide into, which Megatron-LM splits by a layout alone
        ({"plan__pp": 4, "plan__vpp": 3, "plan__schedule": "interleaved-1f1b"}, "Et*7|t*7|"),
    ],
)
def test_a_layout_is_written_in_letters_and_keeps_its_stages(
    settings: Mapping[str, Any], start: str, tmp_path: Path
) -> None:
    run = made(**{"batch__global": 64, **settings})
    assert arguments_of(run, "megatron-lm").not_expressed == ()
    back = load(import_config(written(run, "megatron-lm", tmp_path), CLUSTER).document)
    assert back.plan.layout.startswith(start)
    assert stages_of_ranks(back) == stages_of_ranks(run)


@pytest.mark.parametrize(
    ("settings", "refused", "path"),
    [
        ({"plan__dp": 2, "plan__zero": 0}, "--overlap-param-gather", ""),
        (
            {"plan__dp": 2, "plan__zero": 1, "execution__overlap_gradients": False},
            "--overlap-param-gather",
            "execution.overlap_parameters",
        ),
        ({"execution__overlap_tp": "pipelined"}, "--tp-comm-overlap", ""),
        ({"plan__tp": 2, "execution__overlap_tp": "pipelined"}, "--tp-comm-overlap", "execution.overlap_tp"),
    ],
)
def test_no_switch_is_written_that_megatron_refuses(settings: Mapping[str, Any], refused: str, path: str) -> None:
    """Where the switch would change something, a line says that it is missing."""
    made_of = arguments_of(made(**{"execution__overlap_parameters": True, **settings}), "megatron-lm")
    (script,) = made_of.files.values()
    assert refused not in shlex.split(script, comments=True)
    assert [line.partition(":")[0] for line in made_of.not_expressed] == ([path] if path else [])


@pytest.mark.parametrize(
    ("tool", "settings", "path"),
    [
        ("deepspeed", {"plan__pp": 2, "plan__cp": 2, "execution__attention": "fa2", **DEEP}, "plan.cp"),
        ("deepspeed", {"model": "mixtral-8x7b", "plan__pp": 2, **DEEP}, "plan.pp"),
        (
            "torchtitan",
            {"plan__tp": 2, "plan__sp": True, "execution__framework": "fsdp", "execution__overlap_tp": "pipelined"},
            "execution.overlap_tp",
        ),
    ],
)
def test_a_plan_that_a_tool_does_not_start_with_is_refused_in_a_line(
    tool: str, settings: Mapping[str, Any], path: str
) -> None:
    made_of = arguments_of(made(**{"batch__global": 64, **settings}), tool)
    assert [line.partition(":")[0] for line in made_of.not_expressed].count(path) == 1
    assert not any("enable_async_tensor_parallel = true" in text for text in made_of.files.values())


def test_deepspeed_is_given_at_which_interval_layers_are_mixtures(tmp_path: Path) -> None:
    """Its own default makes every second layer one."""
    run = made("mixtral-8x7b", plan__dp=8, batch__global=64, **DEEP)
    files = written(run, "deepspeed", tmp_path)
    script = next(file for file in files if file.suffix == ".sh")
    assert "--expert-interval 1" in script.read_text()
    assert all(kind.sparse for kind in load(import_config(files, CLUSTER).document).model.kinds())
    assert as_megatron({"num_layers": 4, "num_experts": 8})["moe_layer_freq"] == [0, 1, 0, 1]


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("key", CHANGES)
def test_no_setting_is_dropped_without_a_word(key: str, tool: str) -> None:
    """The files show it, or hold a line that says they do not."""
    around, change = CHANGES[key]
    without, with_it = (arguments_of(made("mixtral-8x7b", **settings), tool) for settings in (around, around | change))
    assert with_it.files != without.files


def test_a_value_that_a_tool_replaces_is_named_with_what_it_becomes() -> None:
    run = made("llama3-8b", plan__tp=2, plan__dp=2, plan__zero=1, plan__recompute="selective")
    lines = {line.partition(":")[0]: line for line in arguments_of(run, "torchtitan").not_expressed}
    assert lines["plan.sp"].endswith("torchtitan's tensor parallelism always splits the sequence too")
    assert lines["plan.zero"].endswith("written as stage 2")
    assert "core_attn" in lines["plan.recompute_modules"]


def test_an_unknown_tool_and_an_undecided_schedule_are_one_clear_error() -> None:
    with pytest.raises(UserError, match="did you mean 'torchtitan'"):
        arguments_of(made(), "torchtitian")
    with pytest.raises(UserError, match=r"plan\.schedule: best is chosen by time; name the schedule"):
        arguments_of(made(plan__pp=2, plan__schedule="best"), "nemo")


# Files that are written have only keys and values that the tools' own configuration classes know.

KNOWN = json.loads((Path(__file__).parent / "option_names.json").read_text())
RUNS = {
    **{name: settings for name, (_, settings) in EXPRESSED.items()},
    **{f"changed {key}": {"model": "mixtral-8x7b"} | around | change for key, (around, change) in CHANGES.items()},
}


def documents_written(settings: dict[str, Any], tool: str) -> Iterator[dict[str, Any]]:
    frameworks = {"torchtitan": TITAN, "deepspeed": DEEP}
    given = {key: value for key, value in settings.items() if key != "execution__framework"}
    try:
        run = made(**{"batch__global": 64, **given, **frameworks[tool]})
    except ConfigError:
        pytest.skip("the tool's framework has no such run")
    for name, text in arguments_of(run, tool).files.items():
        if name.endswith(".toml"):
            yield tomllib.loads(text)
        elif name.endswith(".json"):
            yield json.loads(text)


@pytest.mark.parametrize("tool", KNOWN)
@pytest.mark.parametrize("name", RUNS)
def test_a_tool_knows_each_key_and_value(name: str, tool: str) -> None:
    known, words = KNOWN[tool]["names"], KNOWN[tool]["values"]
    for document in documents_written(RUNS[name], tool):
        for path, value in flat(document).items():
            section, _, key = path.rpartition(".")
            assert key in known[section].split(), path
            assert path not in words or value in words[path].split(), f"{path}: {value}"


T5 = {"model": "t5-large", "batch__encoder_seq_len": 512, "batch__seq_len": 512}


@pytest.mark.parametrize(
    ("tool", "settings", "named"),
    [
        *((tool, {"model": "llama3-8b", "adapters__kind": "lora"}, "adapters.kind") for tool in TOOLS),
        *(
            (tool, T5, "model.cross") for tool in TOOLS if tool != "torchtitan"
        ),  # which takes a model of its own by name
    ],
)
def test_a_tool_that_would_train_something_else_gets_no_script(tool: str, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=rf"--to: .* has no argument for .*{named}"):
        arguments_of(made(**settings), tool)


@pytest.mark.parametrize(
    ("settings", "there"),
    [
        ({"plan__tp": 2}, "CUDA_DEVICE_MAX_CONNECTIONS=1"),
        ({"plan__cp": 2}, "CUDA_DEVICE_MAX_CONNECTIONS=1"),
        ({"plan__dp": 2, "plan__zero": 3}, "--ckpt-format fsdp_dtensor"),
        ({"execution__cuda_graphs": "full"}, "--no-check-for-nan-in-loss-and-grad"),
        ({"batch__seq_len": 16384}, "--max-position-embeddings 16384"),
    ],
)
def test_a_script_has_what_megatron_refuses_to_start_without(settings: Mapping[str, Any], there: str) -> None:
    (plain,), (changed,) = (
        arguments_of(made("llama3-8b", **each), "megatron-lm").files.values() for each in ({}, settings)
    )
    assert there in changed and there not in plain
