"""The difference of two runs, term by term: what each heading of the step, and each term of memory, adds or saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from predict import one_batch
from predict.config.document import Config
from predict.memory.peak import TERMS
from predict.plan_search.answer import contender, ratio
from predict.plan_search.options import OBJECTIVES
from predict.run.execution import OF_MIXTURES
from predict.run.model_flops import tokens_per_step
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction

SECTIONS = ("plan", "batch", "execution")


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A run `other` beside the first. Changes are other minus first: µs by heading, which add up to that of the step,
    and bytes of the worst pipeline rank by term, which add up to that of its peak. Times are those of `per_tokens`, the
    tokens of the first's step."""

    first: Prediction
    other: Prediction
    settings: Mapping[str, tuple[Any, Any]]
    """Key path → its values in the two, where they differ."""
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


def compare(first: Config, *others: Config, overrides: Sequence[str] = ()) -> tuple[Difference, ...]:
    """The differences of configs from the first: settings, the step heading by heading, and memory term by term."""
    return differences(one_batch(first, overrides), [one_batch(other, overrides) for other in others])


def differences(first: Prediction, others: Sequence[Prediction]) -> tuple[Difference, ...]:
    """The differences of runs from the first."""
    return tuple(_difference(first, other) for other in others)


def _difference(first: Prediction, other: Prediction) -> Difference:
    worst, scale = [each.memory.worst for each in (first, other)], _scale(first, other)
    return Difference(
        first=first,
        other=other,
        settings=_settings(first.run, other.run),
        change_us=_minus({name: scale * us for name, us in other.breakdown_us.items()}, first.breakdown_us),
        memory_bytes=_minus(*({term: getattr(rank, term) for term in TERMS} for rank in reversed(worst))),
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


def differing(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Key path → its values in the two, where they differ."""
    return {path: (first[path], other[path]) for path in first if first[path] != other[path]}


def settings_of(run: TrainingRun) -> dict[str, Any]:
    """Key path → value of a run's settings, the model and the cluster by their names."""
    keys = {
        f"{section}.{name.rstrip('_')}": value
        for section in SECTIONS
        for name, value in asdict(getattr(run, section)).items()
    }
    cluster = run.cluster
    return {
        "model": run.model.name,
        "cluster.hardware": cluster.gpu.name,
        "cluster.nodes": cluster.nodes,
        "cluster.gpus_per_node": cluster.gpus_per_node,
        "cluster.profile": cluster.profile,
        "precision": run.precision,
        **keys,
    }


def setting_text(value: Any) -> str:
    """A setting's value as a config writes it; `default` for an empty one."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value) or "default"
