"""Predictions of a server compared with measured serving runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from predict.interval import Interval
from predict.serving.coefficients import Client, Coefficients
from predict.serving.fitting import (
    LEAST_EXPERIMENTS,
    CoefficientFit,
    Observed,
    draft_of,
    first_token_us,
    with_fit,
    with_grounds,
)
from predict.serving.kv_cache import BlockPool, cache_room
from predict.serving.latency import Latency, latency_of
from predict.serving.server import EngineSettings, Server
from predict.serving.simulate import require_room, serve
from predict.serving.step_model import Features, StepModel, step_model
from predict.serving.step_table import StepTable
from predict.serving.traffic import Load, Traffic, at_rate, every, traffic_of
from predict.validation.compared import Compared, Refused
from predict.validation.serving_rows import Stage
from sampling.errors import SamplesError, UserError
from sampling.files.disk import is_missing

if TYPE_CHECKING:
    import pandas as pd


# Stages of measured experiments, each predicted by coefficients that its experiment had no part in.

SUB = "sub"
"""Stages below saturation, on which errors are judged."""


@dataclass(frozen=True, eq=False)
class Case:
    """A stage with its server and the features of its steps."""

    stage: Stage
    server: Server
    features: Features
    asynchronous: bool

    @property
    def engine(self) -> EngineSettings:
        return replace(self.server.engine, asynchronous=self.asynchronous)

    @property
    def pool(self) -> BlockPool:
        """The blocks of one replica's cache, as many as published where they are."""
        if not self.stage.kv_blocks:
            return cache_room(self.server).pool
        return BlockPool(blocks=self.stage.kv_blocks // self.server.placement.dp)

    @property
    def load(self) -> Load:
        """The load of one replica."""
        return at_rate(self.stage.load, self.stage.rate_rps / self.server.placement.dp)

    @property
    def observed(self) -> Observed:
        assert self.stage.tpot_mean_ms is not None
        return Observed(
            experiment=self.stage.experiment,
            engine=self.engine,
            load=self.load,
            tpot_us=1e3 * self.stage.tpot_mean_ms,
            window=self.server.window,
        )


FIGURES: Mapping[str, Callable[[Latency], float]] = {
    "e2e": lambda latency: latency.e2e.mean_us,
    "ttft": lambda latency: latency.ttft.mean_us,
    "tpot": lambda latency: latency.tpot.mean_us,
    "e2e_p90": lambda latency: latency.e2e.percentiles_us[90],
}
"""Latencies that are compared with measured ones, in µs."""


def latency_interval(figure: str, predicted: Latency, low: Latency, high: Latency) -> Interval:
    """A figure of a prediction, with those of steps at the bounds of their interval."""
    read = FIGURES[figure]
    return Interval(median=read(predicted), low=read(low), high=read(high))


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedStage:
    """A stage and its prediction, with those of steps at the bounds of their interval."""

    stage: Stage
    predicted: Latency
    low: Latency
    high: Latency
    fitted_without: str
    """The experiment that the coefficients were fitted without; empty for the coefficients as they come."""

    def interval(self, figure: str) -> Interval:
        return latency_interval(figure, self.predicted, self.low, self.high)

    def compared(self, figure: str) -> Compared | None:
        """A figure next to its measurement, in µs; None where it was not measured."""
        measured_ms = self.stage.measured_ms[figure]
        return Compared(predicted=self.interval(figure), measured=1e3 * measured_ms) if measured_ms else None


class ServingComparison:
    """All stages of a table under one model, those that cannot be predicted apart. Coefficients that a stage's
    experiment is among the sources of are fitted anew without it."""

    def __init__(self, stages: Sequence[Stage], coefficients: Coefficients) -> None:
        self.coefficients = coefficients
        self.model: StepModel = step_model(coefficients.model)
        self.cases: list[Case] = []
        self.refused: list[Refused[Stage]] = []
        for stage in stages:
            try:
                self.cases.append(self._case(stage))
            except UserError as error:
                self.refused.append(Refused(row=stage, why=str(error)))

    def _case(self, stage: Stage) -> Case:
        server = stage.server()
        if not self.model.finds_prompts:
            server = replace(server, engine=replace(server.engine, prefix_caching=False))
        case = Case(stage, server, self.model.features_of(server), self.coefficients.asynchronous)
        require_room(case.engine, case.pool, traffic_of(replace(case.load, duration_s=1.0, rate=10.0)))
        return case

    @cached_property
    def fit(self) -> CoefficientFit:
        """The model fitted to the stages below saturation that the coefficients rest on."""
        known = set(self.coefficients.experiments)
        used = [case for case in self.cases if case.stage.experiment in known and is_fitted_to(case.stage)]
        return CoefficientFit(self.model, [case.observed for case in used], [case.features for case in used])

    def compared(self, case: Case, traffic: Traffic | None = None) -> ComparedStage:
        """One stage, simulated under its load, or under one replica's requests in its place."""
        left_out = case.stage.experiment if case.stage.experiment in self.coefficients.experiments else ""
        table, client = self.table(case), self.client(left_out)
        requests = traffic or traffic_of(case.load)
        factors = self.coefficients.interval_factors
        low, middle, high = (
            latency_of(serve(case.engine, case.pool, table.scaled(factor), requests), client)
            for factor in (factors.low, factors.median, factors.high)
        )
        return ComparedStage(stage=case.stage, predicted=middle, low=low, high=high, fitted_without=left_out)

    def table(self, case: Case) -> StepTable:
        """The steps of a stage's server by weights that its experiment had no part in."""
        weights = self.coefficients.values
        if case.stage.experiment in self.coefficients.experiments:
            weights = self.fit.named(self.fit.left_out.get(case.stage.experiment, self.fit.weights))
        return self.model.table_from(case.server, case.features, weights)

    def client(self, left_out: str) -> Client:
        """The client's times, by the other experiments where one is left out."""
        if not left_out:
            return self.coefficients.client
        others = [wait for name, wait in self._first_token_waits if name != left_out]
        return replace(self.coefficients.client, first_token_us=first_token_us(others))

    @cached_property
    def _first_token_waits(self) -> list[tuple[str, tuple[float, float]]]:
        """Experiment, and simulated and measured mean TTFT without the client's part, of each stage that was fitted to."""
        return first_token_waits(self, set(self.coefficients.experiments))


def is_fitted_to(stage: Stage) -> bool:
    """Whether coefficients may rest on a stage: one below saturation, with its latencies."""
    return stage.regime == SUB and bool(stage.tpot_mean_ms and stage.ttft_mean_ms)


def first_token_waits(comparison: ServingComparison, experiments: set[str]) -> list[tuple[str, tuple[float, float]]]:
    """Experiment, and simulated and measured mean µs to the first token, of the stages of these experiments below saturation."""
    found = []
    for case in comparison.cases:
        if case.stage.experiment in experiments and is_fitted_to(case.stage):
            assert case.stage.ttft_mean_ms is not None
            served = serve(case.engine, case.pool, comparison.table(case), traffic_of(case.load))
            simulated = latency_of(served, Client()).ttft.mean_us
            found.append((case.stage.experiment, (simulated, 1e3 * case.stage.ttft_mean_ms)))
    return found


def fitted_coefficients(stages: Sequence[Stage], model: StepModel, source: str) -> Coefficients:
    """The model's weights by the stages below saturation, then the client's time by their waits for a first token.

    SamplesError where there are too few experiments; UserError for a model whose weights are given.
    """
    experiments = tuple(dict.fromkeys(stage.experiment for stage in stages if is_fitted_to(stage)))
    draft = draft_of(model, source=source, experiments=experiments, asynchronous=True)
    comparison = ServingComparison(stages, draft)
    waits = [wait for _, wait in first_token_waits(comparison, set(experiments))]
    servers = [case.server for case in comparison.cases if is_fitted_to(case.stage)]
    return with_grounds(with_fit(draft, comparison.fit, waits), servers)


# Coefficients fitted to the stages of one GPU alone, judged on those of the others.


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """Stages below saturation of other GPUs than the one that the coefficients were fitted on."""

    fitted_on: str
    """A GPU by its name in the table; empty where nothing could be fitted."""
    compared: Sequence[ComparedStage] = ()


def transferred(stages: Sequence[Stage], model: StepModel) -> Transfer:
    """The stages of other GPUs by coefficients of the one with the most stages. Only the kernels' own prices are those of their GPU.

    None are compared where there is one GPU, where it has too few experiments, or where the model's weights are given.
    """
    fitting = [stage for stage in stages if is_fitted_to(stage)]
    counts = Counter(stage.gpu for stage in fitting)
    most = max(counts, key=lambda gpu: counts[gpu], default="")
    experiments = {stage.experiment for stage in fitting if stage.gpu == most}
    others = [stage for stage in stages if stage.gpu != most and stage.regime == SUB]
    if not others or not model.is_fitted or len(experiments) < LEAST_EXPERIMENTS:
        return Transfer(fitted_on="")
    own = [stage for stage in stages if stage.gpu == most]
    comparison = ServingComparison(others, fitted_coefficients(own, model, f"the stages on {most}"))
    return Transfer(fitted_on=most, compared=[comparison.compared(case) for case in comparison.cases])


# Stages simulated with the arrivals and lengths of their real requests, in place of a drawn load of their rate.

FILE = "serving_requests.parquet"
COLUMNS = ("experiment", "stage", "arrival_us", "input_tokens", "output_len")


def replayed(folder: Path, comparison: ServingComparison) -> Iterator[ComparedStage]:
    """The stages below saturation that the folder's table of requests has; none without a table. SamplesError for one of another schema."""
    if is_missing(folder / FILE):
        return
    requests = _read(folder / FILE)
    of_stage = dict(iter(requests.groupby(["experiment", "stage"], observed=True)))
    for case in comparison.cases:
        rows = of_stage.get((case.stage.experiment, case.stage.stage))
        if rows is not None and case.stage.regime == SUB:
            yield comparison.compared(case, every(_traffic(rows), case.server.placement.dp))


def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path, columns=list(COLUMNS))
    except (OSError, ValueError, KeyError) as error:
        raise SamplesError(f"{path}: {error}; give a table with the columns {', '.join(COLUMNS)}") from None


def _traffic(rows: pd.DataFrame) -> Traffic:
    """The requests of one stage. The table does not say which prompt each sent: those of one length are taken for the same."""
    rows = rows.sort_values("arrival_us", kind="stable")
    arrival, prompt = rows["arrival_us"].to_numpy(np.float64), rows["input_tokens"].to_numpy(np.int64)
    return Traffic(
        arrival_us=arrival - arrival[0],
        prompt=prompt,
        output=rows["output_len"].to_numpy(np.int64),
        shared=prompt.copy(),
        group=np.unique(prompt, return_inverse=True)[1],
    )
