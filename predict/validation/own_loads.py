"""Loads that a real server bears on this machine, compared with predictions that were made before.

Steps of the server with batches of its own choice are timed, the kernel model is fitted to them, every load is predicted, and only
then are the loads served, in turns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from predict.measurement.requirements import require_servable
from predict.measurement.serving.real_server import ServedLoad, serve_for_real, time_steps
from predict.measurement.turns import in_turns
from predict.serialise import picked, version_of
from predict.serving.batch import StepBatch
from predict.serving.coefficients import Coefficients
from predict.serving.config import ServingRun, load_serving
from predict.serving.fit_own_server import fitted_to_steps
from predict.serving.latency import Latency
from predict.serving.loaded_server import LoadedServer, LoadOutcome
from predict.serving.stepper import Stepper
from predict.validation.compared import Compared, scores
from predict.validation.serving import FIGURES, latency_interval
from sampling.errors import UserError
from sampling.number_text import duration, seconds

ROUNDS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnLoad:
    """A load as it was predicted, and as it was served in each round."""

    name: str
    predicted: LoadOutcome
    served: Sequence[ServedLoad]
    paces: Sequence[float]
    """Times of chosen steps just before each round over the model's: above 1 where the machine has become slower since it was fitted."""

    def compared(self, figure: str) -> Compared:
        """The prediction next to the median over rounds, in µs."""
        return self._beside(figure, self._each(figure))

    def paced(self, figure: str) -> Compared:
        """The same with each round at the pace of the machine when the model was fitted."""
        return self._beside(figure, [time / pace for time, pace in zip(self._each(figure), self.paces, strict=True)])

    def spread(self, figure: str) -> float:
        """Largest over smallest round, less 1."""
        each = self._each(figure)
        return max(each) / min(each) - 1

    @property
    def accepted_shares(self) -> list[float]:
        """Share of drafts that were accepted up to each position, over rounds; empty without drafts."""
        return [fmean(each) for each in zip(*(one.accepted_shares for one in self.served), strict=True)]

    def _beside(self, figure: str, times_us: Sequence[float]) -> Compared:
        outcome = self.predicted
        predicted = latency_interval(figure, outcome.latency, outcome.low, outcome.high)
        return Compared(predicted=predicted, measured=median(times_us))

    def _each(self, figure: str) -> list[float]:
        return [FIGURES[figure](one.latency) for one in self.served]


def fitted_here(run: ServingRun, config: Path | str, overrides: Sequence[str]) -> Coefficients:
    """The kernel model fitted to steps of the config's server that are timed now."""
    steps = time_steps(run, config, overrides)
    # chosen batches verify no drafts
    return fitted_to_steps(
        steps, run.server.without_speculation, f"{len(steps)} steps of {run.name}'s server, timed here"
    )


def pace(served: ServedLoad, stepper: Stepper) -> float:
    """The median of the times of the steps before a load, which verify no drafts, over those of the model."""
    modelled = replace(stepper, server=stepper.server.without_speculation).step_times(
        [one.batch for one in served.before]
    )
    return median(one.time_us / time.median_us for one, time in zip(served.before, modelled, strict=True))


def validate_loads(
    configs: Sequence[str],
    overrides: Sequence[str],
    *,
    rounds: int,
    coefficients: Coefficients | None,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Predict the loads of serving configs, then serve them, as the stable content of `predict validate CONFIG… --json`.

    UserError for a config that cannot be served here, and for configs of different servers.
    """
    runs = [load_serving(config, overrides) for config in configs]
    for run, config in zip(runs, configs, strict=True):
        require_servable(run)
        if run.server != runs[0].server:
            raise UserError(
                f"{config}: its server differs from the one of {configs[0]}; give configs of one server, or a command for each"
            )
    if coefficients is None:
        report("timing steps of the server")
        coefficients = fitted_here(runs[0], configs[0], overrides)
    stepper = Stepper(runs[0].server, coefficients)
    predicted = [LoadedServer(run, stepper).as_configured() for run in runs]
    for run, outcome in zip(runs, predicted, strict=True):
        report(f"predicted {run.name}: {_means(outcome.latency)}")
    report(f"{rounds * len(runs)} measurements, {rounds} of each load")
    served = in_turns(
        list(zip(runs, configs, strict=True)),
        rounds,
        lambda case: serve_for_real(*case, overrides),
        lambda one: f"{one.name}: {_means(one.latency)}, {seconds(one.waited_s)} without a core",
        report,
    )
    loads = [
        OwnLoad(name=run.name, predicted=outcome, served=each, paces=[pace(one, stepper) for one in each])
        for run, outcome, each in zip(runs, predicted, served, strict=True)
    ]
    return own_loads_json(loads, stepper)


def _means(latency: Latency) -> str:
    return f"E2E {duration(latency.e2e.mean_us)}, TPOT {duration(latency.tpot.mean_us)}"


def own_loads_json(loads: Sequence[OwnLoad], stepper: Stepper) -> dict[str, Any]:
    """The loads and what they sum up to; errors and shares are fractions."""
    coefficients, engine = stepper.coefficients, stepper.server.engine
    usual = StepBatch(decodes=(stepper.server.model.max_positions // 8,) * max(1, engine.max_num_seqs // 2))
    found = {figure: scores(one.compared(figure) for one in loads) for figure in FIGURES}
    return {
        "version": version_of("validate-own-loads"),
        **picked(coefficients, "model source half_width"),
        "weights": coefficients.values,
        "kernels": dict(stepper.sources(usual)),
        "summary": {
            **{figure: each.mean for figure, each in found.items()},
            "paced": {figure: scores(one.paced(figure) for one in loads).mean for figure in FIGURES},
            "coverage": found["e2e"].coverage,
        },
        "bias": {figure: each.bias for figure, each in found.items()},
        "rows": [_row(one) for one in loads],
    }


def _row(one: OwnLoad) -> dict[str, Any]:
    compared = {figure: one.compared(figure) for figure in FIGURES}
    return {
        "load": one.name,
        "requests": one.served[0].requests,
        "rounds": len(one.served),
        "predicted_ms": {figure: each.predicted.median / 1e3 for figure, each in compared.items()},
        "measured_ms": {figure: each.measured / 1e3 for figure, each in compared.items()},
        "errors": {figure: each.error for figure, each in compared.items()},
        "paced_errors": {figure: one.paced(figure).error for figure in FIGURES},
        "paces": list(one.paces),
        "spread": {figure: one.spread(figure) for figure in FIGURES},
        "covered": compared["e2e"].covered,
        "waited_s": sum(each.waited_s for each in one.served),
        **({"accepted_shares": one.accepted_shares} if one.accepted_shares else {}),
    }
