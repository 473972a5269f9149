"""Launch arguments of a run for another tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from predict.config.foreign import deepspeed, torchtitan
from predict.config.foreign.megatron import bridge, text
from predict.config.foreign.megatron.execution import LOCAL_LAYERS, write_execution
from predict.config.foreign.megatron.model import write_model
from predict.config.foreign.megatron.numerics import write_numerics
from predict.config.foreign.megatron.plan import write_plan
from predict.config.foreign.statement import LaunchArguments, Statement
from predict.run.frameworks import ON_GPUS
from predict.run.lengths import require_one_length
from predict.run.plan import BEST
from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from sampling.files.faults import did_you_mean, shown

Writer = Callable[[TrainingRun], LaunchArguments]


def launch_arguments(run: TrainingRun, tool: str) -> LaunchArguments:
    """The files with which `tool` (a key of TOOLS) runs the run, and what of it they do not express.

    UserError for an unknown tool, and for the schedule `best`, which a prediction has to choose first.
    """
    if tool not in TOOLS:
        near = did_you_mean(tool, TOOLS) or f"; give one of {', '.join(TOOLS)}"
        raise UserError(f"--to: {shown(tool)} is not a tool that arguments are written for{near}")
    if run.plan.schedule == BEST:
        raise UserError("plan.schedule: best is chosen by time; name the schedule, as in --set plan.schedule=1f1b")
    require_one_length(run.real, "another tool")
    return TOOLS[tool](run)


def _megatron_lm(run: TrainingRun) -> LaunchArguments:
    statement = _megatron_statement(run, "Megatron-LM")
    is_local = run.execution.framework == LOCAL_LAYERS
    if is_local:
        statement.say(transformer_impl="local")
    notes = statement.not_expressed(run, LOCAL_LAYERS if is_local else ON_GPUS)
    script = text.script(run, statement.arguments, _as_notes(notes), program="pretrain_gpt.py")
    return LaunchArguments(tool="megatron-lm", files={f"{run.name}.megatron-lm.sh": script}, not_expressed=notes)


def _nemo(run: TrainingRun) -> LaunchArguments:
    statement = _megatron_statement(run, "Megatron-Bridge")
    bridge.refuse_lacking(run, statement)
    notes = statement.not_expressed(run, "nemo")
    script = bridge.script(run, statement.arguments, _as_notes(notes))
    return LaunchArguments(tool="nemo", files={f"{run.name}.nemo.sh": script}, not_expressed=notes)


def _torchtitan(run: TrainingRun) -> LaunchArguments:
    statement = Statement(tool="torchtitan")
    torchtitan.write(run, statement)
    notes = statement.not_expressed(run, torchtitan.framework_of(run.execution.framework))
    toml = torchtitan.as_toml(run, statement.arguments, _as_notes(notes))
    return LaunchArguments(tool="torchtitan", files={f"{run.name}.torchtitan.toml": toml}, not_expressed=notes)


def _deepspeed(run: TrainingRun) -> LaunchArguments:
    statement = _megatron_statement(run, "Megatron-DeepSpeed")
    arguments = deepspeed.arguments(run, statement)
    notes = statement.not_expressed(run, deepspeed.FRAMEWORK)
    script = text.script(run, arguments, _as_notes(notes), program="pretrain_gpt.py")
    files = {f"{run.name}.deepspeed.sh": script, deepspeed.CONFIG_FILE: deepspeed.config(run)}
    return LaunchArguments(tool="deepspeed", files=files, not_expressed=notes)


def _megatron_statement(run: TrainingRun, tool: str) -> Statement:
    statement = Statement(tool=tool)
    write_model(run.model, statement)
    write_numerics(run.model_keys, statement)
    write_plan(run, statement)
    write_execution(run, statement)
    return statement


def _as_notes(not_expressed: tuple[str, ...]) -> list[str]:
    return [f"not expressed: {each}" for each in not_expressed]


TOOLS: Mapping[str, Writer] = {
    "megatron-lm": _megatron_lm,
    "nemo": _nemo,
    "torchtitan": _torchtitan,
    "deepspeed": _deepspeed,
}
"""Tool → the writer of its files. `nemo` stands for Megatron-Bridge, which has NeMo's recipes."""
