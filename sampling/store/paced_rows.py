"""The rows of a profile at the pace of the machine at their moments: by the readings, and by how far rows follow them.

A reference is one short call. Where another process shares a core, or a collective waits for a thread, its time may double while
calls of milliseconds hardly move. Rows of one call at several moments show what a change of the readings is worth: their times are
regressed on the readings beside them. Within the changes that the readings saw, a change of the pace counts by that response: 1 where
rows follow the readings, 0 where the readings move by themselves. What goes beyond, nobody has seen: it counts in full.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sampling.hardware.cluster import Cluster
from sampling.store.pace import FEWEST_READINGS, MOST_RESIDUAL, RESOURCES, Response, Responses, pace_of, resource_shares
from sampling.store.pace_log import PaceLog, PaceReading, Series, read_log
from sampling.store.profiles import Manifest
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples, write_table

PRIOR_DEVIATION = 0.5
"""Standard deviation of a response about its expectation, before rows are seen."""
SMALL_CHANGE = 0.05
"""A change of pace, in log, that is worth following, however calm the session was."""
LEAST_NOISE = 0.01
"""Least standard deviation of rows about what the readings explain, in log: however few and alike they are."""
SEEN = 0.95
"""Share of the readings whose changes of pace count as seen."""
TURNS = 50
"""Turns of coordinate descent: three responses between 0 and 1 have settled long before."""

Floats = NDArray[np.float64]


def followed_log(readings: Iterable[PaceReading], rows: Sequence[tuple[Sample, Cluster]]) -> PaceLog:
    """The readings with how far rows follow them; each row comes with the machine that it was taken on."""
    readings = list(readings)
    return PaceLog(readings, responses(PaceLog(readings), rows))


def at_their_pace(log: PaceLog, rows: Iterable[tuple[Sample, Cluster]]) -> list[Sample]:
    """The rows with the pace of the machine at each; 1 for calls that no reference covers, and for rows of an unknown moment."""
    return [replace(sample, pace=_pace_at(log, sample, cluster)) for sample, cluster in rows]


def _pace_at(log: PaceLog, sample: Sample, cluster: Cluster) -> float:
    if sample.at_s is None:
        return 1.0
    paces = {
        resource: log.response(sample.busy_ranks, resource)(series.pace_at(sample.at_s, sample.session))
        for resource, series in log.beside(sample.busy_ranks, sample.call.group_size).items()
    }
    return pace_of(sample.call, sample.phase, cluster, paces)


def write_paces(directory: Path, manifest: Manifest) -> PaceLog:
    """Give every row of a profile the pace at its moment, by all readings so far, which are returned; tables that change are written."""
    readings = read_log(directory)
    if not readings:
        return PaceLog([])
    tables = {
        name: [(row, manifest.cluster(row.threads, row.busy_ranks)) for row in iterate_samples({name: table})]
        for name, table in read_samples(directory).items()
    }
    log = followed_log(readings, [row for rows in tables.values() for row in rows])
    for name, rows in tables.items():
        paced = at_their_pace(log, rows)
        if paced != [row for row, _ in rows]:
            write_table(directory, name, paced)
    return log


def responses(log: PaceLog, rows: Iterable[tuple[Sample, Cluster]]) -> Responses:
    """The responses by busy ranks and resource of rows that each come with the machine that they were taken on; none for rows without
    readings beside them."""
    read = {busy_ranks for _, busy_ranks, _ in log.series}
    by_ranks: dict[int, dict[Any, list[tuple[Sample, Cluster]]]] = {}
    for row in rows:
        sample = row[0]
        if sample.busy_ranks in read and sample.at_s is not None and not sample.quarantine:
            by_ranks.setdefault(sample.busy_ranks, {}).setdefault(sample.key, []).append(row)
    found = {}
    for busy_ranks, by_call in by_ranks.items():
        expected = np.array([_expected(log.beside(busy_ranks).get(resource)) for resource in RESOURCES])
        calls = list(by_call.values())
        for resource, within, deviation in zip(RESOURCES, *_fitted(log, calls, expected), strict=True):
            reach = _reach(log.beside(busy_ranks).get(resource))
            found[busy_ranks, resource] = Response(within=float(within), reach=reach, deviation=float(deviation))
    return found


def _reach(series: Series | None) -> float:
    """The change of a reference's time, in log, below which the share SEEN of its readings stays."""
    if series is None:
        return 0.0
    return float(np.quantile(np.abs(np.log(np.array(series.time_us) / series.reference_us)), SEEN))


def _expected(series: Series | None) -> float:
    """The response before rows are seen: the share of a change of SMALL_CHANGE or of the level's own wander, whichever is more, that is not
    noise in the median of FEWEST_READINGS."""
    if series is None:
        return 1.0
    wander = max(SMALL_CHANGE**2, float(np.var(series.log_pace)))
    return wander / (wander + np.pi / 2 / FEWEST_READINGS * series.noise**2)


def _fitted(log: PaceLog, calls: Sequence[Sequence[tuple[Sample, Cluster]]], expected: Floats) -> tuple[Floats, Floats]:
    """The responses by the rows of each call, about the expected ones, and their standard deviations [resources]; a row counts by its
    time, since steps are made of the long ones."""
    change, slowing, weight = [np.zeros(0)], [np.zeros((0, len(RESOURCES)))], [np.zeros(0)]
    for rows in calls:
        if len(rows) < 2:
            continue
        log_us = np.log([sample.time_us for sample, _ in rows])
        by_resource = np.array([_slowing(log, sample, cluster) for sample, cluster in rows])
        change.append(np.clip(log_us - log_us.mean(), -MOST_RESIDUAL, MOST_RESIDUAL))
        slowing.append(by_resource - by_resource.mean(axis=0))
        weight.append(np.exp(log_us))
    y, x, w = np.concatenate(change), np.concatenate(slowing), np.concatenate(weight)
    response, deviation = expected.copy(), np.full(len(RESOURCES), PRIOR_DEVIATION)
    if not len(y):
        return response, deviation
    w = w * w.sum() / float(w @ w)  # as many rows as count
    for _ in range(2):
        noise = max(LEAST_NOISE**2, float(w @ (y - x @ response) ** 2) / w.sum())
        products = (x.T * w) @ x / noise + np.eye(len(RESOURCES)) / PRIOR_DEVIATION**2
        moments = (x.T * w) @ y / noise + expected / PRIOR_DEVIATION**2
        for _ in range(TURNS):
            for place in range(len(RESOURCES)):
                rest = float(products[place] @ response) - products[place, place] * response[place]
                response[place] = min(1.0, max(0.0, (moments[place] - rest) / products[place, place]))
        deviation = np.sqrt(np.diag(np.linalg.inv(products)))
    return response, deviation


def _slowing(log: PaceLog, sample: Sample, cluster: Cluster) -> list[float]:
    """The change in log time of a row by each resource, if rows followed the readings in full [resources]."""
    beside = log.beside(sample.busy_ranks, sample.call.group_size)
    shares = resource_shares(sample.call, sample.phase, cluster)
    assert sample.at_s is not None
    return [
        -shares[resource] * float(np.log(beside[resource].pace_at(sample.at_s, sample.session)))
        if resource in beside
        else 0.0
        for resource in RESOURCES
    ]
