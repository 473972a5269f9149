"""The whole job: a training's hours as a distribution, with its saves, its failures, what they lose, and the best time between saves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from predict.interval import Interval, together
from predict.layers.adapters import frozen_parameters, trained_parameters
from predict.ledger.job_energy import JobEnergy, job_energy, site_of
from predict.ledger.job_settings import ASYNC, IN_MEMORY, SHRINK, SYNC, JobSettings, job_settings
from predict.ledger.renewal import Hours, JobTimes, Repairs, best_between, draw_failures, young
from predict.ledger.training_cost import HOURS_PER_DAY, TrainingCost, WholeTraining, training_cost, whole_training
from predict.memory.state import bytes_per_parameter
from predict.rank.share import weight_bytes
from predict.run.frameworks import memory_profile_of
from predict.run.training_run import TrainingRun, one_replica
from predict.step.prediction import Prediction
from sampling.errors import Checks, UserError
from sampling.number_text import count, plain
from sampling.units import GB

DRAWS, SEED = 10_001, 0
MINUTES = 60.0
GB_PER_S_A_NODE = 2.0
MOST_FAILURES_AN_INTERVAL = 20.0
"""Failures expected in one interval beyond which a job does not come forward."""
BUSY = ("steps", "evaluations", "slow nodes", "fewer replicas", "lost work")
"""The parts of a job in which steps run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """A part of a job with settings of its own, such as a smaller batch or longer sequences, and the step that it has there."""

    prediction: Prediction
    tokens: float


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
    phases: tuple[TrainingCost, ...]
    """The steps of each phase, the config's own first; () of a job without phases."""
    days: Interval
    gpu_hours: Interval
    """Those that are paid for: of spare nodes too."""
    cost: Interval | None
    cost_per_million_tokens: Interval | None
    energy: JobEnergy | None
    """None where the hardware file states no power."""
    goodput: Interval
    """Share of the time in steps that are kept."""
    failures: Interval
    expected_hours: float
    """Mean of the closed form."""
    parts_hours: Mapping[str, float]
    saves: int
    save_min: float
    """Minutes of steps between saves."""
    best_save_min: float
    young_min: float
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
    phases: Sequence[Phase] = (),
) -> WholeJob:
    """Days and cost of training on `tokens`, with saves, failures and evaluations; `phases` are parts of these tokens with steps of their
    own. UserError for a number that is not valid, and where no save comes through between failures."""
    training = whole_training(tokens, price=price, goodput=1.0)
    run, given = prediction.run, settings if isinstance(settings, JobSettings) else job_settings(settings or {})
    with Checks() as checks:
        checks.run(_require_spares, run, given)
        checks.run(_require_replicas, run, given)
        checks.run(_require_phases, run, training.tokens, phases)
    parts = _phase_costs(prediction, training, phases)
    plain = _all_phases(parts)
    times = _times(run, plain, given)
    _require_progress(run, times, given)
    drawn = _draws(run, plain, times, given)
    failures = drawn.pop("failures")
    hours = np.sum(list(drawn.values()), axis=0)
    of_hours = _interval(hours)
    paid = run.cluster.world_size + given.spares * run.cluster.gpus_per_node
    gpu_hours = of_hours.scaled(paid)
    cost = gpu_hours.scaled(training.price.per_gpu(run.cluster.gpus_per_node)) if training.price else None
    return WholeJob(
        plain=plain,
        phases=parts if phases else (),
        days=of_hours.scaled(1 / HOURS_PER_DAY),
        gpu_hours=gpu_hours,
        cost=cost,
        cost_per_million_tokens=cost.scaled(1e6 / training.tokens) if cost else None,
        energy=_energy(prediction, given, drawn, of_hours),
        goodput=_interval(drawn["steps"] / hours),
        failures=_interval(failures),
        expected_hours=times.mean(),
        parts_hours={name: float(values.mean()) for name, values in drawn.items()},
        saves=round(times.intervals),
        save_min=times.between * MINUTES,
        best_save_min=best_between(times, least=_write_hours(run, given)) * MINUTES,
        young_min=young(times) * MINUTES,
        checkpoint_gb=checkpoint_bytes(run) / GB,
        save_s=times.save * 3600,
        load_s=_load_hours(run, given) * 3600,
        hours_between_failures=1 / times.rate if times.rate else math.inf,
        gains=_gains(run, plain, given),
    )


def _require_spares(run: TrainingRun, given: JobSettings) -> None:
    if given.spares > run.cluster.nodes:
        raise UserError(
            f"spares: {given.spares} spare nodes are more than the {run.cluster.nodes} that the job works on; give fewer"
        )


def _require_replicas(run: TrainingRun, given: JobSettings) -> None:
    if given.short == SHRINK and not _can_shrink(run):
        raise UserError(
            f"short: shrink needs a second replica on other nodes, and one takes all {run.cluster.nodes}; omit it, or give more nodes "
            "or a plan with a smaller replica (tp, pp, cp)"
        )


def _require_phases(run: TrainingRun, tokens: float, phases: Sequence[Phase]) -> None:
    if other := next((one.prediction.run for one in phases if one.prediction.run.cluster != run.cluster), None):
        raise UserError(
            f"phase: {other.name}: it has another cluster than the job; change the plan or the batch of a phase, not its cluster"
        )
    if (in_phases := sum(one.tokens for one in phases)) >= tokens:
        raise UserError(
            f"phase: the phases have {plain(in_phases)} tokens, which leave none of the job's {plain(tokens)} to the config itself; give fewer"
        )


def _require_progress(run: TrainingRun, times: JobTimes, given: JobSettings) -> None:
    """UserError for a job that does not come forward, at the highest of its likely rates."""
    if not times.rate:
        return
    rate = float(times.rates.max())
    spread = " at the upper end of the rate's spread" if given.failure_factor > 1 else ""
    short = " on the nodes that are left" if times.repairs.missing(times.rates).any() else ""
    fix = "give more hours (gpu_hours_a_failure)" + (", or a lower failure_factor" if spread else "")
    attempt = float(times.attempt(times.rates).max())
    if rate * max(times.recover, 0.0 if given.save_min else attempt) > MOST_FAILURES_AN_INTERVAL:
        raise UserError(
            f"gpu_hours_a_failure: a failure every {plain(MINUTES / rate)} minutes{spread}, where noticing one, restarting and loading take "
            f"{plain(times.recover * MINUTES)}, so that such a job never ends; {fix}, or recover faster (detect_min, restart_min, storage_gb_per_s)"
        )
    if rate * attempt > MOST_FAILURES_AN_INTERVAL:
        raise UserError(
            f"save_min: {plain((attempt - times.save) * MINUTES)} minutes of steps{short} and {plain(times.save * MINUTES)} to save them are "
            f"{count(rate * attempt)} times the {plain(MINUTES / rate)} minutes between failures{spread}, so that hardly any save comes through; "
            "save more often, or faster"
        )
    if given.save_min and (writing := max(times.save, _write_hours(run, given))) > times.between:
        raise UserError(
            f"save_min: a save takes {plain(writing * MINUTES)} minutes, longer than the {plain(times.between * MINUTES)} minutes of steps "
            "between saves; save less often, or to faster storage (storage_gb_per_s)"
        )


def _phase_costs(prediction: Prediction, training: WholeTraining, phases: Sequence[Phase]) -> tuple[TrainingCost, ...]:
    rest = training.tokens - sum(one.tokens for one in phases)
    own = Phase(prediction=prediction, tokens=rest)
    return tuple(
        training_cost(one.prediction, tokens=one.tokens, goodput=1.0, price=training.price) for one in (own, *phases)
    )


def _energy(
    prediction: Prediction, given: JobSettings, drawn: Mapping[str, Hours], hours: Interval
) -> JobEnergy | None:
    """The energy of the mean hours; boards draw the power of steps wherever these run, also in vain."""
    run, power = prediction.run, prediction.power
    if power is None:
        return None
    site = site_of(
        run.cluster.gpu,
        host_w=given.host_w,
        network_w=given.network_w,
        pue=given.pue,
        kg_per_kwh=given.kg_per_kwh,
    )
    busy = sum(float(drawn[name].mean()) for name in BUSY)
    mean_hours = sum(float(each.mean()) for each in drawn.values())
    paid = run.cluster.world_size + given.spares * run.cluster.gpus_per_node
    return job_energy(
        run.cluster.gpu,
        power,
        site,
        busy_gpu_hours=run.cluster.world_size * busy,
        gpu_hours=paid * mean_hours,
        hours=hours,
        mean_hours=mean_hours,
    )


def _all_phases(parts: Sequence[TrainingCost]) -> TrainingCost:
    """The steps of all phases, whose times err together."""
    if len(parts) == 1:
        return parts[0]

    def total(figures: Sequence[Interval | None]) -> Interval | None:
        known = [each for each in figures if each is not None]
        return together(known) if known else None

    return replace(
        parts[0],
        tokens=sum(part.tokens for part in parts),
        steps=sum(part.steps for part in parts),
        days=together(part.days for part in parts),
        gpu_hours=together(part.gpu_hours for part in parts),
        cost=total([part.cost for part in parts]),
        energy_mwh=total([part.energy_mwh for part in parts]),
    )


def checkpoint_bytes(run: TrainingRun) -> float:
    """Weights that are trained, of the whole model, and their optimizer state; gradients are not saved. Weights in few bits are saved as
    their products read them, and shards in fp32 as they are."""
    each = bytes_per_parameter(run, memory_profile_of(run))
    return float(trained_parameters(run)) * (max(weight_bytes(run), each.weights) + each.optimizer)


def loaded_bytes(run: TrainingRun) -> float:
    """A checkpoint, and the weights that are not trained, which are loaded and not saved: those that adapters adapt, a frozen tower's."""
    return checkpoint_bytes(run) + float(frozen_parameters(run)) * weight_bytes(run)


def _times(run: TrainingRun, plain: TrainingCost, given: JobSettings) -> JobTimes:
    nodes = run.cluster.nodes
    rates = (
        (run.cluster.world_size, given.gpu_hours_a_failure),
        (nodes, given.node_hours_a_failure),
        (nodes, given.switch_hours_a_failure),
        (nodes, given.spot_hours_a_loss),
    )
    steps = float(quantiles(plain.days.scaled(HOURS_PER_DAY)).mean())
    work = float(sum(_work(run, plain, steps, given).values()))
    times = JobTimes(
        work=work,
        between=work,
        save=_save_hours(run, given),
        recover=given.detect_min / MINUTES + _restart_hours(run, given) + _write_hours(run, given),
        rate=sum(count / hours for count, hours in rates if hours),
        rate_width=math.log(given.failure_factor),
        repairs=_repairs(run, given),
    )
    between = given.save_min / MINUTES if given.save_min else best_between(times, least=_write_hours(run, given))
    return replace(times, between=min(work, between))


def _work(run: TrainingRun, plain: TrainingCost, steps: float | Hours, given: JobSettings) -> dict[str, Any]:
    """Hours of the job's pieces that have to be done, whatever fails, with so many of its steps."""
    usual = plain.days.median * HOURS_PER_DAY
    with_slow, found = 0.0, 0.0
    if given.slow_node_h:
        each = run.cluster.nodes / given.slow_node_h  # slow nodes are Poisson; one or more of them hold all up alike
        with_slow, found = given.slow_share * -math.expm1(-each * given.slow_found_h), each * usual
    planned = math.floor(usual / given.planned_h) if given.planned_h else 0
    evaluated = math.floor(usual / given.evaluate_h) if given.evaluate_h else 0
    stop = _restart_hours(run, given) + _save_hours(run, given)
    return {
        "steps": steps,
        "evaluations": evaluated * given.evaluation_min / MINUTES,
        "first compilation": given.compile_min / MINUTES,
        "slow nodes": with_slow * steps + found * stop,
        "planned stops": planned * stop,
    }


def _repairs(run: TrainingRun, given: JobSettings) -> Repairs:
    return Repairs(
        nodes=run.cluster.nodes,
        node_share=given.node_share,
        hours=given.repair_h,
        spares=given.spares,
        replica_nodes=_replica_nodes(run) if given.short == SHRINK else 0,
    )


def _replica_nodes(run: TrainingRun) -> int:
    return max(1, math.ceil(one_replica(run).gpus / run.cluster.gpus_per_node))


def _can_shrink(run: TrainingRun) -> bool:
    """Whether a replica is left when a node is broken."""
    return _replica_nodes(run) < run.cluster.nodes


def _restart_hours(run: TrainingRun, given: JobSettings) -> float:
    return (given.restart_min + given.compile_min) / MINUTES + _load_hours(run, given)


def _storage_gb_per_s(run: TrainingRun, given: JobSettings) -> float:
    return given.storage_gb_per_s or GB_PER_S_A_NODE * run.cluster.nodes


def _to_storage_hours(run: TrainingRun, given: JobSettings) -> float:
    return checkpoint_bytes(run) / GB / _storage_gb_per_s(run, given) / 3600


def _to_host_hours(run: TrainingRun) -> float:
    return checkpoint_bytes(run) / GB / (run.cluster.gpu.of_host.gb_per_s * run.cluster.world_size) / 3600


def _between_hosts_hours(run: TrainingRun, amount_bytes: float) -> float:
    return amount_bytes / GB / (run.cluster.inter_node.gb_per_s * run.cluster.world_size) / 3600


def _save_hours(run: TrainingRun, given: JobSettings) -> float:
    """The time that steps wait for a save."""
    to_storage = _to_storage_hours(run, given)
    return to_storage if given.save == SYNC else min(_to_host_hours(run), to_storage)


def _write_hours(run: TrainingRun, given: JobSettings) -> float:
    """The time from there until a failure no longer loses the save."""
    if given.save == IN_MEMORY:
        return _between_hosts_hours(run, checkpoint_bytes(run))
    return _to_storage_hours(run, given) - _save_hours(run, given)


def _load_hours(run: TrainingRun, given: JobSettings) -> float:
    return load_hours(run, given, loaded_bytes(run))


def load_hours(run: TrainingRun, given: JobSettings, amount_bytes: float) -> float:
    """Hours to load so many bytes of state on a run's cluster."""
    if given.save == IN_MEMORY:
        return _between_hosts_hours(run, amount_bytes)
    return amount_bytes / GB / _storage_gb_per_s(run, given) / 3600


def _draws(run: TrainingRun, plain: TrainingCost, times: JobTimes, given: JobSettings) -> dict[str, Hours]:
    """Hours of each part, and the number of failures, shape (DRAWS,): steps by the interval of a step, failures by the spread of their
    rate and by chance. The quantiles of the steps alone are those of the interval."""
    random = np.random.default_rng(SEED)
    steps = random.permutation(quantiles(plain.days.scaled(HOURS_PER_DAY)))
    pieces = {name: np.broadcast_to(hours, DRAWS) for name, hours in _work(run, plain, steps, given).items()}
    work = np.sum(list(pieces.values()), axis=0)
    count = np.maximum(1.0, np.round(work / times.between))
    drawn = draw_failures(random, times, work, count)
    return {
        **pieces,
        "saves": count * times.save,
        "fewer replicas": drawn.fewer_replicas,
        "lost work": drawn.lost,
        "recovery": drawn.recovering,
        "waiting for repairs": drawn.waiting,
        "failures": drawn.failures,
    }


def quantiles(interval: Interval) -> Hours:
    """Equally likely values, shape (DRAWS,), whose quantiles are the interval's own figures: log-normal on either side."""
    z = _standard_quantiles()
    side = np.where(z < 0, math.log(interval.median / interval.low), math.log(interval.high / interval.median))
    return interval.median * np.exp(z * side)


@cache
def _standard_quantiles() -> Hours:
    """Quantiles of a normal variable in units of its 95th percentile, shape (DRAWS,)."""
    normal, end = NormalDist(), 0.5 / DRAWS
    shares = np.clip(np.arange(DRAWS) / (DRAWS - 1), end, 1 - end)
    return np.array([normal.inv_cdf(share) for share in shares]) / normal.inv_cdf(0.95)


def _interval(drawn: Hours) -> Interval:
    low, median, high = np.quantile(drawn, [0.05, 0.5, 0.95])
    return Interval(median=float(median), low=float(low), high=float(high))


Change = Callable[[JobSettings, TrainingRun], JobSettings]
MEASURES: Mapping[str, Change] = {
    "half the failures": lambda given, _: replace(
        given,
        gpu_hours_a_failure=2 * given.gpu_hours_a_failure,
        node_hours_a_failure=2 * given.node_hours_a_failure,
        switch_hours_a_failure=2 * given.switch_hours_a_failure,
    ),
    "storage twice as fast": lambda given, run: replace(given, storage_gb_per_s=2 * _storage_gb_per_s(run, given)),
    "failures noticed in half the time": lambda given, _: replace(given, detect_min=given.detect_min / 2),
    "restarts in half the time": lambda given, _: replace(given, restart_min=given.restart_min / 2),
    "compilation kept between starts": lambda given, _: replace(given, compile_min=0.0),
    "saves behind the steps": lambda given, _: replace(given, save=ASYNC),
    "saves in other hosts' memory": lambda given, _: replace(given, save=IN_MEMORY),
    "saves at the best interval": lambda given, _: replace(given, save_min=0.0),
    "a spare node more": lambda given, run: replace(given, spares=min(run.cluster.nodes, given.spares + 1)),
    "fewer replicas while nodes are broken": lambda given, run: replace(
        given, short=SHRINK if _can_shrink(run) else given.short
    ),
    "slow nodes found in half the time": lambda given, _: replace(given, slow_found_h=given.slow_found_h / 2),
}
"""A measure in words, and the settings with it."""


def _gains(run: TrainingRun, plain: TrainingCost, given: JobSettings) -> tuple[Gain, ...]:
    """Expected hours that each measure saves, the most first."""
    now = _times(run, plain, given).mean()
    gains = [
        Gain(measure=measure, hours=now - _times(run, plain, change(given, run)).mean())
        for measure, change in MEASURES.items()
    ]
    return tuple(sorted((gain for gain in gains if gain.hours > 1e-6 * now), key=lambda gain: -gain.hours))
