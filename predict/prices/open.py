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
from predict.prices.cost_model import CallPhase, CostModel
from predict.prices.kernels import operator_us
from predict.prices.pace import AtPace, followed, pace_facts_of, pace_spread
from predict.prices.price_list import PriceList
from predict.prices.sampled import WithinSamples, known_error, validation_path
from predict.run.execution import Execution
from regressors.bank.artifact import FILE
from regressors.bank.bank import Bank, open_bank, sessions_since
from regressors.bank.times import Times
from regressors.dataset.pace_facts import RULE
from sampling.arithmetic.operator import Operator
from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.errors import SamplesError
from sampling.files.disk import state_of
from sampling.files.faults import did_you_mean
from sampling.files.places import HAS_MAKEFILE, fitting_command, sampling_command
from sampling.hardware.cluster import Cluster, Gpu, hardware_facts
from sampling.hardware.this_device import cpu_name
from sampling.number_text import whole_percent
from sampling.store.pace import Resource
from sampling.store.profiles import (
    IMPORTED,
    MANIFEST,
    OWN,
    SHIPPED,
    home_of,
    is_fitted,
    known_profiles,
    profile_in_use,
    read_manifest,
    samples_directory,
)

# Whose rows the prices of a run rest on: this machine's own, the shipped ones in their place, or those of another CPU.

ANOTHER_CPU = math.log(2)
"""Half-width in log time, at 90 %, added to a step on another CPU than the sampled one: a prior. Vector width, clock and memory
channels of servers differ by up to as much for the same number of cores, and the peaks of a CPU are not looked up."""
NOTABLE = 0.1
"""Share of a run's work by which other rows must measure more of it to be worth a word."""
IMPORT_COMMAND = "`make import SYSTEM=…`" if HAS_MAKEFILE else "`python -m sampling import aiconfigurator --system …`"
HOW_TO_SAMPLE = f"run {sampling_command(runs=' RUNS=…')}, then {fitting_command()}"
"""The commands that give this machine rows of its own."""


@dataclass(frozen=True, slots=True)
class AnotherCpu:
    """A fitted model of one CPU, used for another: the same times, none of them measured there."""

    fitted: CostModel

    def times(self, calls: Sequence[CallPhase], cluster: Cluster) -> list[Times | None]:
        answers = self.fitted.times(calls, cluster)
        return [time and replace(time, source="transferred") for time in answers]


def this_cpu(cluster: Cluster) -> str:
    """The name of the CPU that a run on this machine has; '' for a run elsewhere, whose device its profile stands for."""
    return cpu_name() if cluster.gpu.kind == "cpu" and cluster.profile in (OWN, SHIPPED) else ""


def is_another_cpu(cluster: Cluster, sampled_on: str) -> bool:
    """Whether a run on this machine is answered from rows taken on another CPU."""
    return this_cpu(cluster) not in ("", sampled_on)


def notes_on_rows(cluster: Cluster, sampled_on: str) -> list[str]:
    """Notes on rows that stand in for this machine's, and on rows of another CPU."""
    used = profile_in_use(cluster.profile)
    another = is_another_cpu(cluster, sampled_on)
    if used == cluster.profile and not another:
        return []
    here = f"not on {this_cpu(cluster)}" if another else "the CPU of this machine too"
    if used == cluster.profile:
        return [f"the rows of {used} were taken on {sampled_on}, {here}; {how_to_sample(cluster)}"]
    return [
        f"no profile {OWN!r} is fitted here: the rows of {used} stand in, taken on {sampled_on}, {here}; {how_to_sample(cluster)}"
    ]


def shipped_beside_own(cluster: Cluster) -> Cluster | None:
    """The same cluster answered from the shipped rows, where this machine's own serve and both are of its CPU; None elsewhere."""
    if not this_cpu(cluster) or profile_in_use(cluster.profile) != OWN:
        return None
    other = replace(cluster, profile=SHIPPED)
    sampled_on = read_manifest(samples_directory(SHIPPED, home_of(SHIPPED))).device.get("name", "")
    return None if is_another_cpu(other, str(sampled_on)) else other


def notes_on_better_rows(measured: float, by_shipped: float) -> list[str]:
    """The note that the shipped rows measure notably more of a run than this machine's own do; both are shares of its work."""
    if by_shipped < measured + NOTABLE:
        return []
    return [
        f"the rows of {OWN} measure {whole_percent(measured)} of this run, those of {SHIPPED}, taken on the same CPU, {whole_percent(by_shipped)}: name those "
        f"with --set cluster.profile={SHIPPED}, or sample on ({HOW_TO_SAMPLE})"
    ]


def note_on_no_rows(cluster: Cluster) -> str:
    """The note on a profile without time models: how to fit the rows it has, or which profile may be meant, and how to get rows."""
    known = known_profiles()
    if cluster.profile in known:
        return f"profile {cluster.profile!r} has samples, but no time models yet; {how_to_fit(cluster)}"
    near = did_you_mean(cluster.profile, {*known, OWN} - {cluster.profile}) or f" (known: {', '.join(known)});"
    published = "" if cluster.gpu.kind == "cpu" else f", or bring published rows in with {IMPORT_COMMAND}"
    return f"no samples for profile {cluster.profile!r}{near} {how_to_sample(cluster)}{published}"


def notes_on_age(cluster: Cluster, profile: str, facts: Mapping[str, Any]) -> list[str]:
    """Notes on rows that are newer than the profile's models, and on models that read the pace by an older rule."""
    notes = []
    if newer := sessions_since(facts, home_of(profile) / "samples" / profile):
        sessions = "a sampling session is" if newer == 1 else f"{newer} sampling sessions are"
        notes.append(f"{profile}: {sessions} newer than its time models; {how_to_fit(cluster)}")
    if facts.get("pace") and facts.get("pace_rule") != RULE:
        notes.append(f"{profile}: its time models know the machine's pace by an older rule; {how_to_fit(cluster)}")
    return notes


def notes_on_benchmark(cluster: Cluster, timed_on: str, samples: Mapping[str, Any] | None) -> list[str]:
    """Notes on timed layers, or the samples of the other work, that are of another CPU."""
    if not this_cpu(cluster):
        return []
    notes = []
    if is_another_cpu(cluster, timed_on):
        notes.append(f"the benchmark's layers were timed on {timed_on}, not on {this_cpu(cluster)}")
    sampled_on = samples["provenance"]["device"].get("name") if samples else None
    if sampled_on not in (None, timed_on):
        notes.append(f"two CPUs in one step: layers timed on {timed_on}, the rest by rows of {sampled_on}")
    return notes


def how_to_sample(cluster: Cluster) -> str:
    """The commands that give this machine, or the run's profile, rows of its own; for rows that are not fitted, the one that fits."""
    if cluster.profile in known_profiles() and not is_fitted(cluster.profile):
        return how_to_fit(cluster)
    if this_cpu(cluster):
        return HOW_TO_SAMPLE
    profile = cluster.profile
    return f"sample it with {sampling_command(profile, runs=' RUNS=…')}, then {fitting_command(profile)}"


def how_to_fit(cluster: Cluster) -> str:
    """The command that fits the rows of the run's profile."""
    home = home_of(cluster.profile)
    if home.name == IMPORTED:
        return f"run `python -m regressors --data {home} --profile {cluster.profile}`"
    return f"run {fitting_command('' if cluster.profile == OWN else cluster.profile)}"


def require_known(profile: str) -> None:
    """SamplesError for a profile without samples."""
    known = known_profiles()
    if profile_in_use(profile) not in known:
        near = did_you_mean(profile, known) or f" (known: {', '.join(known)})"
        raise SamplesError(f"profile {profile}: has no samples{near}")


def require_rows_of_this_cpu(named: str = OWN) -> str:
    """The profile that runs on this machine are answered from where they name `named`. SamplesError if it was taken on another CPU."""
    profile = profile_in_use(named)
    require_known(profile)
    sampled_on = read_manifest(samples_directory(profile, home_of(profile))).device.get("name")
    if sampled_on != cpu_name():
        raise SamplesError(
            f"profile {profile}: its rows were taken on {sampled_on}, not on {cpu_name()}; {HOW_TO_SAMPLE}"
        )
    return profile


# Prices, opened once and kept.

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
    if isinstance(call, Collective) and cluster.gpu.kind != "cpu":
        return _collective_time(call, cluster)
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
