"""The driver's share of a step: it starts the phases, and sends the samples, as they are padded, to the trainer's workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from predict.interval import Interval, sum_of_phases
from predict.rl.phase import DRIVER, Phase, plus
from predict.rl.run.config import RlRun
from predict.rl.terms import TERMS
from sampling.units import SECOND_US


def adv_phase(rl: RlRun) -> Phase:
    """Advantages, and what the driver does between phases."""
    time = TERMS["dispatch_s"].times(SECOND_US)
    gpus, parts = rl.base.cluster.world_size, {DRIVER: time.median_us}
    return Phase(name="adv", time=time, gpus=gpus, bound_by="host", parts=parts)


def moved_in(rl: RlRun) -> str:
    """The phase in which the driver's moving of samples is timed: the first on the trainer's GPUs that all samples go to."""
    return "old_log_prob" if rl.section.old_log_prob else "update_actor"


def moving_time(rl: RlRun) -> Interval:
    """The time in which all samples, padded, reach the workers."""
    return TERMS["padded_token_us"].times(rl.section.samples * rl.section.longest)


def with_moving(rl: RlRun, phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """The phases with the moving of samples in the one that waits for it."""
    waits, moving = moved_in(rl), moving_time(rl)
    return tuple(_longer(phase, moving) if phase.name == waits else phase for phase in phases)


def _longer(phase: Phase, moving: Interval) -> Phase:
    bound_by = "host" if moving.median_us > phase.time.median_us else phase.bound_by
    parts = plus(phase.parts, {DRIVER: moving.median_us})
    return replace(phase, time=sum_of_phases([phase.time, moving]), bound_by=bound_by, parts=parts)
