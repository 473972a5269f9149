"""Digests: which device was sampled, which call was timed, and which rows of numbers are alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache

import numpy as np
from numpy.typing import NDArray

from regressors.features.arrays import Floats
from sampling.arithmetic.composite import Composite
from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.hardware.cluster import Cluster

SAID_BEFORE = "group_nodes"
"""The field whose default digests hold: rows were stored with it before defaults were left out."""


def hardware_digest(cluster: Cluster) -> str:
    """Identifies the stated peaks that terms and features are computed from: the device's, a hyphen, its links'."""
    gpu = cluster.gpu
    device = [
        sorted(gpu.peak_tflops.items()),
        gpu.memory_gb_per_s,
        gpu.cache_mib,
        gpu.threads,
        gpu.multiprocessors,
    ]
    links = [(link.latency_us, link.gb_per_s) for link in (cluster.intra_node, cluster.inter_node)]
    return "-".join(hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:8] for facts in (device, links))


def same_hardware(kind: type[Call], sampled: str, digest: str) -> bool:
    """Whether what a kind of call depends on is alike in two digests: links alone for collectives, the device for operators,
    both for cells, which may have a group's communication inside."""
    if sampled == digest:
        return True
    device, _, links = sampled.partition("-")
    own_device, _, own_links = digest.partition("-")
    if issubclass(kind, Collective):
        return links == own_links
    return device == own_device and not issubclass(kind, Composite)


@cache
def _defaults(kind: type[Call]) -> Mapping[str, int | bool | str]:
    """The defaults of a call's fields that digests leave out."""
    return {
        field.name: field.default
        for field in fields(kind)
        if field.default is not MISSING and field.name != SAID_BEFORE
    }


def shape_digest(call: Call, phase: Phase, threads: int) -> int:
    """A 64-bit key of what was timed, equal on every machine and Python.

    A field with its default says nothing and is left out, so that it may be younger than the samples.
    """
    unsaid = _defaults(type(call))
    said = sorted((name, value) for name, value in call.fields().items() if unsaid.get(name) != value)
    text = json.dumps([call.NAME, phase, threads, said])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def row_digests(rows: Floats) -> NDArray[np.uint64]:
    """A 64-bit digest of each row of numbers."""
    odd = np.random.default_rng(0).integers(2**63, size=rows.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    # small integers differ in their upper bits alone, which no product would bring down
    bits = np.ascontiguousarray(rows).view(np.uint64)
    mixed = (bits ^ (bits >> np.uint64(33))) * odd
    digest: NDArray[np.uint64] = (mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64)
    return digest
