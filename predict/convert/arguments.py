"""Arguments of another tool as they were read: values by name, which of them were used, and what is wrong with them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from predict.model.spec import ModelSpec
from predict.run.adapters import Adapters
from predict.run.execution import Execution
from predict.run.frameworks import framework_settings
from predict.run.offload import Offload
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from predict.run.tuning import Tuning
from predict.run.vision import Vision
from sampling.errors import UserError
from sampling.files.faults import Fault, shown
from sampling.files.schema import LARGEST

T = TypeVar("T")
NOTHING = ("", "None", "null")
"""How configs write that a setting has no value."""
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """Values by name, with underscores. Reading one marks it as used; what is left over at the end had no meaning here."""

    values: Mapping[str, Any]
    faults: list[Fault] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    """How values were taken whose meaning differs here."""
    layers: int = 0
    """Layers of the model that the arguments are of; 0 where they are not known."""

    def value(self, name: str, default: Any = None) -> Any:
        found = self.values.get(name)
        if isinstance(found, str) and found.startswith("$"):
            if name not in self.used:
                self.fault(name, f"{shown(found)} is set outside the file; write its value in its place")
            found = None
        self.used.add(name)
        return default if found is None else found

    def passed_over(self, *names: str) -> None:
        """Mark names as known to change nothing."""
        self.used.update(names)

    def switch(self, name: str, default: bool = False) -> bool:
        found = self.value(name, default)
        if isinstance(found, str) and found.lower() in TRUE + FALSE:
            return found.lower() in TRUE
        if not isinstance(found, bool):
            self.fault(name, f"{shown(found)} is neither true nor false; correct it")
            return default
        return found

    def count(self, name: str, most: int = LARGEST) -> int | None:
        """A whole number from 0 to `most`; None where it is not given."""
        found = self.value(name)
        if found is None or found is False or found in NOTHING:
            return None
        number = self.whole(name, 0)
        if number < 0:
            self.fault(name, f"{shown(found)} is below 0; correct it")
        if number > most:
            self.fault(name, f"{shown(found)} is above {most:,}; correct it")
        return min(max(0, number), most)

    def whole(self, name: str, default: int) -> int:
        """A whole number, which may be negative."""
        number = self.number(name, default)
        if number != int(number):
            self.fault(name, f"{shown(self.value(name))} is not a whole number; correct it")
        return int(number)

    def number(self, name: str, default: float) -> float:
        """A finite number."""
        found = self.value(name, default)
        try:
            number = default if found in NOTHING else float(found)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            self.fault(name, f"{shown(found)} is not a number; correct it")
            return default
        return number

    def text(self, name: str, default: str) -> str:
        found = self.value(name, default)
        if isinstance(found, list) and len(found) == 1:
            found = found[0]
        return default if found is False or found in NOTHING else str(found)

    def fault(self, name: str, problem: str) -> None:
        fault = Fault(path=name, problem=problem)
        if fault not in self.faults:  # several settings may read one argument
            self.faults.append(fault)

    @property
    def left_over(self) -> dict[str, Any]:
        return {name: value for name, value in self.values.items() if name not in self.used}


# The settings of a run that a tool's arguments express, and those that they cannot.


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
        its framework; `framework` is the one that the tool itself stands for. UserError where the arguments would train other layers, or
        others of their weights."""
        unknown = {
            path: f"{path}: {shown(value)}: {self.tool} has no argument for it"
            for path, value in _settings_beyond_defaults(run)
            if path not in self.said
        }
        if others := [
            path for path in unknown if path in OTHER_RUN or path.removeprefix("model.") in _own_layers(run.model)
        ]:
            problem = f"{self.tool} has no argument for {', '.join(others)} of {run.name}, and would train something else without"
            raise UserError(f"--to: {problem}; take a run that it can express")
        own = run.execution.framework
        if own != framework:
            why = f"predicted as {own} runs it; the kernels and overlap of {self.tool} may differ"
            self.cannot("execution.framework", own, why)
        return tuple((unknown | self.reasons).values())


OTHER_RUN = ("model.encoder", "model.bidirectional", "adapters.kind", "tuning.task")
"""Settings without which a run has other layers, or trains others of its weights."""


def _own_layers(model: ModelSpec) -> list[str]:
    """Names of the mixers that are no plain attention."""
    return [mixer.NAME for mixer in model.mixers if not mixer.IS_PLAIN]


def _settings_beyond_defaults(run: TrainingRun) -> Iterator[tuple[str, Any]]:
    own = run.execution.framework
    of_framework = {**framework_settings(own, run.cluster.gpu.architecture), "framework": own}
    for section, usual in (
        ("plan", asdict(Plan())),
        ("execution", {**asdict(Execution()), **of_framework}),
        ("adapters", asdict(Adapters())),
        ("offload", asdict(Offload())),
        ("tuning", asdict(Tuning())),
        ("vision", asdict(Vision())),
    ):
        yield from _differing(section, asdict(getattr(run, section)), usual)
    defaults = {each.name: each.default for each in fields(ModelSpec)}
    yield from _differing("model", settings_of(run.model), defaults, besides=("name", "layer_kinds", "tower"))


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


# Settings that are written and read: each tool has a table of them.


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Keys of a run and the arguments that express them: `write` adds the arguments to a statement, `read` gives the values that
    arguments mean, by key path."""

    write: Callable[[TrainingRun, Statement], None]
    read: Callable[[Arguments], Mapping[str, Any]]


def setting(
    path: str, write: Callable[[Any, TrainingRun], Mapping[str, Any] | None], read: Callable[[Arguments], Any]
) -> Setting:
    """The setting of one key: `write` gives the arguments of its value, None for a value that none expresses; `read` gives None to
    leave it to its default."""
    section, _, key = path.partition(".")

    def write_key(run: TrainingRun, statement: Statement) -> None:
        value = getattr(getattr(run, section), "global_" if key == "global" else key)
        written = write(value, run)
        if written is None:
            statement.cannot(path, value, f"{statement.tool} has no argument for this value")
        else:
            statement.say(path, **written)

    def read_key(given: Arguments) -> Mapping[str, Any]:
        value = read(given)
        return {} if value is None else {path: value}

    return Setting(write=write_key, read=read_key)


def degree(path: str, name: str, *, left_out: bool = False) -> Setting:
    """A degree of parallelism, 1 where it is not given; `left_out`, it is not written then either."""
    return setting(
        path,
        write=lambda value, run: {} if value == 1 and left_out else {name: value},
        read=lambda given: given.count(name) or 1,
    )


def size(path: str, name: str) -> Setting:
    """A number that is always written, and left to its default where it is not given."""
    return setting(path, write=lambda value, run: {name: value}, read=lambda given: given.count(name))


def write_settings(settings: Iterable[Setting], run: TrainingRun, statement: Statement) -> None:
    for each in settings:
        each.write(run, statement)


def read_settings(settings: Iterable[Setting], given: Arguments) -> dict[str, dict[str, Any]]:
    """The values by section and key."""
    found: dict[str, dict[str, Any]] = {}
    for each in settings:
        for path, value in each.read(given).items():
            section, _, key = path.partition(".")
            found.setdefault(section, {})[key] = value
    return found


def own_name(names: Mapping[T, str], theirs: str, otherwise: T) -> T:
    """The name here of another tool's, by names here → names there."""
    return next((own for own, name in names.items() if name == theirs), otherwise)
