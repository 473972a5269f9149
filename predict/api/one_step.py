"""Questions on one step: its time, its memory, its cost and its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from predict.api.path import estimate, load

if TYPE_CHECKING:
    from predict.bounds.analysis import Analysis
    from predict.bounds.step import StepBounds
    from predict.config.draft import Document
    from predict.ledger.books import Ledger
    from predict.ledger.training_cost import TrainingCost
    from predict.memory.advice import Advice
    from predict.memory.estimate import MemoryEstimate
    from predict.plan_search.unknown_settings import LikelySteps
    from predict.step.prediction import Prediction


def one_batch(
    config: Path | str | Document, overrides: Sequence[str] = (), *, require_measured: bool = False
) -> Prediction:
    """Predict one training step of a config, by its path or as `default_config` makes it, with `plan.tp=2`-like `overrides`.

    ConfigError lists every fault of the config; SamplesError is for damaged regressors or, with `require_measured`, for work
    that no sample covers; InfeasibleError where no schedule fits the memory.
    """
    prediction = estimate(load(config, overrides))
    if require_measured:
        from predict.prices.open import require_measured as require

        require(prediction.sources, prediction.run.cluster)
    return prediction


def likely_steps(config: Path | str | Document, overrides: Sequence[str] = ()) -> LikelySteps:
    """Predict one training step of a config with keys that are `unknown`, such as `plan.vpp=unknown`: each of the equally likely runs
    that it may be, and `.step_time`, the interval of all of them.

    ConfigError lists every fault of the config; keys that may be unknown: plan.vpp, plan.ep, plan.recompute, batch.micro.
    """
    from predict.config.load import load_partly_unknown
    from predict.plan_search.unknown_settings import likely_steps as predict_all

    base, unknown = load_partly_unknown(config, overrides)
    return predict_all(base, unknown, lambda run: estimate(run, require_fit=False))


def one_batch_predict(config: Path | str | Document, overrides: Sequence[str] = ()) -> float:
    """The median step time in µs."""
    return one_batch(config, overrides).median_us


def one_batch_memory(config: Path | str | Document, overrides: Sequence[str] = ()) -> MemoryEstimate:
    """The memory of each pipeline rank, the expected peak, its upper bound, and whether it fits.

    For `plan.schedule: best`, under the fastest schedule that fits; where none fits, under the one with the smallest peak.
    """
    return estimate(load(config, overrides), require_fit=False).memory


def memory_advice(prediction: Prediction, *, safety_margin: float | None = None) -> tuple[Advice, ...]:
    """The single changes that make a run fit, cheapest first, each with its cost in step time; none where it fits already.

    Changed runs take the prices of the prediction, and its benchmark where it has one. `safety_margin` replaces that of the
    prediction's memory, as a share of the expected peak.
    """
    from predict.memory.advice import advise

    memory = prediction.memory if safety_margin is None else replace(prediction.memory, safety_margin=safety_margin)
    prices, benchmark = prediction.unrestored_prices, prediction.benchmark
    return advise(
        memory,
        lambda run: estimate(run, prices=prices, benchmark=benchmark).median_us,
        step_us_before=prediction.median_us,
    )


def step_ledger(config: Path | str | Document, overrides: Sequence[str] = ()) -> Ledger:
    """The five books of a config's step, and its MFU by convention: `.account_us`, `.compute`, `.mfu`.

    ConfigError lists every fault of the config; SamplesError is for damaged regressors.
    """
    from predict.ledger.books import ledger_of

    return ledger_of(estimate(load(config, overrides), require_fit=False))


def days(
    prediction: Prediction, tokens: str, *, price: str | None = None, goodput: float | None = None
) -> TrainingCost:
    """Days, GPU-hours, money and energy of training on `tokens` such as `2T`, with the bounds of the step time.

    `price` is such as `2.5/gpu-h`; `goodput` the share of the time that goes into steps that are kept (default:
    `training_cost.GOODPUT`). UserError for a number, a price or a share that is none.
    """
    from predict.ledger.training_cost import asked_training, training_cost

    asked = asked_training(tokens, price=price, goodput=goodput)
    step = prediction.step_time
    return training_cost(
        prediction.run,
        step,
        tokens=asked.tokens,
        goodput=asked.goodput,
        price=asked.price,
    )


def speed_of_light(file: Path | str, *, arch: str = "h100-sxm", precision: str = "bf16") -> Analysis:
    """The least time that a device leaves the torch module in a Python file, which is run: its `Model` on its `get_inputs()`.

    `arch` is an entry of configs/hardware, or a YAML file of ours or of SOLAR's. UserError, with the operation and the line, for
    what cannot be exported; ConfigError for a device that is unknown or lacks the precision.
    """
    from predict.bounds.analysis import analyse
    from predict.bounds.device import device_of
    from predict.bounds.read_module import read_module

    device = device_of(arch)
    device.macs_in(precision)
    return analyse(read_module(Path(file), precision), device)


def step_speed_of_light(config: Path | str | Document, overrides: Sequence[str] = ()) -> StepBounds:
    """The operators of a step beside the least time that the device's peaks leave them, worst ratio first."""
    from predict.bounds.step import step_bounds

    return step_bounds(one_batch(config, overrides))
