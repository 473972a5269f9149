"""The schedule book: how a step's batch is divided, and when each pipeline rank works and waits, by the timeline."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from predict.ledger.compute import StepItem
from predict.run.training_run import TrainingRun
from predict.step.breakdown import CP, EP, P2P, TP
from predict.step.prediction import Prediction
from predict.step.priced_rank import stragglers_factor
from predict.workload.layer import ACCUMULATION
from sampling.operators.attention import Attention
from sampling.operators.gemm import BatchedGemm
from sampling.operators.memory_bound import CausalSoftmax, MaskFill, Softmax

BY_TOKENS = (TP, CP, EP, P2P)
"""Headings of communication whose bytes grow with the tokens."""
BY_SQUARES = (Attention, BatchedGemm, CausalSoftmax, MaskFill, Softmax)
"""Operators whose work grows with the squares of the lengths."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddingBook:
    """The rows of a step, in addition to the sequences in them."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTime:
    """The time of one pipeline rank, in µs, from the start of the step to the end of its slowest rank."""

    rank: int
    busy_us: float
    """Its forwards and backwards."""
    fill_us: float
    """Until its first action."""
    queue_us: float
    """Time between its actions: waiting for other ranks, or for its own sends."""
    end_us: float
    """Gradients that nothing hides, the optimizer, and updated weights."""
    drain_us: float
    """Time between its own end and the slowest rank's."""

    @property
    def idle_us(self) -> float:
        return self.fill_us + self.queue_us + self.drain_us


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleBook:
    """Counts of the batch, and the waiting of the ranks."""

    schedule: str
    global_batch: int
    """Sequences of a step as computed: padded or packed rows, where lengths are given."""
    micro_batch: int
    microbatches: int
    """Microbatches of one replica."""
    row_tokens: int
    """Tokens of one row."""
    ranks: tuple[RankTime, ...]
    sends_us: float
    """Waiting that sends between the ranks cause."""
    padding: PaddingBook | None
    """Padding and packing; None where every sequence is a row."""
    stragglers_us: float
    """Waiting for the slowest of many GPUs."""
    overhead_us: float
    """Time that a step takes in addition to its work, as the run states it."""

    @property
    def idle_us(self) -> float:
        """Waiting of the mean rank."""
        return fmean(rank.idle_us for rank in self.ranks)

    @property
    def bubble_us(self) -> float:
        """Waiting of the mean rank that is not for sends."""
        return max(0.0, self.idle_us - self.sends_us)  # the two are summed in other orders, and round differently

    @property
    def queue_us(self) -> float:
        """Waiting of the mean rank between its actions."""
        return fmean(rank.queue_us for rank in self.ranks)


def schedule_book(prediction: Prediction, items: Iterable[StepItem]) -> ScheduleBook:
    run = prediction.run
    overhead_us = float(run.execution.beside_work_us)
    return ScheduleBook(
        schedule=run.plan.schedule,
        global_batch=run.batch.global_,
        micro_batch=run.batch.micro,
        microbatches=run.microbatches,
        row_tokens=run.batch.seq_len,
        ranks=_ranks(prediction),
        sends_us=prediction.exposed_p2p_us,
        padding=padding_book(prediction, items),
        stragglers_us=(prediction.median_us - overhead_us) * (1 - 1 / stragglers_factor(run)),
        overhead_us=overhead_us,
    )


def _ranks(prediction: Prediction) -> tuple[RankTime, ...]:
    """The waiting of each rank, gap by gap."""
    timeline = prediction.timeline
    ends_us = [float(end) + rank.after_us for end, rank in zip(timeline.rank_ends, prediction.ranks, strict=True)]
    found = []
    for place, (rank, end_us) in enumerate(zip(prediction.ranks, ends_us, strict=True)):
        start, end = timeline.start[place], timeline.end[place]
        found.append(
            RankTime(
                rank=place,
                busy_us=float((end - start).sum()),
                fill_us=float(start[0]),
                queue_us=max(0.0, float((start[1:] - end[:-1]).sum())),
                end_us=rank.after_us,
                drain_us=max(ends_us) - end_us,
            )
        )
    return tuple(found)
