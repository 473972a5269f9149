"""Phases of an RL step: each with its time, its FLOPs, and what bounds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from predict.interval import Interval
from predict.rl.terms import Factors
from predict.step.breakdown import add_up

NAMES = (
    "gen",
    "reward",
    "reward_model",
    "old_log_prob",
    "ref",
    "values",
    "adv",
    "update_critic",
    "update_actor",
    "update_weights",
    "checkpoint",
)
"""verl's names of the phases, in the order in which a colocated step runs them; `reward_model` is the part of its `reward` on GPUs."""
TRAINING = ("reward_model", "old_log_prob", "ref", "values", "adv", "update_critic", "update_actor", "checkpoint")
"""The phases on the trainer's GPUs."""
PASSES = ("reward_model", "old_log_prob", "ref", "values")
"""The passes of these without a backward."""
UPDATES = ("update_critic", "update_actor")
FRAMEWORK, OFFLOAD, DRIVER, SCORING, STORAGE, WAKE = "rl_framework", "offload", "driver", "scoring", "storage", "wake"
TRANSFER, TENSORS = "transfer", "tensors"
RESPONSES, TAIL = "responses", "tail"
"""Headings of phases beside those of a training step's ledger: what an RL framework takes over kernels alone, ways to the host and
back, the driver, scoring, writing, and engines waking up; the bytes of the weights and their handling by name; responses up to the last
tenth to end, and that tenth."""
NOTHING_US = 1e-6
"""Time that is rounding."""
STATED = frozenset({FRAMEWORK, OFFLOAD, DRIVER, SCORING, STORAGE, WAKE, TRANSFER, TENSORS})
"""Headings whose times follow from factors, priors, links' bandwidths and settings, and not from a kernel's price."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseMfu:
    """FLOPs of a phase by one convention, which counts a forward pass as a third of a training step, and their share of the peak."""

    flops: float | None
    mfu: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """One phase of a step."""

    name: str
    time: Interval
    gpus: int
    """GPUs that it runs on."""
    bound_by: str
    """Name of what most of its time goes to: compute, memory, communication, pipeline, host, offload, storage, long tail, reward or sync."""
    mfu: dict[str, PhaseMfu] = field(default_factory=dict)
    """Convention → its figures; none for a phase that multiplies nothing."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Heading → its µs; they add up to the median."""
    sources: Mapping[str, float] = field(default_factory=dict)
    """Source of its kernels' times (measured, extrapolated, transferred, analytic) → share; none for a phase without kernels."""


def in_order(phases: Iterable[Phase]) -> tuple[Phase, ...]:
    """The phases in the order of NAMES."""
    return tuple(sorted(phases, key=lambda phase: NAMES.index(phase.name)))


def with_factors(phase: Phase, factors: Factors) -> Phase:
    """The phase as its factor has it, MFU included; `phase` has none yet."""
    kernels = {"gen": factors.rollout} | dict.fromkeys(UPDATES, factors.update) | dict.fromkeys(PASSES, factors.passes)
    if phase.name not in kernels:
        return phase
    factor = kernels[phase.name]
    mfu = {
        name: replace(figure, mfu=None if figure.mfu is None else figure.mfu / factor)
        for name, figure in phase.mfu.items()
    }
    parts = plus(phase.parts, {FRAMEWORK: (factor - 1) * phase.time.median_us})
    return replace(phase, time=phase.time.scaled(factor).widened(factors.half_width), mfu=mfu, parts=parts)


def plus(parts: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """The sum of two ledgers, heading by heading, without headings of no time."""
    return {name: time_us for name, time_us in add_up([parts, more]).items() if abs(time_us) > NOTHING_US}
