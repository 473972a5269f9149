"""Predictions of a machine whose true times are known: `python -m tests.bench.synthetic_machine [SEEDS or FIRST-LAST] [KIND …] [--gpu]`.

For each kind of disturbance and each seed the real timer samples the calls of a step on a synthetic machine, of the demo's on its CPU or
with --gpu of a Llama's on a GPU (the rehearsal of a session at clocks that fall), the real fit
learns from the rows, and the real step is composed of them; then the step is measured at later moments, as `predict validate` does.
Printed are the error of the median step, once the pace at the measurement is known, and the coverage of the 90 % interval: of the middle
one of the moments, which a validation over rounds reports, and of every moment by its own interval with the noise of its measurement.
"""

import math
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from pathlib import Path

import numpy as np
import torch

import predict
from predict.interval import Interval
from predict.prices.cost_model import CostModel
from predict.prices.open import SpeedOfLight
from predict.prices.pace import AtPace, followed, pace_spread
from predict.prices.price_list import PriceList
from predict.run.training_run import TrainingRun
from predict.workload.decompose import requests_of_runs
from regressors.bank import artifact
from regressors.bank.bank import Bank
from regressors.dataset.pace_facts import pace_facts
from regressors.dataset.training_data import training_data
from regressors.features.digests import hardware_digest
from regressors.fitting.fit import fit_operator
from regressors.models.candidates import ROOFLINE
from regressors.uncertainty.sampled_times import DEVIATIONS_90, MEDIAN_EFFICIENCY
from sampling.choosing.tasks import missing
from sampling.hardware.cluster import Cluster
from sampling.hardware.readings import OTHERS_LIMIT
from sampling.store.pace_log import PaceLog, PaceReading, References
from sampling.store.paced_rows import at_their_pace, followed_log
from sampling.store.sample import Sample
from sampling.timing.pace import PaceMeter, reference_calls
from sampling.timing.time_calls import stopwatch_of_reference, time_requests
from sampling.timing.timer import FULL
from tests.synthetic_machine import DISTURBANCES, HORIZON_S, MOMENT_NOISE, SyntheticMachine, TrueTimes

RUNS = {"cpu": "configs/runs/demo.yml", "gpu": "configs/runs/this-gpu/dense.yml"}
BUDGET_S = 150.0
"""Seconds of the session, as the demo's."""
ROUNDS, STEPS = 3, 8
"""Moments at which the step is measured, a minute apart, and steps at each."""
STEP_NOISE = 0.01
"""Standard deviation of the logarithm of a step on a quiet machine."""
NOISE_OF_MEASUREMENT = DEVIATIONS_90 * MEDIAN_EFFICIENCY * STEP_NOISE / math.sqrt(STEPS)
"""Half-width in log at 90 % by which the median of so few steps misses that of many."""
READINGS = 5
"""Readings of the pace at each of these moments."""
CALLS_OF_STEP = 60
"""Calls one after the other on a step's longest path, whose disturbances average out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The median step of a moment, in µs, and the readings of the pace beside it."""

    time_us: float
    beside: Sequence[PaceReading]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A seed's step: measured at several moments, in µs, predicted with its bounds at the reference pace, and at the pace that was read
    beside each measurement."""

    seed: int
    measured_us: Sequence[float]
    predicted: Interval
    at_its_pace: Sequence[Interval]

    @property
    def moments(self) -> list[tuple[Interval, float]]:
        """The prediction at its pace and the measurement of each moment, by their error."""
        pairs = zip(self.at_its_pace, self.measured_us, strict=True)
        return sorted(pairs, key=lambda pair: pair[0].median_us / pair[1])

    @property
    def middle(self) -> tuple[Interval, float]:
        """Those of the moment whose error is the median one."""
        return self.moments[len(self.moments) // 2]

    @property
    def error(self) -> float:
        predicted, measured_us = self.middle
        return predicted.median_us / measured_us - 1

    @property
    def covered(self) -> bool:
        predicted, measured_us = self.middle
        return predicted.covers(measured_us)

    @property
    def median_us(self) -> float:
        """The measured step that a validation over all moments reports."""
        return statistics.median(self.measured_us)


@cache
def run_of(machine: str) -> TrainingRun:
    """The run whose step is predicted on a machine."""
    return predict.load(RUNS[machine])


def simulate(run: TrainingRun, kind: str, seed: int) -> Outcome:
    machine = SyntheticMachine(cluster=run.cluster, disturbance=kind, seed=seed)
    samples, readings = session(machine, run)
    return outcome(run, seed, samples, readings, measured(machine, run))


def outcome(
    run: TrainingRun, seed: int, samples: Sequence[Sample], readings: Sequence[PaceReading], rounds: Sequence[Measured]
) -> Outcome:
    """The step by a session's rows and readings, next to what was measured."""
    cluster = run.cluster
    rows = [(sample, cluster) for sample in samples if not sample.quarantine]
    log = followed_log(readings, rows)
    good = [(sample, cluster) for sample in at_their_pace(log, rows)]
    bank = fitted(cluster, good, log)
    of_pace = pace_facts(log, good)[str(cluster.gpus_per_node)]

    def at_its_pace(one: Measured) -> Interval:
        now_us = References.of(one.beside).time_us
        shown = {resource: usual_us / now_us[resource] for resource, usual_us in of_pace["reference_us"].items()}
        return step(run, AtPace(bank, followed(of_pace, shown)), pace_spread(of_pace, shown))

    return Outcome(
        seed=seed,
        measured_us=[one.time_us for one in rounds],
        predicted=step(run, bank, pace_spread(of_pace, {})),
        at_its_pace=[at_its_pace(one) for one in rounds],
    )


def device_of(cluster: Cluster) -> torch.device:
    return torch.device("cpu" if cluster.gpu.kind == "cpu" else "cuda")


def step(run: TrainingRun, model: CostModel, spread: float = 0.0) -> Interval:
    """The step composed of a model's times, of whose composition nothing but the pace is unknown, by the half-width `spread`."""
    prices = PriceList([model, SpeedOfLight()], run.cluster, profile_error=0.0, pace_spread=spread)
    return predict.estimate(run, prices=prices).step_time


def session(machine: SyntheticMachine, run: TrainingRun) -> tuple[list[Sample], list[PaceReading]]:
    """The rows and readings of a session for the run's calls."""
    (requests,) = requests_of_runs([run]).values()
    rows: list[Sample] = []
    readings: list[PaceReading] = []
    with machine.in_place_of_torch() as ranks:
        while machine.now_s < BUDGET_S:
            visits = 1 + min(Counter((row.call, row.phase) for row in rows).values(), default=0)
            time_requests(
                missing(requests, rows, machine.ranks, visits),
                device=device_of(machine.cluster),
                cluster=machine.cluster,
                ranks=ranks,
                session=0,
                deadline_s=BUDGET_S,
                settings=FULL,
                keep=rows.append,
                say=lambda text: None,
                keep_reading=readings.append,
            )
    return rows, readings


def fitted(cluster: Cluster, good: Sequence[tuple[Sample, Cluster]], log: PaceLog) -> Bank:
    operators = [fit_operator(data, [ROOFLINE])[0] for data in training_data(good, disturbance=log.disturbance)]
    facts = {"hardware": {str(cluster.threads): hardware_digest(cluster)}, "architecture": cluster.gpu.architecture}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        artifact.save(Path(folder), operators, facts)
        return Bank.load(Path(folder))


def measured(machine: SyntheticMachine, run: TrainingRun) -> list[Measured]:
    """The median step at each of ROUNDS moments, without those beside other processes where they are fewer than half, as `predict
    validate` does, and readings of the pace beside it."""
    first_s = machine.now_s + machine.random.uniform(300, HORIZON_S - machine.now_s - 900)
    found: dict[bool, list[Measured]] = {True: [], False: []}  # by whether others took little of the CPU
    for turn in range(ROUNDS):
        machine.now_s = first_s + 60 * turn
        quiet = bool(machine.weather.others[int(machine.now_s)] <= OTHERS_LIMIT)
        exact = TrueTimes(machine=machine, slowdown=machine.slowdown(machine.now_s).max(axis=1), luck=MOMENT_NOISE)
        true_us = step(run, exact).median_us
        noises = np.exp(machine.random.normal(0.0, STEP_NOISE, STEPS))
        steps = [true_us * noise * float(machine.tails(CALLS_OF_STEP).mean()) for noise in noises]
        found[quiet].append(Measured(time_us=statistics.median(steps), beside=read_pace(machine)))
    return found[True] if len(found[True]) >= len(found[False]) else found[True] + found[False]


def read_pace(machine: SyntheticMachine) -> list[PaceReading]:
    """READINGS of the pace, which `predict measure` takes beside the steps."""
    found: list[PaceReading] = []
    with machine.in_place_of_torch() as ranks:
        meter = PaceMeter(
            cluster=machine.cluster,
            device=device_of(machine.cluster),
            ranks=ranks,
            session=0,
            keep=found.append,
            stopwatch_of=lambda call: stopwatch_of_reference(call, device_of(machine.cluster), machine.cluster),
            calls=reference_calls(machine.cluster),
        )
        for _ in range(READINGS):
            meter.read()
    return found


def report(kind: str, outcomes: Sequence[Outcome]) -> str:
    """The errors, the coverage and the width of the outcomes of a kind of disturbance in one line."""
    errors = np.array([each.error for each in outcomes])
    whole = np.array([each.predicted.median_us / each.median_us - 1 for each in outcomes])
    width = np.median([each.predicted.half_width_log for each in outcomes])
    own_width = np.median([each.middle[0].half_width_log for each in outcomes])
    covered = np.mean([each.predicted.covers(each.median_us) for each in outcomes])
    own_covered = np.mean([each.covered for each in outcomes])
    of_moments = np.mean(
        [predicted.widened(NOISE_OF_MEASUREMENT).covers(us) for each in outcomes for predicted, us in each.moments]
    )
    worst = outcomes[int(np.abs(errors).argmax())]
    return (
        f"{kind:18} at its pace: error {np.abs(errors).mean():5.1%}  bias {errors.mean():+5.1%}  worst "
        f"{worst.error:+6.1%} (seed {worst.seed:3})  coverage {own_covered:4.0%}, of moments {of_moments:4.0%}  half-width {own_width:5.1%} | at the "
        f"reference pace: error {np.abs(whole).mean():5.1%}  coverage {covered:4.0%}  half-width {width:5.1%}"
    )


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--gpu"]
    run = run_of("gpu" if "--gpu" in sys.argv else "cpu")
    first, _, last = (words[0] if words else "0-199").partition("-")
    seeds = range(int(first), int(last) + 1) if last else range(int(first))
    kinds = words[1:] or list(DISTURBANCES)
    print(f"seeds {seeds[0]} to {seeds[-1]} of each kind: errors of the median step, and coverage of its 90 % interval")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for kind in kinds:
            start = time.monotonic()
            outcomes = list(pool.map(simulate, repeat(run), repeat(kind), seeds, chunksize=5))
            print(f"{report(kind, outcomes)}  {time.monotonic() - start:4.0f} s", flush=True)


if __name__ == "__main__":
    main()
