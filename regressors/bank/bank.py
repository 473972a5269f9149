"""The regressor bank: times of many calls at once from the fitted models of one profile. Needs only numpy."""

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
    """The models of a profile. Times are cached per cluster, and a model is unpacked when it is first used."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._operators: dict[ModelKey, FittedOperator] = {}
        self._caches: list[tuple[Cluster, Answers]] = []

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

    def times(self, calls: Sequence[Asked], cluster: Cluster) -> list[Times | None]:
        """The time of each call and phase on a rank of `cluster`; None for calls without a model.

        There is no model if the call, phase and thread count were not sampled, or only with other roofline terms (a layer on
        one rank says nothing about its collectives on two). On a cluster whose stated peaks differ from the profile's, the
        models scale with the peaks, sampled times are not used, intervals are wider, and the source is `transferred`.
        Raises SamplesError if an operator's features changed since the fit.
        """
        cache = self._cache(cluster)
        fresh: dict[ModelKey, list[Asked]] = {}
        for asked in calls:
            if asked not in cache:
                cache[asked] = None
                call, phase = asked
                fresh.setdefault(ModelKey(call.NAME, phase, cluster.threads), []).append(asked)
        for key, group in fresh.items():
            if key in self._artifact.records:
                try:
                    self._answer(key, group, cluster, cache)
                except SamplesError as error:
                    for asked in group:
                        del cache[asked]
                    raise self._artifact.error(f"{key}: {error}") from None
        return [cache[asked] for asked in calls]

    def _answer(self, key: ModelKey, group: Sequence[Asked], cluster: Cluster, cache: Answers) -> None:
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
            cache.update(zip(known, predicted, strict=True))
            return
        sampled = operator.look_up([shape_digest(call, phase, key.threads) for call, phase in known])
        cache.update({asked: own or times for asked, own, times in zip(known, sampled, predicted, strict=True)})

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

    def _cache(self, cluster: Cluster) -> Answers:
        for known, cache in self._caches:
            if known is cluster or known == cluster:
                return cache
        self._caches.append((cluster, {}))
        return self._caches[-1][1]
