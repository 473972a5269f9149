"""Predictions of a machine whose true times are known: `python -m tests.bench.synthetic_machine [SEEDS or FIRST-LAST] [KIND …]`.

For each kind of disturbance and each seed the real timer samples the calls of the demo's step on a synthetic machine, the real fit
learns from the rows, and the real step is composed of them; then the step is measured at later moments, as `predict validate` does.
Printed are the error of the median step, once the pace at the measurement is known, and the coverage of the 90 % interval.
"""

from __future__ import annotations

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
from predict.prices.pace import AtPace, pace_spread
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
from sampling.choosing.tasks import missing
from sampling.hardware.cluster import Cluster
from sampling.hardware.readings import OTHERS_LIMIT
from sampling.store.pace import PaceLog, Reading, Response
from sampling.store.paced_rows import at_their_pace, followed_log
from sampling.store.sample import Sample
from sampling.timing.pace import PaceMeter, reference_calls
from sampling.timing.time_calls import time_requests
from sampling.timing.timer import FULL
from tests.synthetic_machine import DISTURBANCES, HORIZON_S, MOMENT_NOISE, SyntheticMachine, TrueTimes

BUDGET_S = 150.0
"""Seconds of the session, as the demo's."""
ROUNDS, STEPS = 3, 8
"""Moments at which the step is measured, a minute apart, and steps at each."""
STEP_NOISE = 0.01
"""Standard deviation of the logarithm of a step on a quiet machine."""
READINGS = 5
"""Readings of the pace at each of these moments."""
CALLS_OF_STEP = 60
"""Calls one after the other on a step's longest path, whose disturbances average out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A seed's step in µs: measured, predicted with its bounds at the reference pace, and at the pace read beside the measurement."""

    seed: int
    measured_us: float
    predicted: Interval
    at_its_pace: Interval

    @property
    def error(self) -> float:
        return self.at_its_pace.median_us / self.measured_us - 1


@cache
def demo() -> TrainingRun:
    return predict.load("configs/runs/demo.yml")


def simulate(kind: str, seed: int) -> Outcome:
    run = demo()
    machine = SyntheticMachine(cluster=run.cluster, disturbance=kind, seed=seed)
    samples, readings = session(machine, run)
    rows = [(sample, machine.cluster) for sample in samples if not sample.quarantine]
    log = followed_log(readings, rows)
    good = [(sample, machine.cluster) for sample in at_their_pace(log, rows)]
    bank = fitted(machine, good, log)
    of_pace = pace_facts(log, good)[str(machine.ranks)]
    measured_us, beside = measured(machine, run)
    paces = {
        resource: Response(**response)(
            of_pace["reference_us"][resource]
            / statistics.median(reading.slowest_us for reading in beside if reading.resource == resource)
        )
        for resource, response in of_pace["response"].items()
    }
    return Outcome(
        seed=seed,
        measured_us=measured_us,
        predicted=step(run, bank, pace_spread(of_pace, {})),
        at_its_pace=step(run, AtPace(bank, paces), pace_spread(of_pace, paces)),
    )


def step(run: TrainingRun, model: CostModel, spread: float = 0.0) -> Interval:
    """The step composed of a model's times, of whose composition nothing but the pace is unknown, by the half-width `spread`."""
    prices = PriceList([model, SpeedOfLight()], run.cluster, profile_error=0.0, pace_spread=spread)
    return predict.estimate(run, prices=prices).step_time


def session(machine: SyntheticMachine, run: TrainingRun) -> tuple[list[Sample], list[Reading]]:
    """The rows and readings of a session for the run's calls."""
    (requests,) = requests_of_runs([run]).values()
    rows: list[Sample] = []
    readings: list[Reading] = []
    with machine.in_place_of_torch() as ranks:
        while machine.now_s < BUDGET_S:
            visits = 1 + min(Counter((row.call, row.phase) for row in rows).values(), default=0)
            time_requests(
                missing(requests, rows, machine.ranks, visits),
                device=torch.device("cpu"),
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


def fitted(machine: SyntheticMachine, good: Sequence[tuple[Sample, Cluster]], log: PaceLog) -> Bank:
    cluster = machine.cluster
    operators = [fit_operator(data, [ROOFLINE])[0] for data in training_data(good, disturbance=log.disturbance)]
    facts = {"hardware": {str(cluster.threads): hardware_digest(cluster)}, "architecture": "cpu"}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        artifact.save(Path(folder), operators, facts)
        return Bank.load(Path(folder))


def measured(machine: SyntheticMachine, run: TrainingRun) -> tuple[float, list[Reading]]:
    """The median of the steps at ROUNDS moments, those beside other processes left out as `predict validate` does, and readings of the
    pace beside them."""
    first_s = machine.now_s + machine.random.uniform(300, HORIZON_S - machine.now_s - 900)
    steps: dict[bool, list[float]] = {True: [], False: []}  # by whether others took little of the CPU
    readings: dict[bool, list[Reading]] = {True: [], False: []}
    for turn in range(ROUNDS):
        machine.now_s = first_s + 60 * turn
        quiet = bool(machine.weather.others[int(machine.now_s)] <= OTHERS_LIMIT)
        exact = TrueTimes(machine=machine, slowdown=machine.slowdown(machine.now_s).max(axis=1), luck=MOMENT_NOISE)
        true_us = step(run, exact).median_us
        for _ in range(STEPS):
            noise = float(np.exp(machine.random.normal(0.0, STEP_NOISE)))
            steps[quiet].append(true_us * noise * float(machine.tails(CALLS_OF_STEP).mean()))
        readings[quiet] += read_pace(machine)
    enough = len(steps[True]) >= len(steps[False])
    return (
        statistics.median(steps[True] if enough else steps[True] + steps[False]),
        readings[True] if enough else readings[True] + readings[False],
    )


def read_pace(machine: SyntheticMachine) -> list[Reading]:
    """READINGS of the pace, which `predict measure` takes beside the steps."""
    found: list[Reading] = []
    with machine.in_place_of_torch() as ranks:
        meter = PaceMeter(
            cluster=machine.cluster,
            device=torch.device("cpu"),
            ranks=ranks,
            session=0,
            keep=found.append,
            stopwatch_of=lambda call: machine.stopwatch_of(machine.cluster.threads, call.group_size > 1),
            calls=reference_calls(machine.cluster),
        )
        for _ in range(READINGS):
            meter.read()
    return found


def main() -> None:
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "0-199").partition("-")
    seeds = range(int(first), int(last) + 1) if last else range(int(first))
    kinds = sys.argv[2:] or list(DISTURBANCES)
    print(f"seeds {seeds[0]} to {seeds[-1]} of each kind: errors of the median step, and coverage of its 90 % interval")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for kind in kinds:
            start = time.monotonic()
            outcomes = list(pool.map(simulate, repeat(kind), seeds, chunksize=5))
            errors = np.array([each.error for each in outcomes])
            whole = np.array([each.predicted.median_us / each.measured_us - 1 for each in outcomes])
            width = np.median([each.predicted.half_width_log for each in outcomes])
            own_width = np.median([each.at_its_pace.half_width_log for each in outcomes])
            covered = np.mean([each.predicted.covers(each.measured_us) for each in outcomes])
            own_covered = np.mean([each.at_its_pace.covers(each.measured_us) for each in outcomes])
            worst = outcomes[int(np.abs(errors).argmax())]
            print(
                f"{kind:18} at its pace: error {np.abs(errors).mean():5.1%}  bias {errors.mean():+5.1%}  worst {worst.error:+6.1%} (seed "
                f"{worst.seed:3})  coverage {own_covered:4.0%}  half-width {own_width:5.1%} | at the reference pace: error "
                f"{np.abs(whole).mean():5.1%}  coverage {covered:4.0%}  half-width {width:5.1%}  {time.monotonic() - start:4.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
