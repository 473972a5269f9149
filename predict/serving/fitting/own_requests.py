"""Coefficients fitted to the requests that one server answered under several loads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from predict.serving.coefficients import Client, Coefficients
from predict.serving.config import ServingRun
from predict.serving.fitting.fit import CoefficientFit
from predict.serving.fitting.observed import Observed
from predict.serving.fitting.result import LEAST_EXPERIMENTS, draft_of, with_fit, with_grounds
from predict.serving.scheduler.latency import latency_of
from predict.serving.scheduler.request_file import MeasuredRequests, read_measured_requests
from predict.serving.scheduler.simulate import serve
from predict.serving.scheduler.traffic import Load, Traffic, every, load_of, with_known_prompts
from predict.serving.step_model import StepModel
from predict.serving.stepper import Stepper
from sampling.errors import ConfigError, SamplesError, UserError
from sampling.files.faults import counted
from sampling.units import SECOND_US


@dataclass(frozen=True, eq=False)
class AnsweredLoad:
    """The requests of one file, answered by the server of a config."""

    name: str
    run: ServingRun
    requests: MeasuredRequests

    @cached_property
    def traffic(self) -> Traffic:
        """The requests of one replica."""
        traffic = every(self.requests.traffic, self.run.server.placement.dp)
        return with_known_prompts(traffic, self.run.load)

    @property
    def load(self) -> Load:
        """Their rate and mean lengths, and the prompts that are known."""
        known = int((self.traffic.group >= 0).any())
        shared = round(float(self.traffic.shared.mean()))
        load = load_of(self.traffic, self.run.load)
        # a prompt that is known in part counts by the tokens that are known on average; the answers to requests that arrive at once
        # end one after the other
        return replace(load, shared_tokens=known * shared, rate=load.rate or self._answers_per_s)

    @property
    def _answers_per_s(self) -> float:
        """Requests of one replica per second from the first arrival to the last answer."""
        ends_us = self.requests.traffic.arrival_us + self.requests.e2e_us
        return len(self.traffic) / float(ends_us.max()) * SECOND_US

    @property
    def observed(self) -> Observed:
        return Observed(
            experiment=self.name,
            engine=self.run.server.engine,
            load=self.load,
            tpot_us=self.requests.tpot_us,
            window=self.run.server.window,
        )


def fitted_to_requests(run: ServingRun, paths: Sequence[Path], model: StepModel, source: str) -> Coefficients:
    """The model's weights by the time per token of each file's requests, then the client's time by their waits for a first token.

    ConfigError for a faulty file; SamplesError for too few of them; UserError for a model whose weights are given, and for an engine whose
    host decides the time of steps.
    """
    engine = run.server.engine
    if engine.enforce_eager:
        raise UserError(f"{run.name}: engine.enforce_eager: the host's launches hide what is fitted; switch it off")
    names, requests = [str(path) for path in paths], every_file(paths)
    if len(names) < LEAST_EXPERIMENTS:
        raise SamplesError(
            f"{counted(len(names), 'file')} of requests: {', '.join(names)}; give at least {LEAST_EXPERIMENTS}, one for each load, so that "
            "each can be left out once"
        )
    draft = draft_of(model, source=source, experiments=names, asynchronous=engine.asynchronous)
    stepper = Stepper(run.server, draft)
    loads = [AnsweredLoad(name, run, one) for name, one in zip(names, requests, strict=True)]
    fit = CoefficientFit(model, [one.observed for one in loads], [stepper.features] * len(loads))
    waits = []
    for one in loads:
        table = model.table_from(run.server, stepper.features, fit.named(fit.left_out[one.name]))
        simulated = latency_of(serve(engine, stepper.room.pool, table, one.traffic), Client()).ttft.mean_us
        waits.append((simulated, float(one.requests.ttft_us.mean())))
    return with_grounds(with_fit(draft, fit, waits), [run.server])


def every_file(paths: Iterable[Path]) -> list[MeasuredRequests]:
    """The requests of each file; ConfigError with the faults of all of them."""
    found, faults = [], []
    for path in paths:
        try:
            found.append(read_measured_requests(path))
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("\n".join(faults))
    return found
