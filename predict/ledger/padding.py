"""Padding and packing: the tokens, time and memory of a step that no real sequence needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from predict.ledger.work import StepItem
from predict.run.training_run import TrainingRun
from predict.step.itemised.breakdown import P2P
from predict.step.itemised.items import CP, EP, TP
from predict.step.prediction import Prediction
from predict.workload.layers.layer import ACCUMULATION
from sampling.operators.attention import Attention
from sampling.operators.gemm import BatchedGemm
from sampling.operators.softmax import CausalSoftmax, MaskFill, Softmax

BY_TOKENS = (TP, CP, EP, P2P)
"""Headings of communication whose bytes grow with the tokens."""
BY_SQUARES = (Attention, BatchedGemm, CausalSoftmax, MaskFill, Softmax)
"""Operators whose work grows with the squares of the lengths."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddingBook:
    """The rows of a step beside the sequences in them."""

    padding: str
    lengths: str
    sequences: int
    truncated: int
    """Sequences that are cut to batch.seq_len."""
    tokens: int
    """Tokens of the sequences."""
    computed_tokens: int
    """Tokens of the rows."""
    token_waste: float
    """Share of the computed tokens that no sequence has."""
    attention_waste: float
    """Share of the squares that attention computes and no sequence needs."""
    wasted_us: float
    """Time of operators and messages on such tokens, on a GPU of the mean pipeline rank."""
    wasted_bytes: float
    """Activations at the worst rank's peak beyond those of rows with the mean sequences' tokens."""


def padding_book(prediction: Prediction, items: Iterable[StepItem]) -> PaddingBook | None:
    run = prediction.run
    if run.real is None:
        return None
    real, batch = run.real, run.batch
    attention_waste = _attention_waste(run)
    wasted_us = sum(
        each.time_us * (attention_waste if isinstance(each.item.call, BY_SQUARES) else real.waste)
        for each in items
        if _grows_with_tokens(each)
    )
    worst = prediction.memory.worst
    spare = 1 - real.tokens / (real.rows * real.longest_row)
    return PaddingBook(
        padding=batch.padding,
        lengths=batch.lengths,
        sequences=sum(count for _, count in real.counts),
        truncated=real.truncated,
        tokens=real.tokens,
        computed_tokens=real.rows * real.row_tokens,
        token_waste=real.waste,
        attention_waste=attention_waste,
        wasted_us=wasted_us,
        wasted_bytes=spare * (worst.activations + worst.working),
    )


def _attention_waste(run: TrainingRun) -> float:
    needed = sum(length * length * count for length, count in run.sequences.items())
    per_row = sum(like.squares for like in run.attended) or float(run.batch.seq_len**2)
    return max(0.0, 1 - needed / (run.batch.global_ * per_row))  # rounding aside, nothing where they are packed


def _grows_with_tokens(each: StepItem) -> bool:
    """Whether an item is an operator of a microbatch or a message of its tokens; gradients and the host's launches are not."""
    if each.at_end or each.item.call is None or each.item.heading == ACCUMULATION:
        return False
    return each.item.heading in BY_TOKENS if each.is_message else True
