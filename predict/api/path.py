"""The path from a config to a prediction: load, decompose, price, schedule, compose."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from predict.config.draft import Document
    from predict.prices.price_list import Prices
    from predict.reduced_benchmark.benchmark_file import Benchmark
    from predict.run.training_run import TrainingRun
    from predict.step.prediction import Prediction


def load(
    config: Path | str | Document, overrides: Sequence[str] = (), *, target_nodes: int | None = None
) -> TrainingRun:
    """The run of a config; on `target_nodes` nodes, with its global batch shared among as many replicas as they hold.

    ConfigError lists every fault; UserError names the nearest node counts where the batch does not divide.
    """
    from predict.config.load import load as load_config
    from predict.run.training_run import settings_for_nodes

    run = load_config(config, overrides)
    if target_nodes is None:
        return run
    return load_config(config, [*overrides, *settings_for_nodes(run, target_nodes)])


def estimate(
    run: TrainingRun, *, prices: Prices | None = None, benchmark: Benchmark | None = None, require_fit: bool = True
) -> Prediction:
    """Predict one step of a loaded run; for `plan.schedule: best`, under the fastest schedule that fits the device's memory.

    Prices are opened once per cluster and kept, so that many plans of one model cost milliseconds each. `prices` replaces
    those of the cluster's profile; with `benchmark`, layers take the times that were measured. InfeasibleError where the
    schedule does not keep plan.memory_limit, or where `best` finds none that fits; without `require_fit`, `best` is then the
    schedule with the smallest peak, for a report of what is missing.
    """
    from predict.prices.open import open_prices
    from predict.run.plan import BEST
    from predict.step.scheduling import best_schedule, require_memory_limit

    known = prices or open_prices(run.cluster, run.execution)
    predict = partial(estimate_as_scheduled, prices=known, benchmark=benchmark)
    if run.plan.schedule == BEST:
        return best_schedule(run, predict, require_fit=require_fit)
    prediction = predict(run)
    require_memory_limit(prediction)
    return prediction


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
