"""Gives the rows of a profile the pace of the machine at their moments, by its readings and by how far the rows follow them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from sampling.hardware.cluster import Cluster
from sampling.store.pace import pace_of
from sampling.store.pace_log import PaceLog, PaceReading, read_log
from sampling.store.pace_response import responses
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples, write_table


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
        resource: log.response(sample.busy_ranks, resource)(series.pace_at(sample.at_s))
        for resource, series in log.beside(sample.busy_ranks, sample.call.group_size).items()
    }
    return pace_of(sample.call, sample.phase, cluster, paces)


def write_paces(directory: Path, cluster_of: Callable[[Sample], Cluster]) -> PaceLog:
    """Give every row of a profile the pace at its moment, by all readings so far, which are returned; tables that change are written."""
    readings = read_log(directory)
    if not readings:
        return PaceLog([])
    tables = {
        name: [(row, cluster_of(row)) for row in iterate_samples({name: table})]
        for name, table in read_samples(directory).items()
    }
    log = followed_log(readings, [row for rows in tables.values() for row in rows])
    for name, rows in tables.items():
        paced = at_their_pace(log, rows)
        if paced != [row for row, _ in rows]:
            write_table(directory, name, paced)
    return log
