"""Predictions of one kind beside the first: the settings that differ and the ratio of what is done per second; of training runs what each
heading of the step, and each term of memory, adds or saves too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from predict import estimate
from predict.config.document import Config, read_config, value_at
from predict.config.overrides import OPTION
from predict.interval import Interval
from predict.kinds import EnumeratedKind, Kind, ServerOptions, Values, kind, require_one_kind
from predict.plan_search.options import OBJECTIVES
from predict.plan_search.ties import contender, ratio
from predict.run.execution import OF_MIXTURES
from predict.run.model_flops import tokens_per_step
from predict.run.training_run import TrainingRun, settings_of
from predict.step.prediction import Prediction
from predict.step.scheduling import Estimate
from sampling.errors import Checks, UserError, naming
from sampling.files.faults import as_written
from sampling.progress import Progress, silent

Predicted = TypeVar("Predicted")


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside(Generic[Predicted]):
    """A prediction `other` beside the first: `BesideFirst`, or of training runs `Difference`."""

    first: Predicted
    other: Predicted
    settings: Mapping[str, tuple[Any, Any]]
    """Key path → its values in the two, where they differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BesideFirst(Beside[Predicted]):
    """An RL step, or a server, beside the first."""

    rate_ratio: Interval
    """Tokens trained on per second and GPU, or the rate that is carried, over that of the first, without the errors that both share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference(Beside[Prediction]):
    """A run `other` beside the first. Changes are other minus first: µs by heading, which add up to that of the step,
    and bytes of the worst pipeline rank by term, which add up to that of its peak. Times are those of `per_tokens`, the
    tokens of the first's step."""

    change_us: Mapping[str, float]
    memory_bytes: Mapping[str, float]

    @property
    def per_tokens(self) -> int:
        return tokens_per_step(self.first.run)

    @property
    def step_change_us(self) -> float:
        return _scale(self.first, self.other) * self.other.median_us - self.first.median_us

    @property
    def speed(self) -> float:
        """Tokens per second of the other over those of the first."""
        return self.other.tokens_per_second / self.first.tokens_per_second

    @property
    def speed_bounds(self) -> tuple[float, float] | None:
        """90 % bounds of `speed`, without the errors that both share; None for another model or GPU, where little is known to be shared."""
        first, other = self.first.run, self.other.run
        if first.model != other.model or first.cluster.gpu != other.cluster.gpu:
            return None
        slower = ratio(*(contender(each, OBJECTIVES["time"]) for each in (self.first, self.other)))
        return 1 / slower.high, 1 / slower.low

    @property
    def overlap(self) -> bool:
        """Whether the 90 % intervals of their tokens per second overlap, each by itself: what the two have in common makes their
        order surer than that."""
        first, other = (_rates(each) for each in (self.first, self.other))
        return first[0] <= other[1] and other[0] <= first[1]


def compare(
    *configs: Config,
    overrides: Sequence[str] = (),
    slo: Sequence[str] = (),
    price: str | None = None,
    model: str = "",
    coefficients: Path | str | None = None,
) -> Sequence[Any]:
    """Two or more configs, or loaded runs, of one kind, each but the first beside the first.

    `.settings` are those that differ. Of training runs it is a `Difference`, with the step heading by heading and memory term by term; of
    RL steps and servers it has the `.rate_ratio` with its bounds. `slo`, `price`, `model` and `coefficients` are of servers, as in
    `serving_answer`. UserError for configs of several kinds, or for one alone.
    """
    of_servers = ServerOptions(slo=slo, price=price, model=model, coefficients=coefficients)
    of, found = predicted(configs, overrides, of_servers, estimate)
    return beside_first(of, found)


def predicted(
    configs: Sequence[Config],
    overrides: Sequence[str],
    of_servers: ServerOptions,
    estimate: Estimate,
    progress: Progress = silent,
) -> tuple[Kind[Any, Any], Sequence[Any]]:
    """The kind of configs, and the prediction of each. UserError with every fault."""
    if len(configs) < 2:
        alone = f"{configs[0]} alone has nothing beside it" if configs else "missing"
        can_vary = bool(configs and overrides) and isinstance(configs[0], str | Path)
        instead = f", or vary a setting of one: {_varied(configs[0], overrides[0])}" if can_vary else ""
        raise UserError(f"CONFIG: {alone}; give two or more run configs{instead}")
    of = kind(require_one_kind(configs))
    runs, found = [], []
    with Checks() as checks:
        with checks.one():
            predict = of.predictor(estimate, of_servers)
        for config in configs:
            with checks.one():
                runs.append(of.load(config, overrides))
    for run in runs:
        with naming(run.name):
            found.append(predict(run))
        progress(len(found), len(runs), "")
    return of, found


def hint_on_settings(configs: Sequence[str], overrides: Sequence[str]) -> str:
    """A sentence on settings over one config that is given several times, which they make the same run; empty elsewhere."""
    if not overrides or len(set(configs)) > 1:
        return ""
    return f"{OPTION}: it holds for every config, so that nothing differs; to see what it changes, write {_varied(configs[0], overrides[0])}"


def _varied(config: Config, setting: str) -> str:
    """The command that shows a config under a setting, and under the value that it has without."""
    path, _, value = setting.partition("=")
    own = value_at(read_config(config).content, path.strip())
    before = "OTHER" if own is None or isinstance(own, Mapping) else as_written(own)
    return f"`predict sweep {config} --vary {path.strip()}={before},{value.strip()}`"


def beside_first(of: Kind[Any, Any], found: Sequence[Any]) -> Sequence[Any]:
    """Predictions of a kind, each but the first beside the first."""
    first, *others = found
    if not isinstance(of, EnumeratedKind):
        return differences(first, others)
    return [
        BesideFirst(
            first=first,
            other=other,
            settings=differing(of.settings(first), of.settings(other)),
            rate_ratio=of.rate_ratio(first, other),
        )
        for other in others
    ]


def differences(first: Prediction, others: Sequence[Prediction]) -> tuple[Difference, ...]:
    """The differences of runs from the first."""
    return tuple(_difference(first, other) for other in others)


def _difference(first: Prediction, other: Prediction) -> Difference:
    scale = _scale(first, other)
    return Difference(
        first=first,
        other=other,
        settings=_settings(first.run, other.run),
        change_us=_minus({name: scale * us for name, us in other.breakdown_us.items()}, first.breakdown_us),
        memory_bytes=_minus(other.memory.worst.terms, first.memory.worst.terms),
    )


def _scale(first: Prediction, other: Prediction) -> float:
    """Steps of the other run that have as many tokens as one of the first."""
    return tokens_per_step(first.run) / tokens_per_step(other.run)


def _minus(other: Mapping[str, float], first: Mapping[str, float]) -> dict[str, float]:
    return {name: other.get(name, 0.0) - first.get(name, 0.0) for name in {**first, **other}}


def _rates(prediction: Prediction) -> tuple[float, float]:
    """The bounds of the tokens per second."""
    step, rate = prediction.step_time, prediction.tokens_per_second
    return rate * step.median_us / step.high_us, rate * step.median_us / step.low_us


def _settings(first: TrainingRun, other: TrainingRun) -> dict[str, tuple[Any, Any]]:
    """The keys on which two runs differ; of dense models, without those that move mixtures alone."""
    found = differing(settings_of(first), settings_of(other))
    if first.model.experts or other.model.experts:
        return found
    return {path: values for path, values in found.items() if path.removeprefix("execution.") not in OF_MIXTURES}


def differing(first: Values, other: Values) -> dict[str, tuple[Any, Any]]:
    """Key path → its values in the two, where they differ."""
    return {path: (first[path], other[path]) for path in first if first[path] != other[path]}


def setting_text(value: Any) -> str:
    """A setting's value as a config writes it; `default` for an empty one."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value) or "default"
