"""Coefficients of a step model fitted to measured serving runs: of one server, or of the stages of experiments."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from predict.serving.coefficients import Client, Coefficients
from predict.serving.config import load_serving
from predict.serving.fit_own_server import fitted_to_log, fitted_to_requests, is_step_log
from predict.serving.fitting import CoefficientFit, Observed, draft_of, first_token_us, with_fit, with_grounds
from predict.serving.kv_cache import BlockPool, cache_room
from predict.serving.latency import latency_of
from predict.serving.server import EngineSettings, Server
from predict.serving.simulate import require_room, serve
from predict.serving.stages import FILE, Stage, read_stages
from predict.serving.step_model import Features, StepModel, step_model
from predict.serving.step_table import StepTable
from predict.serving.traffic import Load, at_rate, traffic_of
from sampling.errors import UserError
from sampling.number_text import count, plain

MOST_OFF = math.log(2)
"""Log half-width beyond which a fit is of no use."""


def serving_fit(
    traces: Sequence[Path | str],
    overrides: Sequence[str] = (),
    *,
    config: Path | str | None = None,
    model: str = "kernels",
    source: str = "",
) -> Coefficients:
    """The coefficients of a step model, fitted to a folder of serving_experiments.csv, or to files of requests or of steps of the server
    of a serving config. `source` says what the runs are, and is kept with the coefficients.

    UserError for files of several kinds, and for a fit that is of no use.
    """
    paths = [Path(each) for each in traces]
    if not paths:
        raise UserError(f"TRACES: none are given; give the folder of {FILE}, or files of one server with its config")
    found = _of_files(paths, overrides, config, model, source) if config else _of_stages(paths, model, source)
    if found.half_width > MOST_OFF:
        raise UserError(
            f"TRACES: what is left out of the fit differs from it by a factor of {plain(math.exp(found.half_width))} (at most {count(math.exp(MOST_OFF))}): these are "
            "no times of this server; check the units (times in ms), and that CONFIG has the model, GPU and engine that was measured"
        )
    return found


def _of_files(
    traces: Sequence[Path], overrides: Sequence[str], config: Path | str, model: str, source: str
) -> Coefficients:
    if folders := [str(path) for path in traces if path.is_dir()]:
        raise UserError(
            f"--config: applies only to files of requests or of steps, and {folders[0]} is a folder; give one of the two"
        )
    _require_different(traces)
    run, known = load_serving(config, overrides), step_model(model)
    names, logs = ", ".join(map(str, traces)), [path for path in traces if is_step_log(path)]
    if not logs:
        return fitted_to_requests(run, traces, known, source or f"requests of {names}")
    if others := [str(path) for path in traces if path not in logs]:
        raise UserError(f"TRACES: {logs[0]} has steps, and {others[0]} has none; give files of one kind")
    return fitted_to_log(run, traces, known, source or f"steps of {names}")


def _require_different(traces: Sequence[Path]) -> None:
    """UserError for a file that is given more than once: it would be left out of a fit that still has it."""
    times = Counter(path.resolve() for path in traces)
    if again := [str(path) for path in dict.fromkeys(traces) if times[path.resolve()] > 1]:
        raise UserError(f"TRACES: {', '.join(again)}: the same file more than once; give each file once")


def _of_stages(traces: Sequence[Path], model: str, source: str) -> Coefficients:
    folder, *more = traces
    if more or folder.is_file():
        raise UserError(f"--config: missing; {more[0] if more else folder} is taken for requests of one server")
    return fitted_coefficients(read_stages(folder, "TRACES"), step_model(model), source or str(folder))


# Coefficients of a step model fitted to the stages of measured experiments, each experiment left out once.

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
            seen=self.server.seen,
        )


class MeasuredStages:
    """All stages of a table under one model, those that cannot be predicted apart. Coefficients that a stage's
    experiment is among the sources of are fitted anew without it."""

    def __init__(self, stages: Sequence[Stage], coefficients: Coefficients) -> None:
        self.coefficients = coefficients
        self.model: StepModel = step_model(coefficients.model)
        self.cases: list[Case] = []
        self.not_served: list[tuple[Stage, str]] = []
        """Stages that cannot be predicted, each with the reason."""
        for stage in stages:
            try:
                self.cases.append(self._case(stage))
            except UserError as error:
                self.not_served.append((stage, str(error)))

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


def first_token_waits(stages: MeasuredStages, experiments: set[str]) -> list[tuple[str, tuple[float, float]]]:
    """Experiment, and simulated and measured mean µs to the first token, of the stages of these experiments below saturation."""
    found = []
    for case in stages.cases:
        if case.stage.experiment in experiments and is_fitted_to(case.stage):
            assert case.stage.ttft_mean_ms is not None
            served = serve(case.engine, case.pool, stages.table(case), traffic_of(case.load))
            simulated = latency_of(served, Client()).ttft.mean_us
            found.append((case.stage.experiment, (simulated, 1e3 * case.stage.ttft_mean_ms)))
    return found


def fitted_coefficients(stages: Sequence[Stage], model: StepModel, source: str) -> Coefficients:
    """The model's weights by the stages below saturation, then the client's time by their waits for a first token.

    UserError where there are too few experiments, and for a model whose weights are given.
    """
    experiments = tuple(dict.fromkeys(stage.experiment for stage in stages if is_fitted_to(stage)))
    draft = draft_of(model, source=source, experiments=experiments, asynchronous=True)
    measured = MeasuredStages(stages, draft)
    waits = [wait for _, wait in first_token_waits(measured, set(experiments))]
    servers = [case.server for case in measured.cases if is_fitted_to(case.stage)]
    return with_grounds(with_fit(draft, measured.fit, waits), servers)
