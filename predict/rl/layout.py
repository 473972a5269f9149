"""Rows of the trainer's microbatches: the samples as a pass of the trainer computes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from predict.rl.run.section import RlSection
from predict.run.lengths import PACKED, PADDED, RealSequences, alike, up_to
from predict.run.plan import Batch
from predict.run.training_run import TrainingRun


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
