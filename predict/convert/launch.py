"""Launch arguments of a run for another tool."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from predict.config.document import Config, Document
from predict.config.load import load
from predict.convert import deepspeed, torchtitan
from predict.convert import megatron_script as text
from predict.convert.arguments import LaunchArguments, Statement
from predict.convert.megatron import LOCAL_LAYERS, write_execution, write_plan
from predict.convert.megatron_model import write_model, write_numerics
from predict.convert.tool import flat, tool_file
from predict.run.execution import COPIES
from predict.run.frameworks import ON_GPUS
from predict.run.lengths import require_one_length
from predict.run.plan import BEST
from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from sampling.files.faults import did_you_mean, shown

Writer = Callable[[TrainingRun, Statement], LaunchArguments]


def launch_arguments(config: Config, tool: str, overrides: Sequence[str] = ()) -> LaunchArguments:
    """The files with which another tool runs a config, megatron-lm, nemo, torchtitan or deepspeed, and what they do not express.

    UserError for another tool, and for `plan.schedule: best`, which a prediction has to choose first; ConfigError lists every fault of
    the config.
    """
    return arguments_of(load(config, overrides), tool)


def arguments_of(run: TrainingRun, tool: str) -> LaunchArguments:
    """The same of a loaded run; `tool` is a key of TOOLS."""
    if tool not in TOOLS:
        near = did_you_mean(tool, TOOLS) or f"; give one of {', '.join(TOOLS)}"
        raise UserError(f"--to: {shown(tool)} is not a tool that arguments are written for{near}")
    if run.plan.schedule == BEST:
        raise UserError("plan.schedule: best is chosen by time; name the schedule, as in --set plan.schedule=1f1b")
    if run.plan.automatic:
        raise UserError(
            f"plan.{run.plan.automatic[0]}: auto is chosen by time; give the value that `predict one-batch` prints"
        )
    require_one_length(run.real, "another tool")
    return TOOLS[tool](run, _written(run, tool))


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchFiles:
    """Files of several configs for every tool."""

    files: Mapping[str, str]
    """Path inside a folder → text: each config as `01.yml`, and its arguments for each tool in the folder `01`."""
    not_expressed: Mapping[str, int]
    """What a tool leaves out → the number of configs that it is true of; a tool that cannot run a config at all has no file."""


def launch_files(configs: Sequence[Document]) -> LaunchFiles:
    """The configs as files, numbered in their order, and their launch arguments for every tool."""
    files: dict[str, str] = {}
    not_expressed: Counter[str] = Counter()
    digits = len(str(len(configs)))
    for place, config in enumerate(configs, 1):
        name = f"{place:0{digits}}"
        files[f"{name}.yml"] = config.as_yaml()
        for tool in TOOLS:
            try:
                written = launch_arguments(replace(config, name=name), tool)
            except UserError as error:
                not_expressed[f"{tool}, which has no file: {error}"] += 1
                continue
            files |= {f"{name}/{file}": text for file, text in written.files.items()}
            not_expressed.update(f"{tool}: {each}" for each in written.not_expressed)
    return LaunchFiles(files=files, not_expressed=not_expressed)


POSITIONS = "max_position_embeddings"
TITLES: Mapping[str, str] = {
    "megatron-lm": "Megatron-LM",
    "nemo": "Megatron-Bridge",
    "torchtitan": "torchtitan",
    "deepspeed": "Megatron-DeepSpeed",
}
"""Tool → its own name. `nemo` stands for Megatron-Bridge, which has NeMo's recipes."""


def _written(run: TrainingRun, tool: str) -> Statement:
    """The arguments of a run by Megatron-LM's names, or torchtitan's, and what of it the tool does not express."""
    statement = Statement(tool=TITLES[tool])
    if tool == "torchtitan":
        torchtitan.write(run, statement)
        return statement
    write_model(run.model, statement)
    write_numerics(run.model_keys, statement)
    write_plan(run, statement)
    if run.model.rope and statement.arguments.get(POSITIONS, 0) < run.batch.seq_len:
        # Megatron-LM refuses longer sequences, and tabulates no rotary positions
        statement.arguments[POSITIONS] = run.batch.seq_len
    write_execution(run, statement)
    if tool == "nemo":
        refuse_lacking(run, statement)
    return statement


def _megatron_lm(run: TrainingRun, statement: Statement) -> LaunchArguments:
    is_local = run.execution.framework == LOCAL_LAYERS
    if is_local:
        statement.say(transformer_impl="local")
    notes = statement.not_expressed(run, LOCAL_LAYERS if is_local else ON_GPUS)
    script = text.script(run, statement.arguments, _as_notes(notes), program="pretrain_gpt.py")
    return LaunchArguments(tool="megatron-lm", files={f"{run.name}.megatron-lm.sh": script}, not_expressed=notes)


def _nemo(run: TrainingRun, statement: Statement) -> LaunchArguments:
    notes = statement.not_expressed(run, "nemo")
    script = overrides_script(run, statement.arguments, _as_notes(notes))
    return LaunchArguments(tool="nemo", files={f"{run.name}.nemo.sh": script}, not_expressed=notes)


def _torchtitan(run: TrainingRun, statement: Statement) -> LaunchArguments:
    notes = statement.not_expressed(run, torchtitan.framework_of(run.execution.framework))
    toml = torchtitan.as_toml(run, statement.arguments, _as_notes(notes))
    return LaunchArguments(tool="torchtitan", files={f"{run.name}.torchtitan.toml": toml}, not_expressed=notes)


def _deepspeed(run: TrainingRun, statement: Statement) -> LaunchArguments:
    arguments = deepspeed.arguments(run, statement)
    notes = statement.not_expressed(run, deepspeed.FRAMEWORK)
    script = text.script(run, arguments, _as_notes(notes), program="pretrain_gpt.py")
    files = {f"{run.name}.deepspeed.sh": script, deepspeed.CONFIG_FILE: deepspeed.config(run)}
    return LaunchArguments(tool="deepspeed", files=files, not_expressed=notes)


def stated(run: TrainingRun, tool: str) -> Statement:
    """The arguments of a run by their names in a tool, and the key paths that they express; `tool` is a key of TOOLS."""
    statement = _written(run, tool)
    if tool == "nemo":
        return replace(statement, arguments=overrides(run, statement.arguments))
    if tool == "deepspeed":
        of_script = deepspeed.arguments(run, statement)
        return replace(statement, arguments=of_script | flat(json.loads(deepspeed.config(run))))
    return statement


def _as_notes(not_expressed: tuple[str, ...]) -> list[str]:
    return [f"not expressed: {each}" for each in not_expressed]


TOOLS: Mapping[str, Writer] = {
    "megatron-lm": _megatron_lm,
    "nemo": _nemo,
    "torchtitan": _torchtitan,
    "deepspeed": _deepspeed,
}
"""Tool → the writer of its files."""


GROUPS: Mapping[str, Sequence[str]] = tool_file("megatron_bridge")["groups"]
"""Group of a Megatron-Bridge recipe's ConfigContainer → its settings; every other setting is the model's. Names and groups:
docs.nvidia.com/nemo/megatron-bridge, "Megatron-LM to Megatron Bridge Guide" and "Communication Overlap"."""
RENAMED: Mapping[str, Sequence[Any]] = tool_file("megatron_bridge")["renamed"]
"""Switch of Megatron-LM → the setting that stands for it, and its value."""
KEYS: Mapping[str, str] = tool_file("megatron_bridge")["keys"]
"""Arguments that another key stands for; "" for one that follows from the others."""
LACKING: Mapping[str, Sequence[str]] = tool_file("megatron_bridge")["lacking"]
"""Arguments that Megatron-Bridge lacks → the key path that is lost, and why."""
PRECISIONS: Mapping[str, Mapping[str, Any]] = tool_file("megatron_bridge")["precisions"]
"""Name of a Megatron-Bridge precision → Megatron-LM's arguments."""
OF_PRECISION = "mixed_precision"
"""Group whose settings a name alone gives: Hydra refuses a setting beside the name (training/mixed_precision.py)."""
IN_NAME: Mapping[str, str] = {
    "num_layers_at_start_in_bf16": "execution.wide_first_layers",
    "num_layers_at_end_in_bf16": "execution.wide_last_layers",
    "fp8_dot_product_attention": "execution.fp8_attention",
}
"""Arguments that are of a precision's name or of none → their key paths."""
USUALLY_ON = ("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather")
"""Switches of Megatron-LM that recipes have on, so that a run without one says so."""
FORMATS = ("bf16", "fp16", "fp8_format", "fp8_recipe", "fp4_format", "fp4_recipe")


def refuse_lacking(run: TrainingRun, statement: Statement) -> None:
    """Take out the arguments that Megatron-Bridge lacks, with the reason for each."""
    for name, (path, why) in LACKING.items():
        if statement.arguments.pop(name, None) is not None:
            statement.cannot(path, getattr(run.execution, path.partition(".")[2]), why)
    if word := _precision_of(run, statement.arguments):
        for name, path in IN_NAME.items():
            if _off(word, name, statement.arguments):
                usual = PRECISIONS[word].get(name, 0)
                value = getattr(run.execution, path.partition(".")[2])
                statement.cannot(
                    path, value, f"{OF_PRECISION}={word} has {usual}, and no setting stands beside the name"
                )


def overrides(run: TrainingRun, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Key path → value of the recipe's overrides for Megatron-LM's arguments."""
    group_of = {name: group for group, names in GROUPS.items() for name in names}
    written: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in FORMATS:
            continue
        if name in RENAMED:
            key, value = RENAMED[name]  # noqa: PLW2901
        else:
            key = KEYS.get(name, f"{group_of.get(name, 'model')}.{name}")
        if key:
            written[key] = value
    written |= {f"ddp.{name}": False for name in USUALLY_ON if name not in arguments}
    if USUALLY_ON[0] not in arguments:  # which stands in both groups, each of which may turn it on
        written[f"optimizer.{USUALLY_ON[0]}"] = False
    if "moe_layer_freq" in arguments:  # a list, where a command line has an expression
        written["model.moe_layer_freq"] = [int(kind.sparse) for kind in run.model.kinds()]
    written["dataset.sequence_length"] = run.batch.seq_len
    reduced_in_fp32 = written.get(f"{OF_PRECISION}.grad_reduce_in_fp32", True)
    written = {key: value for key, value in written.items() if not key.startswith(f"{OF_PRECISION}.")}
    if word := _precision_of(run, arguments):
        copies = "_bf16_params" if run.precision == "fp8" and run.execution.fp8_weights == COPIES else ""
        written[OF_PRECISION] = word + copies + ("" if reduced_in_fp32 else "_bf16_grad_reduce")
    return written


def _precision_of(run: TrainingRun, arguments: Mapping[str, Any]) -> str:
    """Name of the precision that the arguments are, of several the one nearest in the rest; empty for fp32."""
    given = {**({"fp8_recipe": "tensorwise"} if run.precision == "fp8" else {}), **arguments}
    deciding = ("bf16", "fp16", "fp8_recipe", "fp4_format")
    words = [word for word, own in PRECISIONS.items() if all(own.get(key) == given.get(key) for key in deciding)]
    return min(words, key=lambda word: sum(_off(word, name, arguments) for name in IN_NAME), default="")


def _off(word: str, name: str, arguments: Mapping[str, Any]) -> int:
    """Distance of a precision's own count or switch from that of the arguments."""
    return abs(int(PRECISIONS[word].get(name, 0)) - int(arguments.get(name, 0)))


def overrides_script(run: TrainingRun, arguments: Mapping[str, Any], notes: Sequence[str]) -> str:
    """A shell script that launches a recipe, `$RECIPE_SCRIPT`, with these overrides."""
    nodes, per_node = run.cluster.nodes, run.cluster.gpus_per_node
    comments = [f"# {line}" for note in notes for line in note.splitlines()]
    lines = [
        "#!/usr/bin/env bash",
        f"# {run.name} on {nodes} x {per_node} {run.cluster.gpu.name}; RECIPE_SCRIPT: the recipe's pretraining script",
        *comments,
        "OVERRIDES=(",
        *(f"    {shlex.quote(f'{key}={_value(value)}')}" for key, value in overrides(run, arguments).items()),
        ")",
        f"torchrun --nnodes {nodes} --nproc-per-node {per_node} " + '"$RECIPE_SCRIPT" "${OVERRIDES[@]}" "$@"',
    ]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """A value as OmegaConf reads it."""
    return value if isinstance(value, str) else json.dumps(value)
