"""The books of an RL step, apart from its phases and its memory: the lanes of trainer and engines, communication, schedule, and what
the times rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from predict.config.document import Config
from predict.ledger.books import SOURCES, Ledger, ledger_of
from predict.ledger.waterfall import COMMUNICATION, COMPUTE, IDLE, MEMORY, class_of
from predict.rl.phases import (
    FACTORS,
    OFFLOAD,
    RESPONSES,
    STATED,
    TAIL,
    TENSORS,
    TERMS,
    TRAINING,
    TRANSFER,
    Factors,
    Phase,
    RlTerm,
    moved_in,
    sent_dtype,
    tensor_count,
)
from predict.rl.section import COLOCATED
from predict.rl.step import RlStep, rl_step
from regressors.bank.times import shares_of
from sampling.errors import ConfigError
from sampling.hardware.cluster import DTYPE_BYTES

ALL, TRAINER, ENGINES = "all GPUs", "trainer", "engines"
WAITING = "waiting"


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A phase, or waiting, on a lane. Times are µs from the end of the last sync of the weights."""

    lane: str
    name: str
    start_us: float
    time_us: float

    @property
    def end_us(self) -> float:
        return self.start_us + self.time_us


def spans(step: RlStep) -> tuple[Span, ...]:
    """The spans of one step. Waiting for the other side stands in one piece: before training, and after generation."""
    if step.rl.section.placement == COLOCATED:
        return tuple(_in_turn(ALL, {phase.name: phase.time.median_us for phase in step.phases}))
    sync = {"update_weights": step.sync.median_us}
    training = {phase.name: phase.time.median_us for phase in step.phases if phase.name in TRAINING}
    generating = {phase.name: phase.time.median_us for phase in step.phases if phase.name not in (*TRAINING, *sync)}
    return (
        *_in_turn(TRAINER, {WAITING: step.wait_gen_us, **training, **sync}),
        *_in_turn(ENGINES, {**generating, WAITING: step.idle_gen_us, **sync}),
    )


def _in_turn(lane: str, times_us: Mapping[str, float]) -> Iterator[Span]:
    start_us = 0.0
    for name, time_us in times_us.items():
        if time_us:
            yield Span(lane=lane, name=name, start_us=start_us, time_us=time_us)
        start_us += time_us


COMMUNICATED, WAITED = "communication", "waiting"
CLASSES = (COMPUTE, MEMORY, COMMUNICATED, WAITED)
"""Classes of headings over all phases; `waiting` is for the pipeline, the host, the driver, storage and what a framework adds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RlLedger:
    """The books of one predicted step."""

    step: RlStep

    @property
    def accounts_us(self) -> dict[str, dict[str, float]]:
        """Lane → phase, or waiting → µs; each lane adds up to the step."""
        found: dict[str, dict[str, float]] = {}
        for span in spans(self.step):
            found.setdefault(span.lane, {})[span.name] = span.time_us
        return found

    @property
    def by_class_us(self) -> dict[str, float]:
        """Class → µs of all phases, each on its own GPUs."""
        found = dict.fromkeys(CLASSES, 0.0)
        for phase in self.step.phases:
            for heading, time_us in phase.parts.items():
                found[class_of_heading(heading)] += time_us
        return found

    @property
    def by_source_us(self) -> dict[str, float]:
        """Source → µs of all phases; `assumed` are factors, priors and settings."""
        found = dict.fromkeys(SOURCES, 0.0)
        for phase in self.step.phases:
            stated_us = _stated_us(phase)
            found["assumed"] += stated_us
            for source, share in phase.sources.items():
                found[source] += share * (phase.time.median_us - stated_us)
        return found

    @property
    def sources(self) -> dict[str, float]:
        """Source → share of the time of all phases."""
        return shares_of(self.by_source_us)

    @property
    def communication_us(self) -> dict[tuple[str, str], float]:
        """Heading of communication and phase → µs that the phase waits for it, the longest first."""
        found = {
            (heading, phase.name): time_us
            for phase in self.step.phases
            for heading, time_us in phase.parts.items()
            if class_of_heading(heading) == COMMUNICATED
        }
        return dict(sorted(found.items(), key=lambda entry: -entry[1]))

    @property
    def weights_bytes(self) -> float:
        """Bytes of the model that cross to the engines."""
        rl = self.step.rl
        return rl.base.model.parameters * DTYPE_BYTES[sent_dtype(rl)]

    @property
    def weight_tensors(self) -> int:
        return tensor_count(self.step.rl.base.model)

    @property
    def factors(self) -> Factors | None:
        """The factors of RL frameworks; None in plain torch, which has none."""
        return None if self.step.rl.in_plain_torch else FACTORS

    @property
    def terms(self) -> Mapping[str, RlTerm]:
        """The priors that this step has."""
        if self.step.rl.in_plain_torch:
            return {}
        used = {
            "tensors": ("tensor_s",),
            "buckets": ("gather_s",),
            "host": ("bucket_gb_per_s",),
        }[self.step.rl.section.weight_sync.method]
        return {name: TERMS[name] for name in ("dispatch_s", "padded_token_us", *used)}

    @property
    def moved_in(self) -> str:
        """The phase that waits for the driver's sending of the samples."""
        return moved_in(self.step.rl)

    @cached_property
    def optimizer_step(self) -> Ledger | None:
        """The five books of one optimizer step of the actor; None for a model with layers that no convention counts."""
        try:
            return ledger_of(self.step.actor)
        except ConfigError:
            return None


def rl_ledger(config: Config, overrides: Sequence[str] = ()) -> RlLedger:
    """The books of an RL step: `.accounts_us` of trainer and engines, `.step.phases` with their parts, and what the times rest on.
    ConfigError and InfeasibleError as from `rl_step`."""
    return RlLedger(step=rl_step(config, overrides))


def _stated_us(phase: Phase) -> float:
    """Time of a phase that no kernel's price says."""
    if not phase.sources:
        return phase.time.median_us
    return sum(time_us for heading, time_us in phase.parts.items() if heading in STATED)


def class_of_heading(heading: str) -> str:
    """The class of a phase's heading. Decoding reads weights and cache, so that memory bounds it."""
    if heading in (RESPONSES, TAIL):
        return MEMORY
    if heading in (OFFLOAD, TRANSFER, TENSORS):
        return COMMUNICATED
    if heading in STATED:
        return WAITED
    found = class_of(heading)
    if found in COMMUNICATION:
        return COMMUNICATED
    return WAITED if found in IDLE else found
