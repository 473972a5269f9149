"""Predict the step time, the memory and the cost of a training run.

    prediction = predict.one_batch("configs/runs/demo.yml", ["plan.tp=2"])
    prediction.step_time.median_us, prediction.memory.verdict, prediction.breakdown_us

Every command takes the same path from a run's config to its prediction: `load` and `estimate`, whose five lines stand in
`estimate_as_scheduled`. Each of them imports its parts when it is called: `predict --help` needs none.

From YAML to milliseconds, read this file and seven more: `config.load` (a config to a run), `workload.decompose` (the calls of each
pipeline rank), `prices.price_list` (their times), `step.priced_block` and `step.priced_rank` (times of chunks), `step.scheduling` (the
timeline) and `step.prediction` (the step). `predict.serving` and `predict.rl` name the files of a capacity and of an RL step.
"""

from __future__ import annotations

from sampling import early_interrupt  # noqa: F401

# isort: split
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from predict.argument_types import checked
from sampling.errors import ConfigError, InfeasibleError, SamplesError, UserError

if TYPE_CHECKING:
    from predict.bounds.analysis import speed_of_light
    from predict.bounds.step import step_speed_of_light
    from predict.checkup import doctor
    from predict.cli.schema import schema
    from predict.config.document import Config
    from predict.convert.import_files import import_config
    from predict.convert.launch import launch_arguments
    from predict.diagnosis import diagnose
    from predict.explorer.server import explore
    from predict.ledger.books import step_ledger
    from predict.ledger.training_cost import days
    from predict.ledger.whole_job import job
    from predict.measured_runs.calibrate import calibrate
    from predict.measured_runs.explain.explanation import explain
    from predict.measured_runs.history import history
    from predict.measured_runs.infer import infer_config
    from predict.measured_runs.records import record
    from predict.measured_runs.replay.replay import what_if
    from predict.measurement.benchmark import benchmark
    from predict.measurement.measure import measure
    from predict.memory.advice import Advice
    from predict.plan_search.compare import compare
    from predict.plan_search.default_plan import default_config
    from predict.plan_search.needed_calls import calls
    from predict.plan_search.sensitivity import sensitivity
    from predict.plan_search.sweep import sweep
    from predict.plan_search.timed_schedules import schedule
    from predict.plan_search.unknown_settings import likely_steps
    from predict.plan_search.whole_search import search
    from predict.prices.price_list import Prices
    from predict.reduced_benchmark.benchmark_file import Benchmark
    from predict.reports.page.report import report
    from predict.reports.pictures.figures import plot
    from predict.reports.traces.trace import trace
    from predict.rl.books import rl_ledger
    from predict.rl.step import rl_step, rl_step_draws
    from predict.run.training_run import TrainingRun
    from predict.serving.fit import serving_fit
    from predict.serving.questions import serving_answer
    from predict.serving.served_step import serving_step
    from predict.step.prediction import Prediction
    from predict.validation.sources import validate

__all__ = [
    "ConfigError",
    "InfeasibleError",
    "Prediction",
    "SamplesError",
    "UserError",
    "benchmark",
    "calibrate",
    "calls",
    "compare",
    "days",
    "default_config",
    "diagnose",
    "doctor",
    "estimate",
    "estimate_as_scheduled",
    "explain",
    "explore",
    "history",
    "import_config",
    "infer_config",
    "job",
    "launch_arguments",
    "likely_steps",
    "load",
    "measure",
    "memory_advice",
    "one_batch",
    "one_batch_memory",
    "one_batch_predict",
    "plot",
    "record",
    "report",
    "rl_ledger",
    "rl_step",
    "rl_step_draws",
    "schedule",
    "schema",
    "search",
    "sensitivity",
    "serving_answer",
    "serving_fit",
    "serving_step",
    "speed_of_light",
    "step_ledger",
    "step_speed_of_light",
    "sweep",
    "trace",
    "validate",
    "what_if",
]

HOMES: Mapping[str, tuple[str, ...]] = {
    "predict.bounds.analysis": ("speed_of_light",),
    "predict.bounds.step": ("step_speed_of_light",),
    "predict.checkup": ("doctor",),
    "predict.cli.schema": ("schema",),
    "predict.convert.import_files": ("import_config",),
    "predict.convert.launch": ("launch_arguments",),
    "predict.diagnosis": ("diagnose",),
    "predict.explorer.server": ("explore",),
    "predict.ledger.books": ("step_ledger",),
    "predict.ledger.training_cost": ("days",),
    "predict.ledger.whole_job": ("job",),
    "predict.measured_runs.calibrate": ("calibrate",),
    "predict.measured_runs.explain.explanation": ("explain",),
    "predict.measured_runs.history": ("history",),
    "predict.measured_runs.infer": ("infer_config",),
    "predict.measured_runs.records": ("record",),
    "predict.measured_runs.replay.replay": ("what_if",),
    "predict.measurement.benchmark": ("benchmark",),
    "predict.measurement.measure": ("measure",),
    "predict.plan_search.compare": ("compare",),
    "predict.plan_search.default_plan": ("default_config",),
    "predict.plan_search.needed_calls": ("calls",),
    "predict.plan_search.sensitivity": ("sensitivity",),
    "predict.plan_search.sweep": ("sweep",),
    "predict.plan_search.timed_schedules": ("schedule",),
    "predict.plan_search.unknown_settings": ("likely_steps",),
    "predict.plan_search.whole_search": ("search",),
    "predict.reports.page.report": ("report",),
    "predict.reports.pictures.figures": ("plot",),
    "predict.reports.traces.trace": ("trace",),
    "predict.rl.books": ("rl_ledger",),
    "predict.rl.step": ("rl_step", "rl_step_draws"),
    "predict.serving.questions": ("serving_answer",),
    "predict.serving.served_step": ("serving_step",),
    "predict.step.prediction": ("Prediction",),
    "predict.serving.fit": ("serving_fit",),
    "predict.validation.sources": ("validate",),
}
"""Module → the public names that it has. It is imported when one of them is first asked for."""


def __getattr__(name: str) -> Any:
    home = next((module for module, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(home), name)
    made = globals()[name] = found if isinstance(found, type) else checked(found)
    return made


def __dir__() -> list[str]:
    """The public names."""
    return __all__


@checked
def load(config: Config, overrides: Sequence[str] = (), *, target_nodes: int | None = None) -> TrainingRun:
    """The run of a config, by its path or as `default_config` makes it, with `plan.tp=2`-like `overrides`; on `target_nodes` nodes, with
    its global batch shared among as many replicas as they hold. A run that is loaded stays as it is.

    ConfigError lists every fault; UserError names the nearest node counts where the batch does not divide, and refuses changes of a run
    that is loaded.
    """
    from predict.config.load import load as load_config
    from predict.run.training_run import settings_for_nodes

    run = load_config(config, overrides)
    if target_nodes is None:
        return run
    return load_config(config, [*overrides, *settings_for_nodes(run, target_nodes)])


@checked
def estimate_as_scheduled(run: TrainingRun, *, prices: Prices, benchmark: Benchmark | None = None) -> Prediction:
    """The path: a run whose schedule is named → calls → prices → timeline → prediction.

    Neither the device's memory nor plan.memory_limit is checked; `estimate` does so.
    """
    from predict.step.prediction import compose
    from predict.step.priced_rank import price
    from predict.step.scheduling import schedule
    from predict.workload.decompose import decompose

    calls, unrestored_prices = decompose(run), prices
    if benchmark:
        from predict.reduced_benchmark.restore_step import restored

        calls, prices = restored(run, calls, benchmark, prices)
    ranks = price(run, calls, prices)
    timeline = schedule(run, ranks)
    return compose(run, calls, ranks, timeline, prices, unrestored_prices=unrestored_prices, benchmark=benchmark)


@checked
def estimate(
    run: TrainingRun, *, prices: Prices | None = None, benchmark: Benchmark | None = None, require_fit: bool = True
) -> Prediction:
    """Predict one step of a loaded run; for `plan.schedule: best`, under the fastest schedule that fits the device's memory, and likewise
    with the best layout and recomputed modules where those are `auto`.

    Prices are opened once per cluster and kept, so that many plans of one model cost milliseconds each. `prices` replaces
    those of the cluster's profile; with `benchmark`, layers take the times that were measured. InfeasibleError where the
    schedule does not keep plan.memory_limit, or where `best` finds none that fits; without `require_fit`, `best` is then the
    schedule with the smallest peak, for a report of what is missing.
    """
    from predict.prices.open import open_prices
    from predict.run.plan import BEST
    from predict.step.scheduling import best_schedule, require_memory_limit

    known = prices or open_prices(run.cluster, run.execution)
    if run.plan.automatic:
        # by name, as all public functions are found: rooms that call this one stand below the search
        chosen = import_module("predict.plan_search.chosen")
        predict_one = partial(estimate, prices=known, benchmark=benchmark)
        return predict_one(chosen.chosen_run(run, predict_one, require_fit=require_fit))
    predict = partial(estimate_as_scheduled, prices=known, benchmark=benchmark)
    if run.plan.schedule == BEST:
        return best_schedule(run, predict, require_fit=require_fit)
    prediction = predict(run)
    require_memory_limit(prediction)
    return prediction


@checked
def one_batch(config: Config, overrides: Sequence[str] = (), *, require_measured: bool = False) -> Prediction:
    """Predict one training step of a config.

    ConfigError lists every fault of the config; SamplesError is for damaged regressors or, with `require_measured`, for work
    that no sample covers; InfeasibleError where no schedule fits the memory.
    """
    prediction = estimate(load(config, overrides))
    if require_measured:
        from predict.prices.open import require_measured as require

        require(prediction.sources, prediction.run.cluster)
    return prediction


@checked
def one_batch_predict(config: Config, overrides: Sequence[str] = ()) -> float:
    """The median step time in µs."""
    return one_batch(config, overrides).median_us


@checked
def one_batch_memory(config: Config, overrides: Sequence[str] = ()) -> Any:
    """The memory of each pipeline rank, the expected peak, its upper bound, and whether it fits: a `MemoryEstimate`.

    For `plan.schedule: best`, under the fastest schedule that fits; where none fits, under the one with the smallest peak. Of an RL config
    the `RlMemory` of a GPU while it generates and while it updates; of a serving config the room of its cache.
    """
    from predict.kinds import ServerOptions, kind, kind_of

    of = kind(kind_of(config))
    predict = of.predictor(partial(estimate, require_fit=False), ServerOptions())
    return of.memory(predict(of.load(config, overrides)))


@checked
def memory_advice(prediction: Prediction, *, safety_margin: float | None = None) -> tuple[Advice, ...]:
    """The changes that make a run fit, cheapest first, each with its cost in step time; none where it fits already.

    Changed runs take the prices of the prediction, and its benchmark where it has one. `safety_margin` replaces the one of the
    prediction's memory, as a share of the expected peak.
    """
    from dataclasses import replace

    from predict.memory.advice import advise

    memory = prediction.memory if safety_margin is None else replace(prediction.memory, safety_margin=safety_margin)
    of_run = partial(estimate, prices=prediction.unrestored_prices, benchmark=prediction.benchmark)
    return advise(memory, lambda run: of_run(run).median_us, step_us_before=prediction.median_us)
