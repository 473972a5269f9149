"""Whether a run fits: each pipeline rank's bytes by term, the worst of them, and the device's capacity.

    peak of a rank = weights + optimizer + gradients so far + live activations + the action in progress + buffers
                     + the allocator's slack + context

The live activations are those of the run's own schedule. Bytes are those of one GPU of the pipeline rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from predict.memory.buffers import RESERVED_WIDTH, device_buffers, reserved_share, tensor_buffers
from predict.memory.chunk import ChunkBytes, ChunkCounter
from predict.memory.held import HeldChunk, Unit, held_by_ranks, weights_of_rank
from predict.memory.memory_profile import Buffer, MemoryProfile
from predict.memory.peak import IN_CLOSED_FORM, Peak, peak_in_closed_form, peak_of_order
from predict.memory.profiles import memory_profile_of
from predict.memory.rank import RankMemory, RankParts, When
from predict.memory.state import state_of_rank, update_bytes
from predict.memory.unit_activations import ActivationsOfUnits, Source, UnitActivations
from predict.run.plan import BEST
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from sampling.errors import ConfigError
from sampling.hardware.cluster import Gpu

if TYPE_CHECKING:
    from predict.schedules.timeline import Timeline
    from predict.step.estimate import StepEstimate

GIB = 2**30
DRIVER_SHARE = 0.0052
"""Of a GPU's memory that its driver keeps: 81,559 of 81,920 MiB are left on an H100, 183,359 of 184,320 on a B200 (nvidia-smi)."""
SAFETY_MARGIN = 0.05
"""Of the point, for what the terms themselves miss."""

Verdict = Literal["FITS", "AT RISK", "OOM"]


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Of the run's pipeline ranks, `worst` decides. `point_bytes` is expected, `upper_bytes` with all that is uncertain."""

    run: TrainingRun
    profile: MemoryProfile
    ranks: tuple[RankMemory, ...]
    buffers: tuple[Buffer, ...]
    """Of the worst rank, those of its device among them."""
    units: tuple[tuple[Unit, int, UnitActivations], ...]
    """Each distinct unit of the model with how many there are of it on all pipeline ranks."""
    capacity_bytes: float
    safety_margin: float = SAFETY_MARGIN

    @cached_property
    def worst(self) -> RankMemory:
        return max(self.ranks, key=lambda rank: rank.peak)

    @property
    def point_bytes(self) -> float:
        return self.worst.peak

    @property
    def upper_bytes(self) -> float:
        """The point, its safety margin and the widths of buffers and slack, which are independent of each other."""
        return self.point_bytes + math.hypot(self.safety_margin * self.point_bytes, self.worst.width)

    @property
    def headroom_bytes(self) -> float:
        """What is left beside the point; negative where it does not fit."""
        return self.capacity_bytes - self.point_bytes

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.point_bytes, self.upper_bytes, self.capacity_bytes)


def verdict_of(point_bytes: float, upper_bytes: float, capacity_bytes: float) -> Verdict:
    """OOM where the point does not fit, AT RISK where only the upper bound does not."""
    if point_bytes > capacity_bytes:
        return "OOM"
    return "AT RISK" if upper_bytes > capacity_bytes else "FITS"


def capacity_bytes(gpu: Gpu) -> float:
    """What processes on one device, or on one rank's share of a CPU machine, can have."""
    if gpu.kind == "cpu":
        return gpu.memory_gib * GIB * max(1, gpu.threads)
    return gpu.memory_gib * GIB * (1 - DRIVER_SHARE)


def memory_of(
    run: TrainingRun, *, safety_margin: float = SAFETY_MARGIN, activations: Source | None = None
) -> MemoryEstimate:
    """Without the time of anything: in closed form for 1F1B and GPipe, else by the order of the schedule; one that is solved
    for its stage times is solved for equal ones. ConfigError for the schedule `best`, which only times can choose."""
    if run.plan.schedule == BEST:
        raise ConfigError(
            "plan.schedule: best is chosen by time; use memory_of_step of an estimate, or name a schedule"
        )
    return Counting(run, activations).estimate(None, safety_margin)


def memory_of_step(
    step: StepEstimate, *, safety_margin: float = SAFETY_MARGIN, activations: Source | None = None
) -> MemoryEstimate:
    """Of an estimated step: by its own timeline, with the times of the peaks."""
    return Counting(step.run, activations).estimate(step.timeline, safety_margin)


class Counting:
    """What the ranks of one run hold, before it is known when."""

    def __init__(self, run: TrainingRun, source: Source | None) -> None:
        self.run = run
        self.profile = memory_profile_of(run)
        self.activations = ActivationsOfUnits(run, self.profile, source)
        self.held = held_by_ranks(run)
        counter = ChunkCounter(run, self.profile, self.activations)
        known: dict[HeldChunk, ChunkBytes] = {}
        for chunk in (chunk for of_rank in self.held for chunk in of_rank):
            if chunk not in known:
                known[chunk] = counter.of_chunk(chunk)
        self.chunks = tuple(tuple(known[chunk] for chunk in of_rank) for of_rank in self.held)
        self.on_device = device_buffers(run, self.profile)

    def estimate(self, timeline: Timeline | None, safety_margin: float) -> MemoryEstimate:
        parts = [self.parts(rank) for rank in range(self.run.plan.pp)]
        peaks = self.peaks(timeline)
        ranks = tuple(of.at(peak, _when(peak, of.rank, timeline)) for of, peak in zip(parts, peaks, strict=True))
        worst = max(ranks, key=lambda rank: rank.peak)
        return MemoryEstimate(
            run=self.run,
            profile=self.profile,
            ranks=ranks,
            buffers=(*parts[worst.rank].tensors, *self.on_device),
            units=self._units(),
            capacity_bytes=capacity_bytes(self.run.cluster.gpu),
            safety_margin=safety_margin,
        )

    def parts(self, rank: int) -> RankParts:
        run, profile, held = self.run, self.profile, self.held[rank]
        state = state_of_rank(run, profile, held)
        slack = reserved_share(run, profile)
        return RankParts(
            rank=rank,
            layers=sum(chunk.layers for chunk in held),
            elements=weights_of_rank(held).total,
            state=state,
            resident_gradients=state.gradients if profile.gradient_buffers else 0.0,
            update_working=update_bytes(run, profile, state),
            tensors=tensor_buffers(run, profile, held, state),
            device=self.on_device,
            slack_share=slack,
            slack_width=RESERVED_WIDTH if slack else 0.0,
        )

    def peaks(self, timeline: Timeline | None) -> list[Peak]:
        plan, name = self.run.plan, self.run.plan.schedule
        if timeline is None and name in IN_CLOSED_FORM:
            return [
                peak_in_closed_form(name, chunk, ranks=plan.pp, rank=rank, microbatches=self.run.microbatches)
                for rank, (chunk,) in enumerate(self.chunks)
            ]
        schedule = registry.get(name)
        if timeline is not None:
            order = timeline.order
        else:
            order = registry.order(
                name,
                ranks=plan.pp,
                chunks=plan.vpp,
                microbatches=self.run.microbatches,
                memory_limit=plan.memory_limit or None,
            )
        return [
            peak_of_order(row, chunks, schedule.released_by_b)
            for row, chunks in zip(order.rows, self.chunks, strict=True)
        ]

    def _units(self) -> tuple[tuple[Unit, int, UnitActivations], ...]:
        counts: dict[Unit, int] = {}
        for unit in _all_units(self.held):
            counts[unit] = counts.get(unit, 0) + 1
        return tuple((unit, count, self.activations.of_unit(unit)) for unit, count in counts.items())


def _all_units(held: Iterable[Iterable[HeldChunk]]) -> Iterable[Unit]:
    return (unit for of_rank in held for chunk in of_rank for unit in chunk.units)


def _when(peak: Peak, rank: int, timeline: Timeline | None) -> When:
    if timeline is None:
        return When(action=str(peak.action))
    return When(
        action=str(peak.action),
        start_us=float(timeline.start[rank][peak.index]),
        end_us=float(timeline.end[rank][peak.index]),
    )
