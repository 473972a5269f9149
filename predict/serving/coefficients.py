"""Fitted coefficients of a step model: its weights, the time that a client sees in addition to the steps, and where they come from."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from predict.interval import Interval
from predict.run.calibration_file import COEFFICIENTS, read_written
from predict.serving.step_model import KERNELS, MODELS, step_model
from sampling.errors import Checks, UserError, naming
from sampling.files.faults import Fault
from sampling.files.places import SHIPPED_DATA
from sampling.files.schema import Key, Text, one_of

FOLDER = SHIPPED_DATA / "serving"
Microseconds = Annotated[float, Key(minimum=0, maximum=1e9)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Weight:
    """A weight with its 90 % interval."""

    value: Annotated[float, Key(minimum=0)]
    low: Annotated[float, Key(minimum=0)]
    high: Annotated[float, Key(minimum=0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """µs that a request spends outside of the engine's steps."""

    first_token_us: Microseconds = 0.0
    """Up to its first token: parsing, and delivering the token."""
    last_token_us: Microseconds = 0.0
    """Time after its last token."""
    per_token_us: Microseconds = 0.0
    """Time per token after the first, on the way of the tokens to the client."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Coefficients:
    """The content of a coefficients file."""

    HEADER: ClassVar[Mapping[str, Any]] = {"format": "serving-coefficients", "version": 1}

    model: Annotated[str, one_of(*MODELS)]
    weights: Mapping[str, Weight]
    client: Client
    asynchronous: bool
    """The engine's loop to which the client's times belong."""
    half_width: Annotated[float, Key(minimum=0, maximum=3)]
    """Half-width in log time, at 90 %, by which steps of an experiment that was left out differ."""
    source: Text
    """The measurements that they were fitted to."""
    experiments: tuple[str, ...] = ()
    """The experiments among these."""
    engines: tuple[str, ...] = ()
    """Their engines, by the names of configs/engines; () where that is not known."""
    architectures: tuple[str, ...] = ()
    """The architectures of their devices; () where that is not known."""
    server: str = ""
    """The one server that they were fitted to, as `Server.title` names it; empty for several, whose half-width counts
    how servers differ."""
    untold: tuple[str, ...] = ()
    """Terms that no measurement covers, such as `moe` for a model without experts. Each keeps its prior, and the prior's width."""

    def contradictions(self) -> Iterator[Fault]:
        terms = MODELS[self.model].terms
        for name in sorted(set(terms) - set(self.weights)):
            yield Fault(path=f"weights.{name}", problem=f"missing; the model {self.model} needs it")
        for name in sorted(set(self.weights) - set(terms)):
            yield Fault(path=f"weights.{name}", problem=f"is not a term of the model {self.model}; remove it")

    def is_of_engine(self, name: str) -> bool:
        """Whether they were fitted to an engine, as far as that is known."""
        return not self.engines or name in self.engines

    def is_of_architecture(self, name: str) -> bool:
        """Whether they were fitted to an architecture, as far as that is known."""
        return not self.architectures or name in self.architectures

    @property
    def knows_client(self) -> bool:
        """Whether the measurements cover the client's time: single steps do not."""
        return self.client != Client()

    @property
    def interval_factors(self) -> Interval:
        """Factors on the time of steps."""
        return Interval.from_log(1.0, self.half_width)

    @property
    def values(self) -> dict[str, float]:
        return {name: weight.value for name, weight in self.weights.items()}


def shipped_coefficients(model: str) -> Coefficients:
    """The coefficients of a model that come with the program. UserError for another model."""
    return read_coefficients(FOLDER / f"{step_model(model).name}.json")


def read_coefficients(path: Path) -> Coefficients:
    """The coefficients of a file; ConfigError lists every fault of it."""
    with naming("--coefficients"):
        return read_written(Coefficients, path, COEFFICIENTS, fix="write it anew with `predict serving-fit`")


def chosen_coefficients(model: str, path: Path | None) -> Coefficients:
    """Those of a file, or else those that come with a model, `kernels` where none is named. UserError for an unknown model, with the faults
    of the file, and where the two disagree."""
    if path is None:
        return shipped_coefficients(model or KERNELS.name)
    with Checks() as checks:
        checks.run(step_model, model or KERNELS.name)
        with checks.one():
            found = read_coefficients(path)
    if model and model != found.model:
        raise UserError(
            f"--coefficients: {path} is for the model {found.model}, not {model}; give --model {found.model}"
        )
    return found


def coefficients_json(coefficients: Coefficients) -> dict[str, Any]:
    return {**Coefficients.HEADER, **asdict(coefficients)}
