"""The memory of a run and whether it fits: the bytes of each pipeline rank by term, the worst rank, and the device's capacity.

    peak of a rank = weights + optimizer + gradients so far + live activations + the action in progress + buffers
                     + the allocator's slack + context

The live activations are those of the run's own schedule. Bytes are per GPU of the pipeline rank.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

from predict.memory.activations import Activations, ChunkCounter, ChunkMemory
from predict.memory.buffers import device_buffers, left_between_steps, slack_of, tensor_buffers
from predict.memory.peak import (
    IN_CLOSED_FORM,
    Peak,
    PeakMoment,
    RankBaseline,
    RankMemory,
    peak_in_closed_form,
    peak_of_order,
    trace,
)
from predict.memory.state import Unit, chunks_of_ranks, frozen_beside, update_bytes, weights_of_chunks
from predict.run.frameworks import memory_profile_of
from predict.run.memory_profile import Buffer, MemoryProfile
from predict.run.plan import BEST
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from predict.schedules.engine.timing import Timeline
from regressors.features.arrays import Floats
from sampling.errors import ConfigError
from sampling.hardware.cluster import Gpu
from sampling.units import GIB

if TYPE_CHECKING:
    from predict.schedules.engine.order import Folded


DRIVER_SHARE = 0.0052
"""Share of a GPU's memory that its driver keeps: nvidia-smi shows 81,559 of 81,920 MiB on an H100, 183,359 of 184,320 on a B200."""
HOST_RESERVE = 0.1
"""Share of a host's memory that its system, the data loaders and the processes themselves take; assumed."""
SAFETY_MARGIN = 0.05
"""Share of the expected peak by which the terms themselves may be off, upwards in 5 % of runs and downwards in as many."""

WORST_OF = 2
"""Independent peaks of which the largest must fit, as ranks and steps differ and the fullest decides: with one, plans of five sweeps ran
half as often as predicted between 5 and 95 %, with two as often (`predict validate ranking` and `memory`, docs/explanation/accuracy.md)."""

Verdict = Literal["FITS", "AT RISK", "OOM"]
VERDICTS: tuple[Verdict, ...] = ("FITS", "AT RISK", "OOM")
LIKELY, UNLIKELY = 0.95, 0.05
Z95 = NormalDist().inv_cdf(LIKELY)
Z_OF_LARGEST = NormalDist().inv_cdf(LIKELY ** (1 / WORST_OF))


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """The memory of a run's pipeline ranks in bytes per GPU; the worst rank decides."""

    run: TrainingRun
    memory_profile: MemoryProfile
    ranks: tuple[RankMemory, ...]
    buffers: tuple[Buffer, ...]
    """Buffers of the worst rank, including those outside the allocator."""
    units: tuple[tuple[Unit, int, Activations], ...]
    """Each distinct unit of the model, and how many of it all pipeline ranks hold together."""
    capacity_bytes: float
    safety_margin: float = SAFETY_MARGIN
    host_bytes: float = 0.0
    """Bytes of the worst rank that lie in the host's memory."""
    disk_bytes: float = 0.0
    """Bytes of the worst rank that lie on the host's disks."""

    @property
    def host_capacity_bytes(self) -> float:
        """A GPU's share of the host's memory, of which the system keeps some."""
        return self.run.cluster.gpu.of_host.memory_gib * GIB * (1 - HOST_RESERVE)

    @property
    def fits_host(self) -> bool:
        """Whether what is offloaded fits the host's memory."""
        return self.host_bytes <= self.host_capacity_bytes

    @cached_property
    def worst(self) -> RankMemory:
        return max(self.ranks, key=lambda rank: rank.peak)

    @property
    def point_bytes(self) -> float:
        """The expected peak."""
        return self.worst.peak

    @property
    def upper_bytes(self) -> float:
        """The peak that 95 % of runs stay below: the expected one with its safety margin and the widths of buffers and slack, which
        are independent of each other."""
        return upper_of(self.point_bytes, self.safety_margin * self.point_bytes, self.worst.width)

    @property
    def headroom_bytes(self) -> float:
        """Capacity minus expected peak; negative where the run does not fit."""
        return self.capacity_bytes - self.point_bytes

    @property
    def fits_probability(self) -> float:
        """The probability that the peak stays within the capacity; none where the host's memory does not suffice."""
        return self.fits_host * probability_of(self.point_bytes, self.upper_bytes, self.capacity_bytes)

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.point_bytes, self.upper_bytes, self.capacity_bytes) if self.fits_host else "OOM"

    @property
    def feasible(self) -> bool:
        """Whether the expected peak fits, on the device and on its host."""
        return self.point_bytes <= self.capacity_bytes and self.fits_host


def upper_of(point_bytes: float, *widths_bytes: float) -> float:
    """The peak that 95 % of runs stay below, whose largest of WORST_OF peaks it is, where 95 % of single ones are above the expected one by
    less than these independent widths together."""
    return point_bytes + Z_OF_LARGEST / Z95 * math.hypot(*widths_bytes)


def probability_of(point_bytes: float, upper_bytes: float, capacity_bytes: float) -> float:
    """The probability that the largest of WORST_OF peaks stays within the capacity, where that of 95 % of runs stays below the upper
    bound and half of single peaks below the point."""
    if upper_bytes <= point_bytes:
        return float(point_bytes <= capacity_bytes)
    one = NormalDist(point_bytes, (upper_bytes - point_bytes) / Z_OF_LARGEST)
    return float(one.cdf(capacity_bytes) ** WORST_OF)


def verdict_of(point_bytes: float, upper_bytes: float, capacity_bytes: float) -> Verdict:
    """FITS with a probability of 95 % or more, which is where the upper bound fits, OOM with one of 5 % or less."""
    if upper_bytes <= capacity_bytes:
        return "FITS"
    return "OOM" if probability_of(point_bytes, upper_bytes, capacity_bytes) <= UNLIKELY else "AT RISK"


def capacity_bytes(gpu: Gpu) -> float:
    """Bytes available to the processes on one device, or on one rank's share of a CPU machine."""
    if gpu.kind == "cpu":
        return gpu.memory_gib * GIB * max(1, gpu.threads)
    return gpu.memory_gib * GIB * (1 - DRIVER_SHARE)


def memory_of(
    run: TrainingRun, timeline: Timeline | None = None, *, safety_margin: float = SAFETY_MARGIN
) -> MemoryEstimate:
    """The memory of a run, replayed over the timeline of its step, so that each peak has a time.

    Without a timeline: in closed form for 1F1B and GPipe, otherwise by the schedule's order, which a solved schedule takes for
    equal stage times. ConfigError for the schedule `best`, which only times can choose.
    """
    if run.plan.schedule == BEST:
        raise ConfigError("plan.schedule: best is chosen by time; use the memory of a prediction, or name a schedule")
    return MemoryModel(run).estimate(timeline, safety_margin)


def forward_bytes(run: TrainingRun) -> float:
    """Bytes that a microbatch's forward holds at once on the fullest pipeline rank, beside state and buffers, where no backward follows."""
    model = MemoryModel(run)
    return max(model.counter.forward_alone(chunk) for rank in model.units for chunk in rank)


class MemoryModel:
    """The units, chunks and buffers of a run's pipeline ranks, from which an order of actions makes peaks."""

    def __init__(self, run: TrainingRun) -> None:
        self._given = run
        self.run = run = run.with_longest_row
        self.profile = memory_profile_of(run)
        self.units = chunks_of_ranks(run)
        self.counter = ChunkCounter(run, self.profile)
        distinct = {chunk: self.counter.chunk(chunk) for chunk in {chunk for rank in self.units for chunk in rank}}
        self.chunks = tuple(tuple(distinct[chunk] for chunk in rank) for rank in self.units)
        self._outside_allocator = device_buffers(run, self.profile)

    def estimate(self, timeline: Timeline | None, safety_margin: float) -> MemoryEstimate:
        baselines = [self.baseline(rank) for rank in range(self.run.plan.pp)]
        ranks = tuple(
            baseline.at(peak, _moment(peak, baseline.rank, timeline))
            for baseline, peak in zip(baselines, self._peaks(timeline), strict=True)
        )
        worst = max(ranks, key=lambda rank: rank.peak)
        counts = Counter(unit for rank in self.units for chunk in rank for unit in chunk.units)
        return MemoryEstimate(
            run=self._given,
            memory_profile=self.profile,
            ranks=ranks,
            buffers=(*baselines[worst.rank].tensors, *self._outside_allocator),
            units=tuple((unit, count, self.counter.unit(unit).activations) for unit, count in counts.items()),
            capacity_bytes=capacity_bytes(self.run.cluster.gpu),
            safety_margin=safety_margin,
            host_bytes=self._host_bytes(baselines, ranks, timeline),
            disk_bytes=max(each.state.on_disk for each in baselines),
        )

    def _host_bytes(
        self, baselines: Sequence[RankBaseline], ranks: Sequence[RankMemory], timeline: Timeline | None
    ) -> float:
        """Bytes of the fullest rank in the host's memory: its state, and what its peak would have of activations if none waited there."""
        waiting = [0.0] * len(ranks)
        if self.run.offload.activation_share:
            kept = MemoryModel(replace(self._given, offload=replace(self.run.offload, activation_share=0.0)))
            peaks = zip(kept._peaks(timeline), ranks, strict=True)
            waiting = [max(0.0, peak.at.activations - rank.activations) for peak, rank in peaks]
        return max(each.state.on_host + there for each, there in zip(baselines, waiting, strict=True))

    def baseline(self, rank: int) -> RankBaseline:
        run, profile, chunks = self.run, self.profile, self.units[rank]
        units = [self.counter.unit(unit) for chunk in chunks for unit in chunk.units]
        state = sum((unit.state for unit in units), frozen_beside(run, profile, rank))
        shapes = frozenset().union(*{unit.linear_shapes for unit in units})
        slack, slack_width = slack_of(run, profile)
        has_head = any(unit.role == "head" and not unit.of_tower for chunk in chunks for unit in chunk.units)
        received = sum(chunk.units[0].role != "embedding" for chunk in chunks)
        return RankBaseline(
            rank=rank,
            layers=sum(chunk.layers for chunk in chunks),
            elements=weights_of_chunks(chunks).total,
            state=state,
            resident_gradients=state.gradients if profile.gradient_buffers else 0.0,
            update_working=update_bytes(run, profile, state),
            tensors=tensor_buffers(run, profile, shapes, state, has_head=has_head),
            device=self._outside_allocator,
            left_behind=left_between_steps(run, profile, state, received),
            graphed_share=_graphed_share(self.chunks[rank]),
            slack_share=slack,
            slack_width=slack_width,
            slack_of_state=profile.fragmentation is None,
        )

    def _peaks(self, timeline: Timeline | None) -> list[Peak]:
        plan, schedule, microbatches = self.run.plan, self.run.schedule, self.run.microbatches
        if timeline is None and schedule.name in IN_CLOSED_FORM:
            return [
                peak_in_closed_form(schedule.name, chunk, ranks=plan.pp, rank=rank, microbatches=microbatches)
                for rank, (chunk,) in enumerate(self.chunks)
            ]
        if timeline is not None:
            order = timeline.order
        else:
            limit = plan.memory_limit or None
            order = registry.order(
                schedule, ranks=plan.pp, chunks=plan.vpp, microbatches=microbatches, memory_limit=limit
            )
        return [
            _in_whole(peak_of_order(row, chunks), order.folded, rank)
            for rank, (row, chunks) in enumerate(zip(order.core.rows, self.chunks, strict=True))
        ]


def _graphed_share(chunks: Sequence[ChunkMemory]) -> float:
    kept = sum(chunk.kept for chunk in chunks)
    return sum(chunk.in_graphs for chunk in chunks) / kept if kept else 0.0


def _in_whole(peak: Peak, form: Folded | None, rank: int) -> Peak:
    """The peak of a folded order's rank from the peak of its shorter form."""
    if form is None or peak.index < form.ends[rank]:
        return peak
    later = peak.action._replace(microbatch=peak.action.microbatch + form.more * form.together)
    return replace(peak, action=later, index=peak.index + form.more * form.lengths[rank])


def _moment(peak: Peak, rank: int, timeline: Timeline | None) -> PeakMoment:
    if timeline is None:
        return PeakMoment(action=str(peak.action))
    start_us, end_us = timeline.when(rank, peak.index)
    return PeakMoment(action=str(peak.action), start_us=start_us, end_us=end_us)


STACKED_TERMS = ("device", "slack", "buffers", "parameters", "optimizer", "gradients", "activations", "working")
"""The terms from bottom to top: first what exists throughout the step, last what comes and goes."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RankTimeline:
    """Bytes by term in consecutive spans of one rank's step: before the first action, during and between actions, and last in
    the optimizer's step."""

    rank: int
    start_us: Floats
    end_us: Floats
    terms: dict[str, Floats]

    @property
    def total(self) -> Floats:
        total: Floats = np.sum(list(self.terms.values()), axis=0)
        return total


def memory_timeline(run: TrainingRun, timeline: Timeline, step_us: float) -> tuple[RankTimeline, ...]:
    """The pipeline ranks through a step of `step_us` whose pipeline has this timeline. The highest point of each is its peak."""
    model = MemoryModel(run)
    return tuple(_rank_timeline(model, timeline, step_us, rank) for rank in range(run.plan.pp))


def _rank_timeline(model: MemoryModel, timeline: Timeline, step_us: float, rank: int) -> RankTimeline:
    row = timeline.order.rows[rank]
    actions = trace(row, model.chunks[rank])
    baseline = model.baseline(rank)
    none = np.zeros(len(row))
    activations = _spans(0.0, actions.activations, actions.activations_after, 0.0)
    gradients = _spans(0.0, actions.gradients, actions.gradients_after, baseline.late_gradients)
    working = _spans(0.0, actions.working, none, baseline.update_working)
    start, end = timeline.start[rank], timeline.end[rank]
    edges = np.concatenate([[0.0], np.stack([start, end], axis=1).ravel(), [max(step_us, end[-1])]])
    # the optimizer's step follows the last action at once
    chosen = np.arange(len(activations)) != 2 * len(row)
    activations, gradients, working = (each[chosen] for each in (activations, gradients, working))
    allocated = baseline.allocated + activations + gradients + working
    constant = np.ones(len(allocated))
    terms = {
        "device": constant * baseline.device_bytes,
        "slack": baseline.slack_share * allocated,
        "buffers": constant * baseline.buffer_bytes,
        "parameters": constant * baseline.state.parameters,
        "optimizer": constant * baseline.state.optimizer,
        "gradients": baseline.resident_gradients + gradients,
        "activations": activations,
        "working": working,
    }
    return RankTimeline(rank=rank, start_us=edges[:-1], end_us=edges[1:], terms=terms)


def _spans(first: float, during: Floats, after: Floats, last: float) -> Floats:
    """Values before the actions, during and after each, and in the optimizer's step."""
    return np.concatenate([[first], np.stack([during, after], axis=1).ravel(), [last]])
