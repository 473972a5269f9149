"""The regressor bank: times of many calls at once from the fitted models of one profile. Needs only numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from regressors.bank.artifact import FILE, Artifact, load
from regressors.bank.fitted_operator import FittedOperator
from regressors.bank.times import Times
from regressors.features.digests import hardware_digest, same_hardware, shape_digest
from regressors.features.pricing import ModelKey, price_all
from regressors.uncertainty.intervals import half_width_elsewhere
from sampling.call import Call, Phase
from sampling.errors import SamplesError
from sampling.files.disk import state_of
from sampling.hardware.cluster import Cluster
from sampling.store.profiles import MANIFEST, read_manifest

CallPhase: TypeAlias = tuple[Call, Phase]
Answers: TypeAlias = dict[CallPhase, Times | None]
KEPT_BANKS = 4
KEPT_CLUSTERS = 8
MOST_ANSWERS = 20_000
"""Answers kept for a cluster, about 10 MB; a plan asks for some hundred."""


def open_bank(directory: Path) -> Bank:
    """The bank of `data/regressors/<profile>`, loaded once per process until its file changes. Raises as `Bank.load` does."""
    return _open_bank(directory, state_of(directory / FILE))


@lru_cache(maxsize=KEPT_BANKS)
def _open_bank(directory: Path, state: tuple[int, ...]) -> Bank:
    return Bank.load(directory)


class Bank:
    """The models of a profile. Answers are kept per cluster, and a model is unpacked when it is first used.

    Threads may share a bank: what one of them adds to it is whole, and the same whoever adds it.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._operators: dict[ModelKey, FittedOperator] = {}
        self._answers: tuple[tuple[Cluster, Answers], ...] = ()

    @classmethod
    def load(cls, directory: Path) -> Bank:
        """Open `data/regressors/<profile>`; SamplesError if it is missing, damaged or of another format."""
        return cls(load(directory))

    @property
    def facts(self) -> Mapping[str, Any]:
        """Profile, date of the fit, and the manifest of the samples."""
        return self._artifact.facts

    @property
    def keys(self) -> frozenset[ModelKey]:
        """The (call name, phase, threads) that have a model."""
        return frozenset(self._artifact.records)

    def times(self, calls: Sequence[CallPhase], cluster: Cluster) -> list[Times | None]:
        """The time of each call and phase on a rank of `cluster`; None for calls without a model.

        There is no model if the call, phase and thread count were not sampled, or only with other roofline terms (a layer on
        one rank says nothing about its collectives on two). On a cluster whose stated peaks differ from the profile's, the
        models scale with the peaks, sampled times are not used, intervals are wider, and the source is `transferred`.
        Raises SamplesError if an operator's features changed since the fit.
        """
        answers = self._answers_on(cluster)
        fresh: dict[ModelKey, list[CallPhase]] = {}
        for wanted in dict.fromkeys(calls):
            if wanted not in answers:
                call, phase = wanted
                fresh.setdefault(ModelKey(call.NAME, phase, cluster.threads), []).append(wanted)
        found: Answers = {}
        for key, group in fresh.items():
            found |= self._at_their_clocks(key, self._answer(key, group, cluster))
        # only now, so that no other thread takes a question that is not answered yet for one that has no answer
        answers.update(found)
        return [answers[wanted] for wanted in calls]

    def _answer(self, key: ModelKey, group: Sequence[CallPhase], cluster: Cluster) -> Answers:
        answers: Answers = dict.fromkeys(group)
        if key in self._artifact.records:
            try:
                answers |= self._predicted(key, group, cluster)
            except SamplesError as error:
                raise self._artifact.error(f"{key}: {error}") from None
        return answers

    def _predicted(self, key: ModelKey, group: Sequence[CallPhase], cluster: Cluster) -> Answers:
        """The answers to the calls whose roofline terms the model knows."""
        operator = self._operator(key)
        calls = [call for call, _ in group]
        priced = dict(zip(group, price_all(calls, key.phase, cluster), strict=True))
        known = [
            wanted for wanted in group if operator.schema.has_terms_of(priced[wanted]) or not wanted[0].parts(wanted[1])
        ]
        if not known:
            return {}
        elsewhere = self._elsewhere(key.threads, type(calls[0]), cluster)
        predicted = operator.predict([priced[wanted] for wanted in known], elsewhere=elsewhere)
        if elsewhere:
            return dict(zip(known, predicted, strict=True))
        sampled = operator.look_up([shape_digest(call, phase, key.threads) for call, phase in known])
        return {wanted: own or times for wanted, own, times in zip(known, sampled, predicted, strict=True)}

    def _at_their_clocks(self, key: ModelKey, answers: Answers) -> Answers:
        """The answers, marked as sustained where the model was fitted to sustained rows."""
        if list(key) not in self._artifact.facts.get("sustained", ()):
            return answers
        return {wanted: times and replace(times, state="sustained") for wanted, times in answers.items()}

    def _elsewhere(self, threads: int, kind: type[Call], cluster: Cluster) -> float:
        """Half-width added on another device than the sampled one; 0 if the peaks that the kind depends on are the same."""
        facts = self._artifact.facts
        if same_hardware(kind, facts["hardware"].get(str(threads), ""), hardware_digest(cluster)):
            return 0.0
        return half_width_elsewhere(facts["architecture"], cluster.gpu.architecture)

    def _operator(self, key: ModelKey) -> FittedOperator:
        if key not in self._operators:
            self._operators[key] = self._artifact.operator(key)
        return self._operators[key]

    def _answers_on(self, cluster: Cluster) -> Answers:
        for known, answers in self._answers:
            if (known is cluster or known == cluster) and len(answers) < MOST_ANSWERS:
                return answers
        fresh: Answers = {}
        others = [each for each in self._answers if each[0] != cluster]
        self._answers = ((cluster, fresh), *others[: KEPT_CLUSTERS - 1])
        return fresh


def sessions_since(facts: Mapping[str, Any], samples: Path) -> int:
    """Sampling sessions that a bank with these facts has not learnt from; 0 where the samples are not kept beside it.

    Raises SamplesError for a damaged manifest.
    """
    if not (samples / MANIFEST).is_file():
        return 0
    learnt = facts["provenance"]["sessions"]
    return sum(session not in learnt for session in read_manifest(samples).sessions)
