"""Kinds of config: the parts that training, serving and RL configs have in common; which kind a config is, is asked here alone.

A kind's class is in the module that KINDS names, which is imported when the kind is first asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from sampling.errors import UserError
from sampling.files.disk import is_file
from sampling.files.faults import Fault, config_error, did_you_mean

if TYPE_CHECKING:
    from predict.interval import Interval
    from sampling.files.schema import Key
    from sampling.hardware.cluster import Cluster

TRAINING, SERVING, RL = "training", "serving", "rl"
Run = TypeVar("Run")
Predicted = TypeVar("Predicted")
Loaded = TypeVar("Loaded", bound="LoadedRun")
Values = Mapping[str, Any]
"""Key path → value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KindFacts:
    """Facts of a kind of config that are known before anything is imported that predicts it."""

    title: str
    plural: str
    """Things that are predicted."""
    section: str
    """The top-level section that no other kind of config has."""
    command: str
    """The command that predicts one."""
    others: str = "; `predict --help` lists what else takes one"
    """Where the other commands are found that take one."""
    home: str
    """The module of the kind's class, whose instance is KIND."""

    @property
    def advice(self) -> str:
        """The kind of a config with that section, and the commands that take it, for messages."""
        return f"makes this {self.title}; predict it with `predict {self.command}`{self.others}"


KINDS: Mapping[str, KindFacts] = {
    RL: KindFacts(
        title="an RL config",
        plural="RL steps",
        section="rl",
        command="rl-step",
        home="predict.plan_search.rl",
    ),
    SERVING: KindFacts(
        title="a serving config",
        plural="servers",
        section="load",
        command="serving",
        home="predict.plan_search.serving",
    ),
    TRAINING: KindFacts(
        title="a training config",
        plural="steps",
        section="batch",
        command="one-batch",
        others="",  # most commands do
        home="predict.plan_search.training",
    ),
}


class LoadedRun:
    """A run of any kind that is read from its config."""

    __slots__ = ()
    kind: ClassVar[str]
    name: str


def as_loaded(config: object, wanted: type[Loaded], overrides: Sequence[str]) -> Loaded | None:
    """A run that is loaded already, as it is; None for a config that is to be read. UserError for settings that would change the run."""
    if not isinstance(config, wanted):
        return None
    if overrides:
        raise UserError(
            f"overrides: {config.name} is loaded and stays as it is, so {', '.join(overrides)} cannot be set; give its config in place of the run"
        )
    return config


def kind_of(config: object) -> str:
    """The kind of a config by its sections, TRAINING for one that cannot be read."""
    from sampling.files.documents import read_yaml

    if isinstance(config, LoadedRun):
        return config.kind
    document = read_yaml(Path(config))[0] if isinstance(config, str | Path) else getattr(config, "content", config)
    return next(
        (name for name in (RL, SERVING) if isinstance(document, Mapping) and KINDS[name].section in document), TRAINING
    )


def require_kind(document: Mapping[Any, Any], others: Sequence[str], sources: Mapping[str, str]) -> None:
    """ConfigError with what kind of config this is, where it has the section of one of the `others`."""
    for name in others:
        if (section := KINDS[name].section) in document:
            raise config_error([Fault(path=section, problem=KINDS[name].advice)], sources)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOptions:
    """Questions that only serving configs answer, as a command or a caller gives them."""

    slo: Sequence[str] = ()
    """Objectives such as `ttft_p90=1s`."""
    price: str | None = None
    """Price of a GPU or node, as `2.5/gpu-h`."""
    model: str = ""
    """Model of the server's steps."""
    coefficients: Path | str | None = None
    """File of the model's coefficients."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order(Generic[Predicted]):
    """An objective that predictions are ordered by: the least `value` is the best."""

    meaning: str
    value: Callable[[Predicted], float]
    needs_price: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure(Generic[Predicted]):
    """A figure of predictions that other hardware and settings move."""

    title: str
    value: Callable[[Predicted], float]
    is_rate: bool = False
    """Whether more of it is better; otherwise it is a time."""

    def gain(self, value: float, before: float) -> float:
        """The share of a time that a change saves, or that it adds to a rate; below 0 it costs."""
        return value / before - 1 if self.is_rate else 1 - value / before


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A setting of a run that has a few values."""

    path: str
    now: Any
    others: Sequence[Any]


def settings_of_section(
    section: str, held: Any, keys: Sequence[Key], *, but: Collection[str] = ()
) -> Iterator[Setting]:
    """The settings of a section that are a switch or one of a few texts, without those named in `but`."""
    for key in keys:
        if key.name in but:
            continue
        now = getattr(held, key.name)
        others = [not now] if isinstance(now, bool) else [each for each in (key.choices or list)() if each != now]
        yield Setting(path=f"{section}.{key.name}", now=now, others=others)


class Kind(ABC, Generic[Run, Predicted]):
    """One kind of config, as sweeps, searches and comparisons see it."""

    name: ClassVar[str]
    columns: ClassVar[str]
    """Names of the long table's columns, between blanks; those of varied keys follow."""
    orders: ClassVar[Mapping[str, Order[Any]]]
    """Objective → what predictions are ordered by, the usual one first."""
    measures: ClassVar[Mapping[str, Measure[Any]]]
    """Key in JSON → a figure that changes of the hardware and of settings move; changes are ranked by the first."""
    can_be_auto: ClassVar[tuple[str, ...]] = ()
    """Keys that may be `auto` where every combination is predicted."""
    shows_progress: ClassVar[bool] = True
    """Whether a prediction takes long enough to show progress where stderr is not a terminal."""

    @abstractmethod
    def load(self, config: Any, overrides: Sequence[str]) -> Run:
        """The run of a config under settings. ConfigError has a line for each fault."""

    @abstractmethod
    def key(self, path: str) -> Key | None:
        """The declaration of a key that may vary; None for an unknown one."""

    @abstractmethod
    def paths(self) -> Sequence[str]:
        """The keys that may vary."""

    @abstractmethod
    def predictor(self, estimate: Callable[[Any], Any], of_servers: ServerOptions) -> Callable[[Run], Predicted]:
        """The function from a run to its prediction; `estimate` predicts training runs, which RL steps have too. UserError for options
        that cannot be."""

    @abstractmethod
    def row(self, predicted: Predicted) -> dict[str, Any]:
        """A prediction's cells of the long table."""

    @abstractmethod
    def memory(self, predicted: Predicted) -> Any:
        """The memory of a prediction's GPUs, as `predict memory` reports it; of a server, the room of its cache."""

    @abstractmethod
    def settings(self, predicted: Predicted) -> Values:
        """The settings of a prediction's run, models and devices by their names."""

    @abstractmethod
    def run_of(self, predicted: Predicted) -> Run:
        """The run of a prediction."""

    @abstractmethod
    def cluster_of(self, run: Run) -> Cluster:
        """The machines of a run."""

    @abstractmethod
    def on_cluster(self, run: Run, cluster: Cluster) -> Run:
        """The same run on other machines."""

    def execution_of(self, run: Run) -> Any:
        """The settings of a run's framework; None where there is none."""
        return None

    def executed(self, run: Run, execution: Any) -> Run:
        """The same run under other settings of its framework."""
        raise NotImplementedError

    @abstractmethod
    def switched(self, run: Run) -> Iterator[Setting]:
        """The settings of a run whose other values may be worthwhile."""

    def companions(self, run: Run, path: str, value: Any) -> Values:
        """Another value of a run's setting, with the settings that have to change with it."""
        return {path: value}

    def fits_probability(self, predicted: Predicted) -> float | None:
        """The probability that a prediction's memory fits; None where none is known."""
        return None

    def verdict(self, predicted: Predicted) -> str:
        """FITS, AT RISK or OOM, as the probability that a prediction's memory fits has it; '' where none is known."""
        return ""

    def misfit(self, predicted: Predicted) -> str:
        """The reason why a prediction cannot be chosen; '' for one that can."""
        return ""

    def resolved(self, path: str) -> str:
        """The key that another tool's name stands for; any other as it is."""
        return path

    def automatic(
        self, config: Any, overrides: Sequence[str], varied: Values, wanted: Collection[str]
    ) -> dict[str, tuple[Any, ...]]:
        """The values of each key that may be `auto`, as those of `wanted` are; `varied` has those of the other keys that vary."""
        return {}

    def completing(
        self, config: Any, overrides: Sequence[str], varied: Values, automatic: Collection[str]
    ) -> Callable[[Values], Values | None]:
        """The function from a combination to its settings, with those that follow from it; None for one that is not possible."""
        return lambda values: values

    def not_read(self, predicted: Predicted) -> Values:
        """Arguments of another tool's in the config that change nothing here."""
        return {}


class EnumeratedKind(Kind[Run, Predicted]):
    """A kind whose search predicts every combination of what a config leaves open."""

    @abstractmethod
    def content(self, config: Any, overrides: Sequence[str]) -> Values:
        """The content of a config under settings, whose values may be choices."""

    @abstractmethod
    def opened(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The keys that a search opens where a config leaves none open, with their choices."""

    @abstractmethod
    def ratio(self, best: Predicted, other: Predicted, objective: str) -> Any:
        """The `plan_search.ties.Ratio` of what an objective orders by, of another prediction to the best one; common errors cancel."""

    @abstractmethod
    def rate_ratio(self, first: Predicted, other: Predicted) -> Interval:
        """The ratio of what is done per second, of another prediction over the first; common errors cancel."""


def refuse_server_options(of_servers: ServerOptions) -> None:
    """UserError for options of servers that are given with another kind of config."""
    given = [f"--{name}" for name in ("slo", "price", "model", "coefficients") if getattr(of_servers, name)]
    if given:
        raise UserError(f"{', '.join(given)}: applies only to serving configs; omit it")


def kind(name: str) -> Kind[Any, Any]:
    """The kind of a name."""
    found: Kind[Any, Any] = import_module(KINDS[name].home).KIND
    return found


def unknown_settings(name: str, paths: Iterable[str]) -> list[Fault]:
    """A fault for each of the key paths that no config of a kind has, with those that it may stand for."""
    of = kind(name)
    known = of.paths()

    def is_known(path: str) -> bool:
        inside = any(each.startswith(f"{path}.") for each in known)
        return inside or path.partition(".")[0] == "model" or of.key(of.resolved(path)) is not None

    return [Fault(path=path, problem=f"unknown key{did_you_mean(path, known)}") for path in paths if not is_known(path)]


def require_one_kind(configs: Sequence[Any]) -> str:
    """The kind of all configs. UserError where they are of several, or where one beside another kind is not a file."""
    kinds = [kind_of(config) for config in configs]
    if len(set(kinds)) == 1:
        return kinds[0]
    place = next(at for at, name in enumerate(kinds) if name != TRAINING)
    other = next(config for config, name in zip(configs, kinds, strict=True) if name != kinds[place])
    if isinstance(other, str | Path) and not is_file(other):
        raise UserError(f"CONFIG: {other}: there is no such file; check the path")
    first, second = (each.name if isinstance(each, LoadedRun) else each for each in (configs[place], other))
    raise UserError(f"CONFIG: {first} is {KINDS[kinds[place]].title} and {second} is not; give configs of one kind")
