"""Whether a log matches the run that it is said to be of: what it states of batch, tokens and FLOPs against the run's own."""

import math
from collections.abc import Iterator

from predict.ledger.conventions import megatron_of, palm_of
from predict.measured_runs.steady_state import SteadyStep
from predict.run.model_flops import attention_flops_per_token, model_flops_per_step
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError
from sampling.number_text import plain, quantity, whole_percent

SLACK = 1.1
"""Factor on either side within which a log's own figures agree: rates are means over some steps, and are rounded."""
RECOMPUTED = 4 / 3
"""FLOPs with full recomputation over those without, which Megatron's `hardware FLOPs` and older versions count."""
UNITS = {3: "a thousand times", -3: "a thousandth of", 6: "a million times", -6: "a millionth of"}
"""Powers of ten of a ratio that are a unit's mistake."""
NEAR_UNIT = 0.5
"""Distance of the decimal logarithm within which it is taken for one."""


WARMING_UP = 1.1
"""Earlier over later steady steps from which on a log is still in its warm-up: steady ones scatter by a few per cent about one level."""


def not_steady(log: SteadyStep) -> Iterator[str]:
    """Why a log's steady lines do not state the step of training."""
    if log.skipped:
        yield (
            f"in each of its last {log.lines} steps the optimizer was skipped (a loss or gradient that is not finite); give the log of steps "
            "that train"
        )
    if log.pace > WARMING_UP:
        yield (
            f"its last {log.lines} steps still get faster, by {whole_percent(1 - 1 / log.pace)} from the earlier to the later half: warm-up; give a "
            "longer log"
        )


def misfits(log: SteadyStep, run: TrainingRun) -> Iterator[str]:
    """Facts of a log that cannot be of the run; nothing where it states too little to know."""
    yield from _of_batch(log, run)
    if log.stated:
        yield from _of_rates(log, run)
    yield from _of_flops(log, run)


def _of_batch(log: SteadyStep, run: TrainingRun) -> Iterator[str]:
    for stated, name, own in (
        (log.batch, "batch.global", run.batch.global_),
        (log.seq_len, "batch.seq_len", run.batch.seq_len),
    ):
        if stated is not None and stated != own:
            yield f"its {name} is {stated:,}, the config's {own:,}; give the config of that run"


def _of_rates(log: SteadyStep, run: TrainingRun) -> Iterator[str]:
    tokens = run.batch.global_ * run.batch.seq_len
    rates = (
        (log.samples_per_s, 1, run.batch.global_, "sequences"),
        (log.tokens_per_s_per_gpu, run.cluster.world_size, tokens, "tokens"),
    )
    for rate, gpus, own, what in rates:
        if rate is None:
            continue
        stated = rate * gpus * log.step_us / 1e6
        if not 1 / SLACK < stated / own < SLACK:
            yield (
                f"its rate and its step time make {plain(stated)} {what} per step, the config {own:,}{_unit(stated / own)}; give the config of that "
                "run, with its batch, sequence length and GPUs"
            )


def _of_flops(log: SteadyStep, run: TrainingRun) -> Iterator[str]:
    if log.tflops_per_gpu is None or run.real is not None:
        return
    stated = log.tflops_per_gpu * 1e12 * run.cluster.world_size * log.step_us / 1e6
    low, high = flops_of_conventions(run)
    if not low / SLACK < stated < high * SLACK:
        near = low if stated < low else high
        yield (
            f"its TFLOP/s and its step time make {quantity(stated)}FLOPs per step, the config's model {quantity(low)} to {quantity(high)} by the usual "
            f"conventions{_unit(stated / near)}; give the config of that run, with its model and GPUs"
        )


def flops_of_conventions(run: TrainingRun) -> tuple[float, float]:
    """The least and the most FLOPs per step that frameworks count for the run's model."""
    length, rows = run.batch.seq_len, run.batch.global_
    counted = [model_flops_per_step(run), rows * palm_of(run.model, [length])]
    try:
        counted.append(rows * megatron_of(run.model, [length]))
    except ConfigError:  # of a model that Megatron's formula does not know
        counted.append(min(counted) - rows * length * attention_flops_per_token(run.model, length) / 2)  # causal
    return min(counted), max(counted) * (1.0 if run.plan.recompute == "none" else RECOMPUTED)


def _unit(ratio: float) -> str:
    mistaken = unit_mistake(ratio)
    return f", about {mistaken} that: check the unit of its times" if mistaken else ""


def unit_mistake(ratio: float) -> str:
    """The mistake of a unit that a ratio of two times looks like, such as `a thousandth of`; empty where it looks like none."""
    power = math.log10(ratio)
    near = min(UNITS, key=lambda each: abs(each - power))
    return UNITS[near] if abs(near - power) < NEAR_UNIT else ""
