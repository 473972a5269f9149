"""Predict the step time, the memory and the cost of a training run.

    prediction = predict.one_batch("configs/runs/demo.yml", ["plan.tp=2"])
    prediction.step_time.median_us, prediction.memory.verdict, prediction.breakdown_us

Every command takes the same path from a run's config to its prediction; `load` and `estimate` below are that path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampling.errors import ConfigError, InfeasibleError, SamplesError, UserError

if TYPE_CHECKING:
    from predict.anchor.benchmark_file import Benchmark
    from predict.bounds.analysis import Analysis
    from predict.bounds.step import StepBounds
    from predict.config.document import Document
    from predict.config.foreign.imported import ImportedConfig
    from predict.config.foreign.statement import LaunchArguments
    from predict.ledger.training_cost import TrainingCost
    from predict.memory.advice import Advice
    from predict.memory.estimate import MemoryEstimate
    from predict.plan_search.answer.ranking import Answer
    from predict.plan_search.whole_search import Listener
    from predict.plan_search.wishes import Backend, ObjectiveName
    from predict.prices.price_list import Prices
    from predict.rl.draws import RlDraws
    from predict.rl.ledger.books import RlLedger
    from predict.rl.search.search import RlAnswer
    from predict.rl.step import RlStep
    from predict.run.training_run import TrainingRun
    from predict.step.prediction import Prediction
    from predict.unstated.likely import LikelySteps
    from predict.what_if.compare import Difference
    from predict.what_if.sensitivity import Sensitivities
    from predict.what_if.sweep import Sweep

__all__ = [
    "ConfigError",
    "InfeasibleError",
    "Prediction",
    "SamplesError",
    "UserError",
    "compare",
    "days",
    "default_config",
    "estimate",
    "estimate_as_scheduled",
    "import_config",
    "launch_arguments",
    "ledger",
    "likely_steps",
    "load",
    "memory_advice",
    "one_batch",
    "one_batch_memory",
    "one_batch_predict",
    "plot",
    "rl_ledger",
    "rl_search",
    "rl_step",
    "rl_step_draws",
    "search",
    "sensitivity",
    "speed_of_light",
    "step_speed_of_light",
    "sweep",
]


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
    from predict.unstated.likely import likely_steps as predict_all

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
    from dataclasses import replace

    from predict.memory.advice import advise

    memory = prediction.memory if safety_margin is None else replace(prediction.memory, safety_margin=safety_margin)
    prices, benchmark = prediction.unrestored_prices, prediction.benchmark
    return advise(
        memory,
        lambda run: estimate(run, prices=prices, benchmark=benchmark).median_us,
        step_us_before=prediction.median_us,
    )


def default_config(model: str, gpus: str, *, batch: int | None = None, overrides: Sequence[str] = ()) -> Document:
    """The config of the plan that a framework's user tries first, for a model on GPUs such as `64xh100`; `as_yaml()` writes it.

    `batch` is the sequences of a step; `overrides` are settings that the plan is chosen around: give them to `one_batch` too.
    UserError for what cannot be; InfeasibleError, with a number of GPUs that would do, where no plan fits.
    """
    from predict.plan_search.default_plan import default_config as choose

    return choose(model, gpus, batch=batch, overrides=overrides)


def search(
    config: Path | str | Document,
    overrides: Sequence[str] = (),
    *,
    clusters: Sequence[str] = (),
    objective: ObjectiveName = "time",
    top: int = 20,
    max_memory: float = 1.0,
    max_gpus: int | None = None,
    min_interval_overlap: float | None = None,
    tokens: str | None = None,
    price: str | None = None,
    front: bool = False,
    save: Path | str | None = None,
    jobs: int | None = None,
    backend: Backend = "processes",
    address: str | None = None,
    listener: Listener | None = None,
) -> Answer:
    """The best plans, exactly, of all that a config leaves open: keys that are lists, ranges, `auto`, or left out; of an RL config see
    `rl_search`.

    `.plans` are the best, each with its settings, prediction and ratio to the best; `.found.left_out` counts the others by reason.
    The parameters are those of the command, as `plan_search.wishes` describes them; `listener` is told of progress. ConfigError
    and UserError for bad input; InfeasibleError, with the smallest change that helps, where nothing fits.
    """
    from predict.plan_search.whole_search import whole_search
    from predict.plan_search.wishes import Wishes

    wishes = Wishes(
        clusters=tuple(clusters),
        objective=objective,
        top=top,
        max_memory=max_memory,
        max_gpus=max_gpus,
        min_interval_overlap=min_interval_overlap,
        tokens=tokens,
        price=price,
        front=front,
        save=None if save is None else Path(save),
        jobs=jobs,
        backend=backend,
        address=address,
    )
    return whole_search(config, overrides, wishes, estimate, listener)


def sweep(
    config: Path | str | Document,
    vary: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Predict a config under every combination of keys such as `batch.seq_len=2k..128k` and `batch.micro=1,2,4`.

    A combination that cannot run keeps its reason. dp takes the ranks that are left where the other degrees vary and it does
    not. `progress` is told how many are done, and of how many. UserError for an unknown key, an empty range, and where no
    combination can run.
    """
    from predict.what_if.sweep import sweep as run_all

    return run_all(config, vary, overrides, estimate, progress)


def compare(
    first: Path | str | Document, *others: Path | str | Document, overrides: Sequence[str] = ()
) -> tuple[Difference, ...]:
    """The differences of configs from the first: settings, the step heading by heading, and memory term by term."""
    from predict.what_if.compare import compare as differences

    return differences(one_batch(first, overrides), [one_batch(other, overrides) for other in others])


def sensitivity(config: Path | str | Document, overrides: Sequence[str] = ()) -> Sensitivities:
    """The effect on the step of 10 % more of each figure of the hardware, its links and the framework, and of each other value of a
    setting of `execution`, ranked; each is predicted by itself."""
    from predict.what_if.sensitivity import sensitivity as ranked

    return ranked(load(config, overrides), estimate, lambda setting: load(config, [*overrides, setting]))


def days(
    prediction: Prediction, tokens: str, *, price: str | None = None, goodput: float | None = None
) -> TrainingCost:
    """Days, GPU-hours, money and energy of training on `tokens` such as `2T`, with the bounds of the step time.

    `price` is such as `2.5/gpu-h`; `goodput` the share of the time that goes into steps that are kept (default:
    `training_cost.GOODPUT`). UserError for a number, a price or a share that is none.
    """
    from predict.ledger.training_cost import GOODPUT, Span, parse_price, parse_tokens, require_share, training_cost

    step = prediction.step_time
    return training_cost(
        prediction.run,
        Span(median=step.median_us, low=step.low_us, high=step.high_us),
        tokens=parse_tokens(tokens),
        goodput=require_share(GOODPUT if goodput is None else goodput),
        price=None if price is None else parse_price(price),
    )


def speed_of_light(file: Path | str, *, arch: str = "h100-sxm", precision: str = "bf16") -> Analysis:
    """The least time that a device leaves the torch module in a Python file, which is run: its `Model` on its `get_inputs()`.

    `arch` is an entry of configs/hardware, or a YAML file of ours or of SOLAR's. UserError, with the operation and the line, for
    what cannot be exported; ConfigError for a device that is unknown or lacks the precision.
    """
    from predict.bounds.analysis import analyse
    from predict.bounds.device import device_of
    from predict.bounds.exported.read import read_module

    device = device_of(arch)
    device.macs_in(precision)
    return analyse(read_module(Path(file), precision), device)


def rl_step(config: Path | str, overrides: Sequence[str] = ()) -> RlStep:
    """One step of reinforcement learning of an RL config, as in configs/rl: `.time`, `.phases` under verl's names, `.rollout`.

    `overrides` are keys such as `rl.n=8`, or verl's own names. ConfigError lists every fault; InfeasibleError where a response does
    not fit an engine's cache.
    """
    from predict.rl.run.config import load_rl
    from predict.rl.step import rl_step as step_of

    return step_of(load_rl(config, overrides), estimate)


def rl_step_draws(config: Path | str, overrides: Sequence[str] = (), *, draws: int = 16) -> RlDraws:
    """The step of an RL config over draws of its lengths: `.percentiles_us("step")`, or of a phase. ConfigError and InfeasibleError as
    from `rl_step`."""
    from predict.rl.draws import draw_steps

    return draw_steps(config, overrides, estimate, draws)


def rl_ledger(config: Path | str, overrides: Sequence[str] = ()) -> RlLedger:
    """The books of an RL step: `.accounts_us` of trainer and engines, `.step.phases` with their parts, and what the times rest on.
    ConfigError and InfeasibleError as from `rl_step`."""
    from predict.rl.ledger.books import RlLedger

    return RlLedger(step=rl_step(config, overrides))


def rl_search(
    config: Path | str, overrides: Sequence[str] = (), *, progress: Callable[[int], None] | None = None
) -> RlAnswer:
    """The best steps of all that an RL config leaves open: keys of rl, plan and cluster that are lists or ranges, and for the split of
    the GPUs `auto`.

    `.best` are those that can run, best first, each with its settings and step, `.left_out` the others with the reason; `progress` is
    told how many are done. ConfigError and UserError for bad input; InfeasibleError where none can run.
    """
    from predict.rl.search.search import search_rl

    return search_rl(config, overrides, estimate, progress or (lambda done: None))


def step_speed_of_light(config: Path | str | Document, overrides: Sequence[str] = ()) -> StepBounds:
    """The operators of a step beside the least time that the device's peaks leave them, worst ratio first."""
    from predict.bounds.step import step_bounds

    return step_bounds(one_batch(config, overrides))


def launch_arguments(config: Path | str | Document, tool: str, overrides: Sequence[str] = ()) -> LaunchArguments:
    """The files with which another tool runs a config, megatron-lm, nemo, torchtitan or deepspeed, and what they do not express.

    UserError for another tool, and for `plan.schedule: best`; ConfigError lists every fault of the config.
    """
    from predict.config.foreign.launch import launch_arguments as write

    return write(load(config, overrides), tool)


def import_config(files: Sequence[Path | str], overrides: Sequence[str] = ()) -> ImportedConfig:
    """The run config that other tools' files of one run make: Megatron-LM's arguments (script, list or YAML), torchtitan's TOML,
    DeepSpeed's JSON, Primus' YAML. `overrides` such as `cluster.hardware=h100` add what they do not say.

    `.document` is a config for every function here, `.not_read` the settings that change nothing or are unknown. ConfigError
    lists every fault, and all that is missing.
    """
    from predict.config.foreign.imported import import_config as read

    return read([Path(file) for file in files], overrides)


def load(
    config: Path | str | Document, overrides: Sequence[str] = (), *, target_nodes: int | None = None
) -> TrainingRun:
    """The run of a config; on `target_nodes` nodes, with its global batch shared among as many replicas as they hold.

    ConfigError lists every fault; UserError names the nearest node counts where the batch does not divide.
    """
    from predict.config.load import load as load_config
    from predict.run.target_nodes import settings_for_nodes

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
    from functools import partial

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
        from predict.anchor.restore_step import restored

        calls, prices = restored(run, calls, benchmark, prices)
    ranks = price(run, calls, prices)
    timeline = schedule(run, ranks)
    return compose(run, calls, ranks, timeline, prices, unrestored_prices=unrestored_prices, benchmark=benchmark)


def __getattr__(name: str) -> Any:
    """`predict.Prediction`, `predict.ledger` and `predict.plot`, whose modules are imported when they are asked for: `predict --help`
    needs none of them."""
    if name == "ledger":
        return import_module("predict.ledger")
    if name == "plot":  # stands above packages that use this one: looked up by name, so that no import runs upwards
        return import_module("predict.report.pictures.figures").plot
    if name == "Prediction":
        from predict.step.prediction import Prediction

        return Prediction
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
