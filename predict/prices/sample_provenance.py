"""Whose rows the prices of a run rest on: this machine's own, the shipped ones in their place, or those of another CPU."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from predict.prices.cost_model import CallPhase, CostModel
from regressors.bank.bank import sessions_since
from regressors.bank.times import Times
from regressors.dataset.pace_facts import RULE
from sampling.errors import SamplesError
from sampling.files.faults import did_you_mean
from sampling.files.places import HAS_MAKEFILE, fitting_command, sampling_command
from sampling.hardware.cluster import Cluster
from sampling.hardware.this_device import cpu_name
from sampling.number_text import whole_percent
from sampling.store.profiles import (
    IMPORTED,
    OWN,
    SHIPPED,
    home_of,
    is_fitted,
    known_profiles,
    profile_in_use,
    read_manifest,
    samples_directory,
)

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
