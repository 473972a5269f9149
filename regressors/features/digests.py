"""Digests that identify a device's peaks, a timed call, and rows of numbers."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache

import numpy as np
from numpy.typing import NDArray

from regressors.features.arrays import Floats
from sampling.arithmetic.operator import Composite
from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.hardware.cluster import Cluster

ALWAYS_INCLUDED = "group_nodes"
"""Field that digests include even at its default: it was stored before defaults were omitted."""


def hardware_digest(cluster: Cluster) -> str:
    """Digest of the stated peaks that terms and features are computed from: DEVICE-LINKS."""
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
    """Whether two hardware digests agree in what a kind of call depends on.

    Collectives depend on the links, operators on the device, cells on both: they may contain communication.
    """
    if sampled == digest:
        return True
    device, _, links = sampled.partition("-")
    own_device, _, own_links = digest.partition("-")
    if issubclass(kind, Collective):
        return links == own_links
    return device == own_device and not issubclass(kind, Composite)


@cache
def _defaults(kind: type[Call]) -> Mapping[str, int | bool | str]:
    """Defaults of the fields that digests omit at their default."""
    return {
        field.name: field.default
        for field in fields(kind)
        if field.default is not MISSING and field.name != ALWAYS_INCLUDED
    }


def shape_digest(call: Call, phase: Phase, threads: int) -> int:
    """A 64-bit key of what was timed, equal on every machine and Python.

    Fields at their default are omitted, so that a field can be added without invalidating stored samples.
    """
    defaults = _defaults(type(call))
    fields_set = sorted((name, value) for name, value in call.fields().items() if defaults.get(name) != value)
    text = json.dumps([call.NAME, phase, threads, fields_set])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def row_digests(rows: Floats) -> NDArray[np.uint64]:
    """A 64-bit digest of each row of numbers."""
    # small integers differ in their upper bits alone, which no product would bring down
    bits = np.ascontiguousarray(rows).view(np.uint64)
    mixed = (bits ^ (bits >> np.uint64(33))) * _odd_numbers(rows.shape[1])
    digest: NDArray[np.uint64] = (mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64)
    return digest


PCG_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
PCG_STATE, PCG_INCREMENT = 35399562948360463058890781895381311971, 87136372517582989555478159403783844777
"""The state of `numpy.random.default_rng(0)` at its start."""


@cache
def _odd_numbers(count: int) -> NDArray[np.uint64]:
    """The first odd numbers of PCG XSL RR 128/64 (O'Neill 2014, HMC-CS-2014-0905), as `numpy.random.default_rng(0)` draws them; loading
    numpy.random for them would take longer than a whole prediction."""
    found, state = [], PCG_STATE
    for _ in range(count):
        state = (state * PCG_MULTIPLIER + PCG_INCREMENT) % 2**128
        folded, turned = (state >> 64) ^ (state % 2**64), state >> 122
        found.append((folded >> turned | folded << (64 - turned)) % 2**64 | 1)
    return np.array(found, dtype=np.uint64)
