"""The whole job: a training's hours as a distribution, with its saves, its failures, what they lose, and the best time between saves.

Failures come at a constant rate, whatever the job does. Between two saves it either works for the whole interval and saves, or fails on the
way, loses what it did since the last save, and recovers, which may fail too. So the hours of one interval have a closed mean (Daly, A
higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22, 2006, equation 13), which the draws here equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from predict.interval import Interval
from predict.layers.adapters import trained_in_layer
from predict.ledger.training_cost import HOURS_PER_DAY, TrainingCost, training_cost, whole_training
from predict.memory.state import bytes_per_parameter
from predict.rank.share import weight_bytes
from predict.run.calibration_terms import NINETY
from predict.run.frameworks import memory_profile_of
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.errors import UserError
from sampling.files.faults import Fault
from sampling.files.schema import Key, build, one_of

GPU_HOURS_A_FAILURE = 50_000.0
"""GPU-hours between unexpected interruptions: 419 in 54 days of 16,384 H100 (Llama team, arXiv 2407.21783, table 5)."""
FAILURE_SPREAD = 1.3
"""Log half-width at 90 % of that figure, by published jobs: OPT-175B's 992 A100 had some 105 failures in two months (arXiv 2205.01068,
section 2.5), one in 13,600 GPU-hours."""
DRAWS, SEED = 10_000, 0
MOST_LOSSES = 4_000_000
"""Failed attempts that are drawn one by one; beyond, a job's are so many that their sum is normal."""
MINUTES = 60.0
GB = 1e9
INTERVALS_TRIED = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSettings:
    """A cluster's failures and saves, and a job's evaluations. Rates and times of 0 leave a part out."""

    gpu_hours_a_failure: Annotated[float, Key(minimum=0, maximum=1e12)] = GPU_HOURS_A_FAILURE
    """GPU-hours between failures that stop the job; 0 for a machine that never fails."""
    detect_min: Annotated[float, Key(minimum=0, maximum=1e5)] = 5.0
    """Minutes from a failure until it is noticed (MegaScale, arXiv 2402.15627, section 4: under 10 with diagnosis)."""
    restart_min: Annotated[float, Key(minimum=0, maximum=1e5)] = 10.0
    """Minutes from there until the state is being loaded: nodes replaced, processes started (the same: it catches up within 15)."""
    storage_gb_per_s: Annotated[float, Key(minimum=0, maximum=1e9)] = 0.0
    """GB/s at which all ranks together write and read a checkpoint; 0 for 2 a node (Llama team, section 3.3.3: 2 TB/s for some 1,000 to
    2,000 nodes)."""
    save: Annotated[str, one_of("sync", "async")] = "async"
    """sync: steps wait until a checkpoint is written; async: until it is in the host's memory, at a PCIe link's rate a GPU."""
    save_min: Annotated[float, Key(minimum=0, maximum=1e6)] = 0.0
    """Minutes of steps between saves; 0 for the best."""
    evaluate_h: Annotated[float, Key(minimum=0, maximum=1e6)] = 0.0
    """Hours of steps between evaluations; 0 for none."""
    evaluation_min: Annotated[float, Key(minimum=0, maximum=1e5)] = 0.0
    """Minutes of one evaluation."""


def job_settings(given: Sequence[str] | Mapping[str, Any]) -> JobSettings:
    """The settings of `KEY=VALUE` texts, or of a mapping; UserError with a line for each that is wrong."""
    values: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
    faults: list[Fault] = []
    for text in () if isinstance(given, Mapping) else given:
        name, equals, value = text.partition("=")
        if not equals:
            faults.append(Fault(path=text, problem="has no value; write KEY=VALUE"))
            continue
        try:
            values[name.strip()] = float(value)
        except ValueError:
            values[name.strip()] = value.strip()
    made, wrong = build(JobSettings, values)
    if faults or wrong or made is None:
        raise UserError("\n".join(f"--with: {fault.path}: {fault.problem}" for fault in (*faults, *wrong)))
    return made


GB_PER_S_A_NODE = 2.0
TO_HOST_GB_PER_S = 25.0
"""A GPU's copy of its share of the state to the host's memory: half of PCIe Gen4 x16."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobTimes:
    """Hours of one job's pieces; `rate` is failures an hour of the whole machine."""

    work: float
    """All steps, and the evaluations between them."""
    between: float
    """Work between two saves."""
    save: float
    recover: float
    """Noticing, restarting and loading after a failure."""
    rate: float

    @property
    def intervals(self) -> float:
        return max(1.0, self.work / self.between)

    def mean(self) -> float:
        """Expected hours of the job (Daly, equation 13); the exponents are bounded."""
        if not self.rate:
            return self.work + self.intervals * self.save
        attempt = min(300.0, self.rate * (self.work / self.intervals + self.save))
        recovery = min(300.0, self.rate * self.recover)
        return self.intervals * math.exp(recovery) * math.expm1(attempt) / self.rate


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """A measure, and the expected hours that it would save."""

    measure: str
    hours: float


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeJob:
    """A job's calendar time and cost: medians with 90 % intervals of the draws, and the mean hours of each part."""

    plain: TrainingCost
    """The steps alone, at a goodput of 1."""
    days: Interval
    gpu_hours: Interval
    cost: Interval | None
    energy_mwh: Interval | None
    goodput: Interval
    """Share of the time in steps that are kept."""
    failures: Interval
    parts_hours: Mapping[str, float]
    save_min: float
    """Minutes of steps between saves."""
    best_save_min: float
    young_min: float
    """√(2 · save · time between failures) (Young, CACM 17, 1974)."""
    checkpoint_gb: float
    save_s: float
    load_s: float
    hours_between_failures: float
    gains: tuple[Gain, ...]


def job(
    prediction: Prediction,
    tokens: str | float,
    *,
    price: str | None = None,
    settings: JobSettings | Mapping[str, Any] | None = None,
) -> WholeJob:
    """Days and cost of training on `tokens`, with saves, failures and evaluations; UserError for a number that is not valid, and where no
    save comes through between failures."""
    training = whole_training(tokens, price=price, goodput=1.0)
    run, given = prediction.run, settings if isinstance(settings, JobSettings) else job_settings(settings or {})
    plain = training_cost(run, prediction.step_time, tokens=training.tokens, goodput=1.0, price=training.price)
    times = _times(run, plain, given)
    if times.rate * times.recover > MOST_FAILURES_AN_INTERVAL:
        raise UserError(
            f"gpu_hours_a_failure: a failure every {MINUTES / times.rate:.3g} minutes, where noticing one, restarting and loading take "
            f"{times.recover * MINUTES:.3g}, so that such a job never ends; give more hours, or recover faster"
        )
    if times.rate * (times.between + times.save) > MOST_FAILURES_AN_INTERVAL:
        raise UserError(
            f"save_min: {times.between * MINUTES:.3g} minutes of steps and {times.save * MINUTES:.3g} to save them are "
            f"{times.rate * (times.between + times.save):.0f} times the {MINUTES / times.rate:.3g} minutes between failures, so that "
            "hardly any save comes through; save more often, or faster"
        )
    drawn = _draws(run, plain, times, given)
    hours = drawn["hours"]
    of_hours = _interval(hours)
    gpu_hours = of_hours.scaled(run.cluster.world_size)
    power_w = run.cluster.gpu.power_w
    return WholeJob(
        plain=plain,
        days=of_hours.scaled(1 / HOURS_PER_DAY),
        gpu_hours=gpu_hours,
        cost=gpu_hours.scaled(training.price.per_gpu(run.cluster.gpus_per_node)) if training.price else None,
        energy_mwh=gpu_hours.scaled(power_w / 1e6) if power_w else None,
        goodput=_interval(drawn["steps"] / hours),
        failures=_interval(drawn["failures"]),
        parts_hours={name: float(values.mean()) for name, values in drawn.items() if name not in ("hours", "failures")},
        save_min=times.between * MINUTES,
        best_save_min=best_between(times) * MINUTES,
        young_min=math.sqrt(2 * times.save / times.rate) * MINUTES if times.rate else math.inf,
        checkpoint_gb=checkpoint_bytes(run) / GB,
        save_s=times.save * 3600,
        load_s=_load_hours(run, given) * 3600,
        hours_between_failures=1 / times.rate if times.rate else math.inf,
        gains=_gains(run, plain, given),
    )


MOST_FAILURES_AN_INTERVAL = 20.0
"""Failures expected in one interval beyond which a job does not come forward."""


def checkpoint_bytes(run: TrainingRun) -> float:
    """Weights that are trained, of the whole model, and their optimizer state; gradients are not saved."""
    each = bytes_per_parameter(run, memory_profile_of(run))
    return float(_trained_parameters(run)) * (weight_bytes(run) + each.optimizer)


def _trained_parameters(run: TrainingRun) -> int:
    if not run.adapters.are_trained:
        return run.model.parameters
    whole = replace(run, plan=Plan())
    return sum(trained_in_layer(whole, kind).total for kind in run.model.kinds())


def loaded_bytes(run: TrainingRun) -> float:
    """What a job reads to go on: a checkpoint and, where that has adapters alone, their base."""
    base = run.model.parameters * weight_bytes(run) if run.adapters.are_trained else 0.0
    return checkpoint_bytes(run) + base


def _times(run: TrainingRun, plain: TrainingCost, given: JobSettings) -> JobTimes:
    work = plain.days.median * HOURS_PER_DAY
    if given.evaluate_h:
        work += math.floor(work / given.evaluate_h) * given.evaluation_min / MINUTES
    rate = run.cluster.world_size / given.gpu_hours_a_failure if given.gpu_hours_a_failure else 0.0
    times = JobTimes(
        work=work,
        between=work,
        save=_save_hours(run, given),
        recover=(given.detect_min + given.restart_min) / MINUTES + _load_hours(run, given),
        rate=rate,
    )
    between = given.save_min / MINUTES if given.save_min else best_between(times)
    return replace(times, between=min(work, between))


def _storage_gb_per_s(run: TrainingRun, given: JobSettings) -> float:
    return given.storage_gb_per_s or GB_PER_S_A_NODE * run.cluster.nodes


def _save_hours(run: TrainingRun, given: JobSettings) -> float:
    to_storage = checkpoint_bytes(run) / GB / _storage_gb_per_s(run, given)
    to_host = checkpoint_bytes(run) / GB / (TO_HOST_GB_PER_S * run.cluster.world_size)
    return (to_storage if given.save == "sync" else min(to_host, to_storage)) / 3600


def _load_hours(run: TrainingRun, given: JobSettings) -> float:
    return loaded_bytes(run) / GB / _storage_gb_per_s(run, given) / 3600


def best_between(times: JobTimes) -> float:
    """Hours of work between saves for which the expected hours are the fewest: all of it where nothing fails."""
    if not times.rate or not times.save:
        return times.work if not times.rate else min(times.work, 1 / MINUTES)
    least = min(times.work, times.save / 10)
    tried = np.geomspace(least, times.work, INTERVALS_TRIED)
    return float(min(tried, key=lambda between: replace(times, between=between).mean()))


def _draws(
    run: TrainingRun, plain: TrainingCost, times: JobTimes, given: JobSettings
) -> dict[str, NDArray[np.float64]]:
    """Hours of each part, shape (DRAWS,): steps by the interval of a step, failures by the spread of their rate and by chance."""
    random = np.random.default_rng(SEED)
    step = plain.days
    spread = math.log(step.high / step.low) / 2 / NINETY if step.low else 0.0
    scale = np.exp(spread * random.standard_normal(DRAWS))
    steps = step.median * HOURS_PER_DAY * scale
    work = steps + (times.work - step.median * HOURS_PER_DAY)
    count = np.maximum(1.0, np.round(work / times.between))
    attempt = work / count + times.save
    rates = np.full(DRAWS, times.rate)
    if times.rate and given.gpu_hours_a_failure == GPU_HOURS_A_FAILURE:
        rates = rates * np.exp(FAILURE_SPREAD / NINETY * random.standard_normal(DRAWS))
    lost, failed = _lost(random, count, attempt, rates)
    recovering, again = _recovering(random, failed, times.recover, rates)
    saves = count * times.save
    return {
        "steps": steps,
        "evaluations": work - steps,
        "saves": saves,
        "lost work": lost,
        "recovery": recovering,
        "failures": failed + again,
        "hours": work + saves + lost + recovering,
    }


def _lost(
    random: np.random.Generator, count: NDArray[np.float64], attempt: NDArray[np.float64], rates: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Hours of attempts that failed on the way to so many whole ones, and their number."""
    through = np.exp(-np.minimum(700.0, rates * attempt))
    failed = np.zeros(DRAWS)
    fails = through < 1
    failed[fails] = random.negative_binomial(count[fails], through[fails])
    return _until_failure(random, failed, attempt, rates), failed


def _recovering(
    random: np.random.Generator, failed: NDArray[np.float64], recover: float, rates: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Hours of recovering from so many failures, and the failures on the way."""
    through = np.exp(-np.minimum(700.0, rates * recover))
    again = np.zeros(DRAWS)
    fails = (failed > 0) & (through < 1)
    again[fails] = random.negative_binomial(failed[fails], through[fails])
    return failed * recover + _until_failure(random, again, np.full(DRAWS, recover), rates), again


def _until_failure(
    random: np.random.Generator, failed: NDArray[np.float64], whole: NDArray[np.float64], rates: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sum of the hours that each of `failed` attempts ran, of at most `whole` hours: an exponential that is cut there."""
    sums = np.zeros(DRAWS)
    some = failed > 0
    if not some.any():
        return sums
    rate, most, many = rates[some], whole[some], failed[some]
    share = -np.expm1(-rate * most)
    if many.sum() <= MOST_LOSSES:
        owner = np.repeat(np.arange(len(many)), many.astype(np.int64))
        drawn = -np.log1p(-random.random(len(owner)) * share[owner]) / rate[owner]
        sums[some] = np.bincount(owner, weights=drawn, minlength=len(many))
        return sums
    mean = 1 / rate - most * (1 - share) / share
    variance = 1 / rate**2 - most**2 * (1 - share) / share**2
    sums[some] = np.maximum(
        0.0, many * mean + np.sqrt(many * np.maximum(variance, 0.0)) * random.standard_normal(len(many))
    )
    return sums


def _interval(drawn: NDArray[np.float64]) -> Interval:
    low, median, high = np.quantile(drawn, [0.05, 0.5, 0.95])
    return Interval(median=float(median), low=float(low), high=float(high))


MEASURES: Mapping[str, Callable[[JobSettings, float], JobSettings]] = {
    "half the failures": lambda given, _: replace(given, gpu_hours_a_failure=2 * given.gpu_hours_a_failure),
    "storage twice as fast": lambda given, storage: replace(given, storage_gb_per_s=2 * storage),
    "failures noticed in half the time": lambda given, _: replace(given, detect_min=given.detect_min / 2),
    "restarts in half the time": lambda given, _: replace(given, restart_min=given.restart_min / 2),
    "saves behind the steps": lambda given, _: replace(given, save="async"),
    "saves at the best interval": lambda given, _: replace(given, save_min=0.0),
}
"""A measure in words, and the settings with it."""


def _gains(run: TrainingRun, plain: TrainingCost, given: JobSettings) -> tuple[Gain, ...]:
    """Expected hours that each measure saves, the most first."""
    now, storage = _times(run, plain, given).mean(), _storage_gb_per_s(run, given)
    gains = [
        Gain(measure=measure, hours=now - _times(run, plain, change(given, storage)).mean())
        for measure, change in MEASURES.items()
    ]
    return tuple(sorted((gain for gain in gains if gain.hours > 0), key=lambda gain: -gain.hours))
