"""A change of a run in the words of the tool that it was imported from: the arguments or keys to write in place of those that are there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from predict.convert import deepspeed
from predict.convert.launch import stated
from predict.convert.megatron_script import flag_words
from predict.convert.tool import Tool
from predict.convert.torchtitan import COMPILED, EAGER
from predict.kinds import Values
from predict.run.training_run import TrainingRun
from sampling.files.faults import as_written

ACCUMULATION = "batch.accumulation"
FOLLOWS = "plan.dp"
"""The ranks that the other degrees leave, which no tool has to be given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """A tool, and the form of its file: `command`, `python`, or `mapping` for YAML, TOML and JSON."""

    tool: Tool
    form: str

    def lines(self, own: TrainingRun, changed: TrainingRun, settings: Values) -> tuple[list[str], set[str]]:
        """The lines to change so that `own` becomes `changed`, which differs in `settings`, and the key paths that they say."""
        return self._by_writer(own, changed) if self.tool.writes else self._by_table(changed, settings)

    def states(self, run: TrainingRun) -> set[str]:
        """The key paths that a file of the tool decides for a run, by a value or by the tool's own default."""
        if self.tool.writes:
            return {"precision", *stated(run, _writer(self.tool.writes, run)).said}
        return {each.path.removeprefix("top.") for each in self.tool.table}

    def _by_writer(self, own: TrainingRun, changed: TrainingRun) -> tuple[list[str], set[str]]:
        tool = _writer(self.tool.writes, own)
        before, after = stated(own, tool), stated(changed, tool)
        lines = [
            self._line(name, value) for name, value in after.arguments.items() if before.arguments.get(name) != value
        ]
        lines += [f"without {self._name(name)}" for name in before.arguments if name not in after.arguments]
        said = (after.said - after.reasons.keys()) | {"precision", "execution.framework"}
        return lines, said if lines else set()

    def _by_table(self, changed: TrainingRun, settings: Values) -> tuple[list[str], set[str]]:
        wanted = dict(settings)
        if {"batch.micro", "plan.dp"} & wanted.keys():
            wanted[ACCUMULATION] = changed.microbatches
        found = {path: keys for path, value in wanted.items() if (keys := self._keys(path, value)) is not None}
        merged: dict[str, Any] = {}
        for keys in found.values():
            merged |= keys
        return [self._line(name, value) for name, value in merged.items()], set(found)

    def _keys(self, path: str, value: Any) -> Mapping[str, Any] | None:
        """The tool's keys for a value; None where it has none."""
        by_path = (each.write(value) for each in self.tool.table if each.path in (path, f"top.{path}"))
        return next((keys for keys in by_path if keys is not None), None)

    def _name(self, name: str) -> str:
        return flag_words(name, True)[0] if self.form == "command" and self.tool.writes else self._plain(name)

    def _plain(self, name: str) -> str:
        return f"--{name}" if self.form == "command" else name

    def _line(self, name: str, value: Any) -> str:
        if self.form == "command" and self.tool.writes:
            return " ".join(flag_words(name, value))
        text = as_written(value)
        return (
            f"{self._plain(name)} {text}"
            if self.form == "command"
            else f"{name}={value!r}"
            if self.form == "python"
            else f"{name}: {text}"
        )


def config_lines(settings: Values) -> tuple[str, ...]:
    """The settings as the keys of a config."""
    return tuple(f"{path}: {as_written(value)}" for path, value in settings.items())


def in_their_words(
    dialects: Sequence[Dialect], own: TrainingRun, changed: TrainingRun, settings: Values
) -> tuple[str, ...]:
    """The lines to change in the files of a run so that `own` becomes `changed`, which differs in `settings`; without any dialect the keys
    of a config. A setting that none of the tools has a key for is named as it is here."""
    if not dialects:
        return config_lines(settings)
    found = [dialect.lines(own, changed, settings) for dialect in dialects]
    said = {FOLLOWS}.union(*(paths for _, paths in found))
    tools = " or ".join(dict.fromkeys(dialect.tool.name for dialect in dialects))
    unsaid = [
        f"{path}: {as_written(value)} (no key of {tools} is known for it)"
        for path, value in settings.items()
        if path not in said
    ]
    return tuple(dict.fromkeys((*(line for lines, _ in found for line in lines), *unsaid)))


def _writer(tool: str, run: TrainingRun) -> str:
    """The tool whose arguments a run's framework takes: a script of Megatron-LM's may be one of Megatron-DeepSpeed, a file of Primus' one
    of torchtitan."""
    framework = run.execution.framework
    if framework == deepspeed.FRAMEWORK:
        return "deepspeed"
    return "torchtitan" if framework in (COMPILED, EAGER) else tool
