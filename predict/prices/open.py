"""The price list of a cluster: its profile's regressors where they exist, the speed of light for the rest."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from predict.interval import Interval
from predict.prices.collectives import CollectiveCorrection, collective_us, half_width
from predict.prices.conditions import (
    CONTENTION_SLOWDOWN,
    Conditions,
    bounds,
    conditions_of,
    launch_floors,
    layers_launched,
    sampled_contention_slowdown,
    sampled_facts,
    sustained_factors,
)
from predict.prices.cost_model import CostModel
from predict.prices.gloo import gloo_time
from predict.prices.kernels import operator_us
from predict.prices.pace import AtPace, followed, pace_facts_of, pace_spread
from predict.prices.price_list import PriceList
from predict.prices.sample_provenance import (
    ANOTHER_CPU,
    AnotherCpu,
    how_to_sample,
    is_another_cpu,
    note_on_no_rows,
    notes_on_age,
    notes_on_rows,
    this_cpu,
)
from predict.prices.sampled import WithinSamples, known_error, validation_path
from predict.run.execution import Execution
from regressors.bank.artifact import FILE
from regressors.bank.bank import Bank, open_bank
from regressors.bank.times import Times
from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.errors import SamplesError
from sampling.files.disk import state_of
from sampling.hardware.cluster import Cluster, Gpu, hardware_facts
from sampling.number_text import whole_percent
from sampling.store.pace import Resource
from sampling.store.profiles import MANIFEST, SHIPPED, home_of, profile_in_use

SPREAD = 2.0
"""Factor either way that a 90 % interval takes: on published tables the efficiency of single operators, a shape at a
time, ranges over 0.3–0.9 of peak about a flat 0.6."""


@dataclass(frozen=True, kw_only=True)
class SpeedOfLight:
    """A CostModel that knows every atomic call: its slowest resource at the stated efficiency, plus message latencies.

    The efficiencies, by kind of work, stand with their sources in `configs/hardware/<name>.yml`; `predict.prices.kernels` says
    how they depend on a kernel's shape.
    """

    gemm_efficiency: float = 0.0
    """Share of the 16-bit peak that the framework's largest products reach on GPUs; 0 for that of the hardware file. Their tensors
    are read and written at the same share of the bandwidth."""

    def times(self, calls: Sequence[tuple[Call, Phase]], cluster: Cluster) -> list[Times]:
        if self.gemm_efficiency and cluster.gpu.kind != "cpu":
            reached = {**cluster.gpu.efficiency, "gemm": self.gemm_efficiency}
            cluster = replace(cluster, gpu=replace(cluster.gpu, efficiency=reached))
        return [_time(call, phase, cluster) for call, phase in calls]


def _time(call: Call, phase: Phase, cluster: Cluster) -> Times:
    if call.OVERHEAD:
        return Interval.exactly(0.0).as_times("analytic")
    if isinstance(call, Operator) and cluster.gpu.kind != "cpu" and not call.parts(phase):
        return _kernel_time(call, phase, cluster.gpu)
    if isinstance(call, Collective):
        return gloo_time(call, cluster) if cluster.gpu.kind == "cpu" else _collective_time(call, cluster)
    terms = call.terms(phase, cluster)
    latency_us = terms.pop("latency", 0.0) + terms.pop("fork_join", 0.0)
    efficiency = cluster.gpu.efficiency
    resources = [value / efficiency[_kind(name)] for name, value in terms.items()]
    median_us = latency_us + max(resources, default=0.0)
    return Interval.from_log(median_us, math.log(SPREAD)).as_times("analytic")


def _kernel_time(call: Operator, phase: Phase, gpu: Gpu) -> Times:
    median_us, width = operator_us(call, phase, gpu)
    return Interval.from_log(median_us, width).as_times("analytic")


def _collective_time(call: Collective, cluster: Cluster) -> Times:
    return Interval.from_log(collective_us(call, cluster), half_width(call)).as_times("analytic")


def _kind(term: str) -> str:
    """The efficiency that governs a term: memory traffic is the elementwise one, whoever causes it."""
    if term.endswith("_memory"):
        return "elementwise"
    return "wire" if term.startswith("wire") else term.removesuffix("_compute")


KEPT_LISTS = 16
ANALYTIC = "analytic"
"""A name for a profile that does not exist, in examples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Opening:
    """The key of a price list that is kept; `files` is the state of the files that it was read from."""

    cluster: Cluster
    conditions: Conditions
    gemm_efficiency: float
    layers: str
    """How the run's layers are launched, as `layers_launched` shows."""
    files: tuple[tuple[int, ...], ...]
    this_cpu: str
    paces: tuple[tuple[Resource, float], ...]


_opened: list[tuple[_Opening, PriceList]] = []


def open_prices(cluster: Cluster, execution: Execution, paces: Mapping[Resource, float] | None = None) -> PriceList:
    """The price list, opened once for each cluster, set of conditions and state of the profile's files; a process
    keeps the latest; all analytic without regressors. Sampled times are at the reference pace of their rows, or, for
    rows of this device, where the reference calls show `paces`.

    SamplesError for regressors that are damaged, out of date or of other hardware.
    """
    profile = profile_in_use(cluster.profile)
    home = home_of(profile)
    directory = home / "regressors" / profile
    opening = _Opening(
        cluster=cluster,
        conditions=conditions_of(cluster.gpu, execution),
        gemm_efficiency=execution.gemm_efficiency,
        layers=layers_launched(execution, cluster.gpu.architecture),
        files=tuple(map(state_of, _files_read(profile, home, home_of(SHIPPED)))),
        this_cpu=this_cpu(cluster),
        paces=tuple(sorted((paces or {}).items())),
    )
    for known, prices in tuple(_opened):
        if known == opening:
            return prices
    prices = _open(opening, directory)
    _opened.insert(0, (opening, prices))
    del _opened[KEPT_LISTS:]
    return prices


@lru_cache(maxsize=KEPT_LISTS)
def _files_read(profile: str, home: Path, shipped: Path) -> tuple[Path, ...]:
    """The files that the prices of a profile are read from, where each may be missing."""
    return (
        home / "regressors" / profile / FILE,
        home / "samples" / profile / MANIFEST,
        validation_path(profile, home),
        validation_path(SHIPPED, shipped),
    )


def forget_prices() -> None:
    """Drop the price lists that are kept, after a constant that they rest on was given another value."""
    _opened.clear()


def _open(opening: _Opening, directory: Path) -> PriceList:
    cluster = opening.cluster
    models: list[CostModel] = [SpeedOfLight(gemm_efficiency=opening.gemm_efficiency)]
    provenance: dict[str, Any] = {
        "profile": cluster.profile,
        "samples": None,
        "notes": [],
        "hardware": cluster.gpu.name,
        "sources": dict(cluster.gpu.sources),
    }
    conditions, floors = opening.conditions, {}
    slowdown, transfer_error, spread, origin = None, 0.0, 0.0, "sampled"
    if directory.is_dir():
        bank = open_bank(directory)
        _require_like_hardware(bank, cluster)
        fitted: CostModel = bank
        sampled_on = bank.facts["provenance"]["device"].get("name", "an unnamed device")
        if is_another_cpu(cluster, sampled_on):
            fitted, transfer_error, origin = AnotherCpu(bank), ANOTHER_CPU, "transferred"
        else:
            shown, of_pace = dict(opening.paces), pace_facts_of(bank.facts, cluster)
            fitted = AtPace(bank, followed(of_pace, shown)) if shown else bank
            spread = pace_spread(of_pace, shown)
        models.insert(0, WithinSamples(fitted, CollectiveCorrection(bank), bank.facts.get("attention_kernel", "")))
        slowdown = sampled_contention_slowdown(bank, cluster)
        facts = sampled_facts(bank, cluster)
        conditions = replace(conditions, sampled_sustained=sustained_factors(facts))
        floors = launch_floors(facts, opening.layers)
        provenance["device"] = {**facts, "launch_floor_us": {phase: bounds(floor) for phase, floor in floors.items()}}
        provenance["samples"] = dict(bank.facts)
        notes = notes_on_age(cluster, directory.name, bank.facts)
        provenance["notes"] = [*notes_on_rows(cluster, sampled_on), *notes]
    else:
        transfer_error = ANOTHER_CPU if cluster.gpu.kind == "cpu" else 0.0
        provenance["notes"] = [note_on_no_rows(cluster)]
    provenance["slow_down"] = {
        "value": CONTENTION_SLOWDOWN if slowdown is None else slowdown,
        "source": "prior" if slowdown is None else origin,
    }
    return PriceList(
        models,
        cluster,
        profile_error=known_error(directory.name, on_cpu=cluster.gpu.kind == "cpu"),
        transfer_error=transfer_error,
        pace_spread=spread,
        conditions=conditions,
        launch_floors=floors,
        sampled_contention=slowdown,
        provenance=provenance,
    )


def _require_like_hardware(bank: Bank, cluster: Cluster) -> None:
    """SamplesError where one is a CPU and the other a GPU: only models of GPUs carry over, by the peaks of the two."""
    sampled = hardware_facts(bank.facts["provenance"]["hardware"])
    if sampled.name != cluster.gpu.name and "cpu" in (sampled.kind, cluster.gpu.kind):
        used = profile_in_use(cluster.profile)
        of_it = "" if used == cluster.profile else f" is answered from {used}, which"
        raise SamplesError(
            f"cluster.profile: {cluster.profile!r}{of_it} holds samples of {sampled.name}, not of {cluster.gpu.name}; add "
            f"--set cluster.profile=NAME, of a profile of {cluster.gpu.name} (`predict doctor` lists them), or of none there is, as "
            f"{ANALYTIC!r}, to be answered analytically"
        )


def require_measured(sources: dict[str, float], cluster: Cluster) -> None:
    """Raise SamplesError unless all of the step's work was priced from samples of this profile, and from all of them."""
    guessed = {name: share for name, share in sources.items() if name != "measured" and share > 0}
    if guessed:
        shares = ", ".join(f"{whole_percent(share)} {name}" for name, share in guessed.items())
        raise SamplesError(
            f"cluster.profile: {cluster.profile!r} does not cover this run ({shares}); {how_to_sample(cluster)}"
        )
    profile = profile_in_use(cluster.profile)
    directory = home_of(profile) / "regressors" / profile
    if stale := notes_on_age(cluster, profile, open_bank(directory).facts):
        raise SamplesError(f"cluster.profile: {stale[0]}")
