"""Stored samples as training data: one table of numbers per model, that is per call name, phase and thread count."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from regressors.dataset.device_facts import device_facts
from regressors.dataset.donor import Donor, Donors, no_donor
from regressors.dataset.pace_facts import pace_facts
from regressors.features.arrays import Floats
from regressors.features.digests import hardware_digest, shape_digest
from regressors.features.pricing import ModelKey, price
from regressors.features.schema import Schema, schema_of
from sampling.call import Call, State
from sampling.choosing.contradictions import FAR_PACE, STEADY_ROWS
from sampling.errors import SamplesError
from sampling.files.places import sampling_command
from sampling.hardware.cluster import Cluster
from sampling.operators.attention import Attention
from sampling.store.pace_log import read_log
from sampling.store.paced_rows import at_their_pace, followed_log
from sampling.store.profiles import read_manifest
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples
from sampling.timing.row_checks import why_set_aside

DECILE_DEVIATIONS = 1.2816
"""Standard deviations from a normal's median to its 10th or 90th percentile."""


Disturbance: TypeAlias = Callable[[Sample, Cluster], float]
"""The mean time of a row's call in a step over its undisturbed time."""


def undisturbed(sample: Sample, cluster: Cluster) -> float:
    """The disturbance of calls beside which nobody read any."""
    return 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingData:
    """The good samples of one model, one row each.

    `terms` [rows, terms] and `features` [rows, features] follow `schema`; `spread_below` and `spread_above` are the log
    standard deviations of the repeats on either side of their median `time_us`; rows with equal `shape` digests are the
    same call. `codes` [rows, fields] are the calls' own fields as numbers; `fields` states for each whether it is a number.
    """

    key: ModelKey
    schema: Schema
    terms: Floats
    features: Floats
    time_us: Floats
    spread_below: Floats
    spread_above: Floats
    repeats: NDArray[np.int64]
    shape: NDArray[np.uint64]
    fields: Mapping[str, bool]
    codes: Floats
    donor: Donor | None = None

    @property
    def shapes(self) -> int:
        return len(np.unique(self.shape))

    def __len__(self) -> int:
        return len(self.time_us)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileRows:
    """All training data of one profile. `hardware` maps a thread count to the digest of the peaks."""

    operators: Sequence[TrainingData]
    hardware: Mapping[int, str]
    provenance: Mapping[str, Any]
    quarantined: Mapping[str, int]
    """Why rows were set aside, in words → how many."""
    architecture: str
    attention_kernel: str
    """The kernel that ran in most rows of attention by the software's own choice; empty where they do not name one."""
    sustained: Sequence[ModelKey]
    """Models of rows at the clocks of a long run; the others are of rows at those of a short measurement."""
    device: Mapping[str, Any]
    """What the rows say of the device as a whole, as `device_facts` gives it."""
    pace: Mapping[str, Any]
    """What the sessions' readings say of the machine's pace, as `pace_facts` gives it."""


def load_profile(directory: Path, donors: Donors = no_donor) -> ProfileRows:
    """Read `data/samples/<profile>`; SamplesError if it is missing or has no good row."""
    manifest = read_manifest(directory)
    cluster_of = cache(manifest.cluster)
    samples = list(iterate_samples(read_samples(directory)))
    learnt = in_one_state([sample for sample in samples if not sample.quarantine])
    rows = [(sample, cluster_of(sample.threads, sample.busy_ranks)) for sample in learnt]
    if not rows:
        raise SamplesError(f"{directory}: no good samples; run {sampling_command(directory.name)}")
    log = followed_log(read_log(directory), rows)
    good = [(sample, cluster) for sample, (_, cluster) in zip(at_their_pace(log, rows), rows, strict=True)]
    return ProfileRows(
        operators=training_data(good, donors, log.disturbance),
        pace=pace_facts(log, good),
        hardware={sample.threads: hardware_digest(cluster) for sample, cluster in good},
        provenance=asdict(manifest),
        quarantined=Counter(why_set_aside(sample.quarantine) for sample in samples if sample.quarantine),
        architecture=good[0][1].gpu.architecture,
        attention_kernel=_attention_kernel(learnt),
        device=device_facts(samples),
        sustained=sorted({_model_key(sample) for sample in learnt if sample.state == "sustained"}),
    )


def in_one_state(samples: Sequence[Sample]) -> list[Sample]:
    """The samples of each model in one state: sustained, in which training keeps a device, where at least half of its calls
    were timed in it; else burst."""
    calls: dict[ModelKey, dict[State, set[Call]]] = {}
    for sample in samples:
        calls.setdefault(_model_key(sample), {}).setdefault(sample.state, set()).add(sample.call)
    chosen: dict[ModelKey, State] = {
        key: "sustained" if 2 * len(of.get("sustained", ())) >= len(set().union(*of.values())) else "burst"
        for key, of in calls.items()
    }
    return [sample for sample in samples if sample.state == chosen[_model_key(sample)]]


def _attention_kernel(samples: Iterable[Sample]) -> str:
    ran = Counter(
        sample.ran_kernel
        for sample in samples
        if isinstance(sample.call, Attention) and not sample.call.kernel and sample.ran_kernel
    )
    return ran.most_common(1)[0][0] if ran else ""


def _model_key(sample: Sample) -> ModelKey:
    return ModelKey(sample.call.NAME, sample.phase, sample.threads)


def training_data(
    samples: Iterable[tuple[Sample, Cluster]],
    donors: Donors = no_donor,
    disturbance: Disturbance = undisturbed,
) -> list[TrainingData]:
    """One table per model, sorted by key; each sample comes with the machine it was taken on.

    Times are those at the reference pace of the rows, times the `disturbance` of calls in a step.
    """
    groups: dict[ModelKey, list[tuple[Sample, Cluster]]] = {}
    for sample, cluster in samples:
        _reject_impossible(sample)
        groups.setdefault(_model_key(sample), []).append((sample, cluster))
    return [_tabulate(key, steady(groups[key]), donors(key), disturbance) for key in sorted(groups)]


def steady(group: Sequence[tuple[Sample, Cluster]]) -> list[tuple[Sample, Cluster]]:
    """The rows without those at a pace far from the reference pace, where the shape has STEADY_ROWS that are nearer to it: how a call
    slows beside others, or at another clock, is known no better than how the references do."""
    by_shape: dict[tuple[Call, int], list[tuple[Sample, Cluster]]] = {}
    for row in group:
        by_shape.setdefault((row[0].call, row[0].busy_ranks), []).append(row)
    kept: set[int] = set()
    for rows in by_shape.values():
        nearest = sorted(rows, key=lambda row: abs(math.log(row[0].pace)))
        kept |= {
            id(row)
            for place, row in enumerate(nearest)
            if place < STEADY_ROWS or abs(math.log(row[0].pace)) <= FAR_PACE
        }
    return [row for row in group if id(row) in kept]


def _reject_impossible(sample: Sample) -> None:
    if not (0 < sample.low_us <= sample.time_us <= sample.high_us < float("inf")):
        raise SamplesError(
            f"sample of {sample.call} {sample.phase}: times {sample.low_us}, {sample.time_us}, {sample.high_us} µs are not "
            "positive, finite and ordered; quarantine the row or sample it again"
        )


def _tabulate(
    key: ModelKey,
    group: Sequence[tuple[Sample, Cluster]],
    donor: Donor | None,
    disturbance: Disturbance,
) -> TrainingData:
    samples = [sample for sample, _ in group]
    priced = [price(sample.call, sample.phase, cluster) for sample, cluster in group]
    if donor:
        try:
            priced = donor.lend(priced)
        except SamplesError:
            # the donor was fitted without a kind of call that is among these: fit this operator without a donor
            donor = None
    schema = schema_of(priced)
    terms, features = schema.matrices(priced)
    if not (np.isfinite(terms).all() and np.isfinite(features).all() and (terms >= 0).all()):
        raise SamplesError(
            f"{key}: terms and features must be finite and terms not negative; correct them in the operator"
        )
    low, time_us, high = (
        np.array([getattr(sample, name) for sample in samples]) for name in ("low_us", "time_us", "high_us")
    )
    factor = np.array([sample.pace * disturbance(sample, cluster) for sample, cluster in group])
    return TrainingData(
        key=key,
        schema=schema,
        terms=terms,
        features=features,
        time_us=(time_us * factor).astype(np.float64),
        spread_below=np.log(time_us / low) / DECILE_DEVIATIONS,
        spread_above=np.log(high / time_us) / DECILE_DEVIATIONS,
        repeats=np.array([max(1, sample.repeats) for sample in samples], dtype=np.int64),
        shape=np.array([shape_digest(sample.call, key.phase, key.threads) for sample in samples], dtype=np.uint64),
        fields={name: not isinstance(value, str) for name, value in samples[0].call.fields().items()},
        codes=np.array([row.codes for row in priced]),
        donor=donor,
    )
