"""The regressor bank: times of many calls at once, from the fitted models of one profile. Needs numpy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from regressors.bank.artifact import Artifact, load
from regressors.bank.fitted_operator import FittedOperator
from regressors.bank.times import Times
from regressors.features.digests import hardware_digest, same_hardware, shape_digest
from regressors.features.pricing import ModelKey, price_all
from regressors.uncertainty.intervals import half_width_elsewhere
from sampling.call import Call, Phase
from sampling.errors import SamplesError
from sampling.hardware.cluster import Cluster

Asked: TypeAlias = tuple[Call, Phase]
Answers: TypeAlias = dict[Asked, Times | None]


class Bank:
    """Answers are remembered per cluster, and a model is unpacked when it is first asked."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._operators: dict[ModelKey, FittedOperator] = {}
        self._memories: list[tuple[Cluster, Answers]] = []

    @classmethod
    def load(cls, directory: Path) -> Bank:
        """Open `data/regressors/<profile>`; SamplesError if it is missing, damaged or of another version."""
        return cls(load(directory))

    @property
    def facts(self) -> Mapping[str, Any]:
        """Profile, date of the fit, and the manifest of the samples."""
        return self._artifact.facts

    @property
    def keys(self) -> frozenset[ModelKey]:
        """The (call name, phase, threads) that have a model."""
        return frozenset(self._artifact.records)

    def times(self, calls: Sequence[Asked], cluster: Cluster) -> list[Times | None]:
        """The time of each call and phase on a rank of `cluster`; None where no model answers.

        That is where no such call, phase and thread count was sampled, or only calls of other parts (a layer on one rank
        says nothing of its collectives on two). On a cluster whose stated peaks differ from the profile's, the models
        scale with the peaks, samples are not used, intervals are wider, and the source is `transferred`. Raises SamplesError if an operator's
        features changed since the fit.
        """
        memory = self._memory(cluster)
        fresh: dict[ModelKey, list[Asked]] = {}
        for asked in calls:
            if asked not in memory:
                memory[asked] = None
                call, phase = asked
                fresh.setdefault(ModelKey(call.NAME, phase, cluster.threads), []).append(asked)
        for key, group in fresh.items():
            if key in self._artifact.records:
                try:
                    self._answer(key, group, cluster, memory)
                except SamplesError as error:
                    for asked in group:
                        del memory[asked]
                    raise self._artifact.error(f"{key}: {error}") from None
        return [memory[asked] for asked in calls]

    def _answer(self, key: ModelKey, group: Sequence[Asked], cluster: Cluster, memory: Answers) -> None:
        operator = self._operator(key)
        calls = [call for call, _ in group]
        priced = dict(zip(group, price_all(calls, key.phase, cluster), strict=True))
        known = [
            asked for asked in group if operator.schema.has_terms_of(priced[asked]) or not asked[0].parts(asked[1])
        ]
        if not known:
            return
        elsewhere = self._elsewhere(key.threads, type(calls[0]), cluster)
        predicted = operator.predict([priced[asked] for asked in known], elsewhere=elsewhere)
        if elsewhere:
            memory.update(zip(known, predicted, strict=True))
            return
        sampled = operator.look_up([shape_digest(call, phase, key.threads) for call, phase in known])
        memory.update({asked: own or times for asked, own, times in zip(known, sampled, predicted, strict=True)})

    def _elsewhere(self, threads: int, kind: type[Call], cluster: Cluster) -> float:
        """The half-width that being on another device than the sampled one adds to a kind of call; 0 on one of the same peaks."""
        facts = self._artifact.facts
        if same_hardware(kind, facts["hardware"].get(str(threads), ""), hardware_digest(cluster)):
            return 0.0
        return half_width_elsewhere(facts["architecture"], cluster.gpu.architecture)

    def _operator(self, key: ModelKey) -> FittedOperator:
        if key not in self._operators:
            self._operators[key] = self._artifact.operator(key)
        return self._operators[key]

    def _memory(self, cluster: Cluster) -> Answers:
        for known, memory in self._memories:
            if known is cluster or known == cluster:
                return memory
        self._memories.append((cluster, {}))
        return self._memories[-1][1]
