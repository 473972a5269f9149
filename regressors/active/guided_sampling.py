"""Sample the most informative shapes: `python -m regressors.active.guided_sampling --profile this-machine --budget 300`.

This is the session of `python -m sampling` with a strategy of its own, over a pool of shapes much larger than the budget:
first the calls of named runs, then a space-filling share, then batches on which models of the rows so far disagree most, and at the
end of the session the named calls once more.
"""

from __future__ import annotations

from sampling import early_interrupt  # noqa: F401

# isort: split
import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from regressors.active.choice import GROWTH, UNKNOWN, Timed, Untimed, next_rows
from regressors.features.arrays import Floats
from regressors.features.pricing import price
from regressors.features.schema import schema_of
from regressors.fitting.fit import MIN_SHAPES_TO_LEARN
from sampling.__main__ import ROWS_KEPT, run
from sampling.arithmetic.operator import Operator
from sampling.call import Call, Request
from sampling.choosing.tasks import SamplingTask, missing
from sampling.command_line import exit_code_of
from sampling.errors import ConfigError
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.ranks.job import START_S, RunJob
from sampling.ranks.rank import rank_from
from sampling.session.run_tasks import RETAKEN_SHARE, SessionOutcome, retake, run_tasks
from sampling.session.site import session_parser
from sampling.store.profiles import Manifest
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples
from sampling.timing.timer import TimerSettings, cpu_phase_s

POOL_MODELS = 512
"""Models whose shapes may be chosen: far more than a session times."""
FIRST_OF_EACH = MIN_SHAPES_TO_LEARN
"""Shapes of each kind of call that fill the space before a committee is asked: kinds are many, and a budget is short."""
LEAST_BATCH = 24
"""Least number of calls per batch: a job of fewer would spend its time on starting."""
SETUP_S = 0.2
"""Time to create the tensors of a phase and to warm its caches."""


def parser() -> argparse.ArgumentParser:
    return session_parser("python -m regressors.active.guided_sampling", str(__doc__), models=POOL_MODELS)


def main(arguments: Sequence[str] | None = None) -> int:
    def session() -> int:
        options = parser().parse_args(arguments)
        if rank_from(os.environ) is not None:
            raise ConfigError(
                "guided sampling runs on one machine, and this process is one rank of several; run `python -m sampling` "
                "on every rank instead"
            )
        return run(options, strategy=guided)

    return exit_code_of(session, interrupted=ROWS_KEPT)


def guided(
    directory: Path, manifest: Manifest, tasks: Sequence[SamplingTask], *, budget_s: float, run_job: RunJob
) -> SessionOutcome:
    """The strategy of `sampling.session.run_tasks` that times the calls of named runs first, then the most informative shapes.

    The outcome counts only calls of named runs as not reached: the other tasks are pools to choose from.
    """
    end = time.monotonic() + budget_s

    def time_until(chosen: Sequence[SamplingTask], until: float) -> SessionOutcome:
        left_s = max(0.0, until - time.monotonic())
        return run_tasks(directory, manifest, chosen, budget_s=left_s, run_job=run_job)

    named = [task for task in tasks if not task.fills_space]
    pools = [task for task in tasks if task.fills_space]
    needed = [request for task in named for request in task.requests]
    last_visit_s = _all_visits_but_the_last(named, partial(time_until, until=end))
    left_s = end - time.monotonic()
    retake(directory, manifest, named, budget_s=RETAKEN_SHARE * left_s, run_job=run_job)
    for index, pool in enumerate(pools):
        now = time.monotonic()
        share_end = now + (end - last_visit_s - now) / (len(pools) - index)
        _sample_pool(directory, manifest, pool, needed, until=share_end, time_until=time_until)
    return time_until(named, end)


def _all_visits_but_the_last(
    named: Sequence[SamplingTask], time_tasks: Callable[[Sequence[SamplingTask]], SessionOutcome]
) -> float:
    """Time named calls at all of their moments but the last, which is left for the end of the session, so that their moments span it.
    Returns the seconds that the last needs: 0 where it is taken at once, as by a session that finds the others taken."""
    begun_s = time.monotonic()
    earlier = [replace(task, visits=max(1, task.visits - 1)) for task in named]
    if earlier != list(named) and time_tasks(earlier).kept:
        return (time.monotonic() - begun_s) / max(task.visits for task in earlier)
    time_tasks(named)
    return 0.0


def _sample_pool(
    directory: Path,
    manifest: Manifest,
    pool: SamplingTask,
    needed: Sequence[Request],
    *,
    until: float,
    time_until: Callable[[Sequence[SamplingTask], float], SessionOutcome],
) -> None:
    """Time batch after batch of a pool until the time is over; calls that left no row are not tried again."""
    cluster = load_cluster(
        hardware=manifest.hardware,
        nodes=pool.nodes,
        gpus_per_node=pool.busy_ranks,
        profile=manifest.profile,
        cores=manifest.device.get("cores"),
    )
    tried: set[Call] = set()
    while time.monotonic() + START_S < until:
        rows = [row for row in iterate_samples(read_samples(directory)) if not row.quarantine]
        lacking = [
            request
            for request in missing(pool.requests, rows, pool.busy_ranks, pool.visits)
            if request.call not in tried
        ]
        own = [row for row in rows if row.busy_ranks == pool.busy_ranks and row.threads == cluster.threads]
        batch = first_batch(own, lacking) if not tried else []
        batch = batch or next_batch(own, lacking, needed, cluster)
        if not batch:
            return
        tried.update(request.call for request in batch)
        time_until([replace(pool, requests=batch, fills_space=False)], until)


def first_batch(rows: Sequence[Sample], lacking: Sequence[Request]) -> list[Request]:
    """The first few requests of every kind of call, in the order drawn, which fills the space; without kinds that have rows."""
    kinds = _Kinds.of(rows, lacking, ())
    left = {name: kinds.first_of(name) for name in kinds.names}
    batch = []
    for request in lacking:
        if left[request.call.NAME]:
            left[request.call.NAME] -= 1
            batch.append(request)
    return batch


def next_batch(
    rows: Sequence[Sample], lacking: Sequence[Request], needed: Sequence[Request], cluster: Cluster
) -> list[Request]:
    """The most informative requests.

    `rows` are the good rows so far. Requests near calls of named runs (`needed`) that extrapolate come first.
    """
    kinds = _Kinds.of(rows, lacking, needed)
    timed = sum(kinds.timed(name) for name in kinds.names)
    count = max(LEAST_BATCH, round(GROWTH * timed))
    return shared_out({name: _choose(kinds, name, count, cluster) for name in kinds.names}, count)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kinds:
    """Rows and requests by the name of their call; the first phase of a call stands for all."""

    rows: dict[str, list[Sample]]
    lacking: dict[str, list[Request]]
    needed: dict[str, list[Request]]

    @classmethod
    def of(cls, rows: Sequence[Sample], lacking: Sequence[Request], needed: Sequence[Request]) -> _Kinds:
        by_name: dict[str, list[Sample]] = {}
        for row in rows:
            if row.phase == row.call.PHASES[0]:
                by_name.setdefault(row.call.NAME, []).append(row)
        return cls(rows=by_name, lacking=_by_name(lacking), needed=_by_name(needed))

    @property
    def names(self) -> list[str]:
        return list(self.lacking)

    def timed(self, name: str) -> int:
        return len({row.call for row in self.rows.get(name, ())})

    def first_of(self, name: str) -> int:
        return max(0, FIRST_OF_EACH - self.timed(name))


def _by_name(requests: Sequence[Request]) -> dict[str, list[Request]]:
    found: dict[str, list[Request]] = {}
    for request in requests:
        found.setdefault(request.call.NAME, []).append(request)
    return found


def _choose(kinds: _Kinds, name: str, count: int, cluster: Cluster) -> tuple[list[Request], float]:
    """The requests of one kind, the most useful first, and how much its committee disagrees."""
    rows, lacking = kinds.rows.get(name, []), kinds.lacking[name]
    if len(rows) < MIN_SHAPES_TO_LEARN:
        return lacking[:count], UNKNOWN
    needed = kinds.needed.get(name, [])
    phase = rows[0].phase
    calls = [*(row.call for row in rows), *(request.call for request in [*lacking, *needed])]
    priced = [price(call, phase, cluster) for call in calls]
    terms, features = schema_of(priced).matrices(priced)
    time_us = np.array([row.time_us * row.pace for row in rows])
    timed = Timed(terms=terms[: len(rows)], features=features[: len(rows)], time_us=time_us)
    untimed, named = (
        Untimed(terms=terms[rows_of], features=features[rows_of], cost_s=_seconds(terms[rows_of], timed, of, cluster))
        for rows_of, of in (
            (slice(len(rows), len(rows) + len(lacking)), lacking),
            (slice(len(rows) + len(lacking), None), needed),
        )
    )
    choice = next_rows(timed, untimed, min(count, len(lacking)), named)
    return [lacking[place] for place in choice.places], choice.disagreement


def _seconds(terms: Floats, timed: Timed, requests: Sequence[Request], cluster: Cluster) -> Floats:
    """Seconds that timing each request costs, on a device in all the states that it is timed in."""
    from sampling.timing.device_states import device_phase_s

    settings = TimerSettings()
    slowdown = float(np.median(timed.time_us / np.maximum(timed.terms.sum(axis=1), 1e-3)))
    run_s = terms.sum(axis=1) * slowdown * 1e-6

    def phase_s(request: Request, run_s: float) -> float:
        if cluster.gpu.kind == "cpu":
            return cpu_phase_s(settings, run_s)
        return device_phase_s(settings, run_s, sustained=isinstance(request.call, Operator))

    seconds = [
        len(request.phases) * (SETUP_S + phase_s(request, each_s))
        for request, each_s in zip(requests, run_s.tolist(), strict=True)
    ]
    return np.array(seconds, dtype=np.float64)


def shared_out(orders: Mapping[str, tuple[Sequence[Request], float]], count: int) -> list[Request]:
    """The first `count` requests of all kinds: each kind gets seats in proportion to its disagreement (D'Hondt method)."""
    seats = [
        (disagreement / (place + 1), request)
        for requests, disagreement in orders.values()
        for place, request in enumerate(requests)
    ]
    return [request for _, request in sorted(seats, key=lambda seat: -seat[0])[:count]]


if __name__ == "__main__":
    sys.exit(main())
