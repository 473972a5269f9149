"""A pass of the trainer: the rows of its microbatches, and its FLOPs and MFU by convention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from predict.ledger.conventions.verl import verl, verl_peak_flops_per_us
from predict.rl.phase import PhaseMfu
from predict.rl.run.section import RlSection
from predict.run.lengths import PACKED, PADDED, RealSequences, alike, up_to
from predict.run.model_flops import model_flops_per_step
from predict.run.plan import Batch
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError, UserError
from sampling.hardware.cluster import Gpu


def laid_out_pass(
    base: TrainingRun, section: RlSection, lengths: Sequence[int], *, micro: int, max_tokens: int
) -> TrainingRun:
    """The trainer's run over sequences of these lengths, ascending.

    Padding kept: every sequence is a row of prompt_max + response_max. Removed: a microbatch of `micro` sequences has their
    tokens; with `max_tokens`, each replica's sequences are divided evenly among as few microbatches as the budget of
    max_tokens · cp takes (verl's dynamic batch size).
    """
    plan = base.plan
    multiple = plan.cp * (plan.tp if plan.sp else 1)
    tokens, replicas = sum(lengths), plan.dp
    at_once = plan.pp if plan.vpp > 1 else 1  # an interleaved schedule takes microbatches in groups of its ranks
    if section.padding == "kept" or not max_tokens:
        rows = up_to(len(lengths), micro * replicas * at_once)
        row_tokens = section.longest if section.padding == "kept" else ceil(tokens / rows)
    else:
        micro, of_replica = 1, up_to(ceil(tokens / replicas / (max_tokens * plan.cp)), at_once)
        rows = of_replica * replicas
        row_tokens = ceil(tokens / rows)
    row_tokens = up_to(row_tokens, multiple)
    real = RealSequences(
        counts=tuple(sorted(Counter(lengths).items())),
        truncated=0,
        rows=rows,
        row_tokens=row_tokens,
        longest_row=max(row_tokens, up_to(lengths[-1], multiple)),
        attended=() if section.padding == "kept" else alike(lengths, rows),
    )
    batch = Batch(
        global_=rows, micro=micro, seq_len=row_tokens, padding=PADDED if section.padding == "kept" else PACKED
    )
    return replace(base, batch=batch, real=real)


FORWARD_SHARE = 1 / 3
"""A forward pass in a convention that counts forward and backward: verl divides by 3 (verl/workers/engine_workers.py)."""


def mfu_of_phase(
    run: TrainingRun, time_us: float, *, gpus: int, passes: float = 1.0, forward_only: bool = False
) -> dict[str, PhaseMfu]:
    """The figures of `passes` passes over the sequences of a run, in `time_us` on so many GPUs."""
    share = passes * (FORWARD_SHARE if forward_only else 1.0)
    by_convention: Mapping[str, tuple[Callable[[], float], Callable[[Gpu], float]]] = {
        "palm": (lambda: model_flops_per_step(run), lambda gpu: gpu.peak_flops_per_us(run.precision)),
        "verl": (lambda: _verl(run), verl_peak_flops_per_us),
    }
    return {name: _figure(run, time_us, gpus, share, *of) for name, of in by_convention.items()}


def _verl(run: TrainingRun) -> float:
    return sum(count * verl(run.model_keys, [length]) for length, count in run.sequences.items())


def _figure(
    run: TrainingRun,
    time_us: float,
    gpus: int,
    share: float,
    flops_of: Callable[[], float],
    peak_of: Callable[[Gpu], float],
) -> PhaseMfu:
    flops = None
    try:
        flops = share * flops_of()
        peak = peak_of(run.cluster.gpu) * gpus
    except (ConfigError, UserError):
        return PhaseMfu(flops=flops, mfu=None)  # the convention does not know the model, or the device
    return PhaseMfu(flops=flops, mfu=flops / (peak * time_us) if time_us else None)
