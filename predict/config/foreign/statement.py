"""The settings of a run that a tool's arguments express, and those that they cannot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from predict.model.spec import ModelSpec
from predict.run.execution import Execution
from predict.run.frameworks import framework_settings
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from sampling.files.faults import shown


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchArguments:
    """A run as another tool takes it."""

    tool: str
    files: Mapping[str, str]
    """File name → text."""
    not_expressed: tuple[str, ...]
    """Settings of the run that the tool has no argument for, each with its value and what happens instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """The arguments written so far, the key paths that they say, and the reasons for those that they cannot."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    """Key path → its value and why the tool cannot express it."""

    def say(self, *paths: str, **arguments: Any) -> None:
        """Add arguments, which express the settings at `paths`."""
        self.arguments.update(arguments)
        self.said.update(paths)

    def cannot(self, path: str, value: Any, why: str) -> None:
        self.reasons[path] = f"{path}: {shown(value)}: {why}"

    def not_expressed(self, run: TrainingRun, framework: str) -> tuple[str, ...]:
        """A line for each setting of the run that no argument says, of those that differ from the defaults of the run and of
        its framework; `framework` is the one that the tool itself stands for."""
        unknown = {
            path: f"{path}: {shown(value)}: {self.tool} has no argument for it"
            for path, value in _settings_beyond_defaults(run)
            if path not in self.said
        }
        own = run.execution.framework
        if own != framework:
            why = f"predicted as {own} runs it; the kernels and overlap of {self.tool} may differ"
            self.cannot("execution.framework", own, why)
        return tuple((unknown | self.reasons).values())


def _settings_beyond_defaults(run: TrainingRun) -> Iterator[tuple[str, Any]]:
    yield from _differing("plan", asdict(run.plan), asdict(Plan()))
    own = run.execution.framework
    usual = {**asdict(Execution()), **framework_settings(own, run.cluster.gpu.architecture), "framework": own}
    yield from _differing("execution", asdict(run.execution), usual)
    defaults = {each.name: each.default for each in fields(ModelSpec)}
    yield from _differing("model", settings_of(run.model), defaults, besides=("name", "layer_kinds"))


def settings_of(model: ModelSpec) -> dict[str, Any]:
    """The model's fields, its mixers by their own names."""
    found: dict[str, Any] = {}
    for each in fields(model):
        if each.name == "mixers":
            found |= {mixer.NAME: mixer for mixer in model.mixers if not mixer.IS_PLAIN}
        elif each.name != "mlp":
            found[each.name] = getattr(model, each.name)
    return found


def _differing(
    section: str, values: Mapping[str, Any], defaults: Mapping[str, Any], besides: Iterable[str] = ()
) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if value != defaults.get(name) and name not in besides:
            yield f"{section}.{name}", value
