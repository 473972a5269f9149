"""Predictions of a server compared with measured serving runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from predict.interval import Interval
from predict.serving.fit import SUB, Case, MeasuredStages, fitted_coefficients, is_fitted_to
from predict.serving.fitting import LEAST_EXPERIMENTS
from predict.serving.latency import Latency, latency_of
from predict.serving.simulate import serve
from predict.serving.stages import Stage
from predict.serving.step_model import StepModel
from predict.serving.traffic import Traffic, every, traffic_of
from predict.validation.compared import Compared, Refused
from sampling.errors import ConfigError
from sampling.files.disk import is_missing

if TYPE_CHECKING:
    import pandas as pd


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


class ServingComparison(MeasuredStages):
    """Measured stages, each predicted by coefficients that its experiment had no part in."""

    @property
    def refused(self) -> Sequence[Refused[Stage]]:
        return [Refused(row=stage, why=why) for stage, why in self.not_served]

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

    def errors_without_their_models(self) -> Mapping[tuple[str, int], Sequence[float]]:
        """Model and tp → the signed errors of TPOT, as `CoefficientFit.errors` has them, of the stages that the coefficients rest on, by
        weights to which no stage of the model was fitted: how far they carry to a model that nobody measured. None for a single model."""
        servers = {case.stage.experiment: (case.stage.model, case.stage.tp) for case in self.cases}
        experiments = [one.experiment for one in self.fit.observed]
        models = sorted({servers[each][0] for each in experiments})
        found: dict[tuple[str, int], list[float]] = {}
        for model in models if len(models) > 1 else ():
            own = [each for each in experiments if servers[each][0] == model]
            errors = self.fit.errors(self.fit.without(*own))
            for experiment, error in zip(experiments, errors, strict=True):
                if servers[experiment][0] == model:
                    found.setdefault(servers[experiment], []).append(float(error))
        return found


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
    """The stages below saturation that the folder's table of requests has; none without a table. ConfigError for one of another schema."""
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
        # opened here: pyarrow refuses names that are not UTF-8
        with path.open("rb") as stream:
            return pd.read_parquet(stream, columns=list(COLUMNS))
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{path}: {error}; give a table with the columns {', '.join(COLUMNS)}") from None


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
