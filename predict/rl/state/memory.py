"""Memory of one GPU in an RL step: the engine's weights and cache beside the trainer's state, and what offload moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from predict.rl.run.section import COLOCATED
from predict.rl.state.offload import moved_bytes, moved_time
from predict.step.interval import Interval

if TYPE_CHECKING:
    from predict.rl.generation.rollout import Rollout
    from predict.rl.run.config import RlRun
    from predict.run.training_run import TrainingRun
    from predict.step.prediction import Prediction

TERMS = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "buffers",
    "other_models",
    "engine_weights",
    "kv_cache",
    "engine_reserved",
)
"""Terms that add up to a moment's peak. `buffers` are the trainer's, its allocator's slack and context included; `other_models` the
weights of reference and reward model, and the critic's with its optimizer; `kv_cache` all blocks, used or not."""
STATE = ("parameters", "optimizer")
GENERATING, UPDATING = "gen", "update_actor"


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """Bytes of one GPU in one phase."""

    phase: str
    terms: Mapping[str, float]
    """By the names of TERMS; those that are 0 are left out."""

    @property
    def peak(self) -> float:
        return sum(self.terms.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """State that a phase fetches from the host and puts back."""

    phase: str
    state: str
    bytes_moved: float
    """Both ways."""
    time: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class RlMemory:
    """The two moments of a step in which a GPU holds the most, and the ways of what is offloaded."""

    generating: Moment
    updating: Moment
    capacity: float
    kv_used: float
    """Bytes of the cache that hold keys and values at most."""
    moved: tuple[Moved, ...]

    @property
    def fits(self) -> bool:
        return max(self.generating.peak, self.updating.peak) <= self.capacity


def memory_of(rl: RlRun, rollout: Rollout, actor: Prediction) -> RlMemory:
    """The memory of a step whose engine and actor are known.

    An engine that shares its GPU sleeps during training: weights and cache are freed, and what it reserves for graphs and
    communication stays. State that is not offloaded stays during generation.
    """
    section, worst, room = rl.section, actor.memory.worst, rollout.room
    colocated = section.placement == COLOCATED
    kept = {name: float(getattr(worst, name)) for name in STATE if name not in section.offload}
    context = {"buffers": worst.device}
    training = {
        "parameters": worst.parameters,
        "gradients": worst.gradients,
        "optimizer": worst.optimizer,
        "activations": worst.activations + worst.working,
        "buffers": worst.buffers + worst.slack + worst.device,
        "other_models": _other_models(rl, kept),
    }
    engine = {"engine_weights": room.weights, "kv_cache": room.blocks * room.block, "engine_reserved": room.reserved}
    beside_engine = kept | context | {"other_models": training["other_models"]} if colocated else {}
    asleep = {"engine_reserved": room.reserved} if colocated else {}
    return RlMemory(
        generating=Moment(phase=GENERATING, terms=_nonzero(beside_engine | engine)),
        updating=Moment(phase=UPDATING, terms=_nonzero(training | asleep)),
        capacity=actor.memory.capacity_bytes,
        kv_used=rollout.served.most_blocks * room.block,
        moved=tuple(_moved(rl, actor)),
    )


def _other_models(rl: RlRun, kept: Mapping[str, float]) -> float:
    """Weights of the reference and of a reward model, and all state of the critic, of what is not offloaded."""
    stays = rl.section.has_reference and "reference" not in rl.section.offload
    reference = kept.get("parameters", 0.0) if stays else 0.0
    critic = sum(kept.values()) * _size(rl, rl.critic)
    return reference + critic + kept.get("parameters", 0.0) * _size(rl, rl.reward_model)


def _size(rl: RlRun, other: TrainingRun | None) -> float:
    """Parameters of another model over those of the actor; 0 for none."""
    return other.model.parameters / rl.base.model.parameters if other else 0.0


def _nonzero(terms: Mapping[str, float]) -> dict[str, float]:
    return {name: terms[name] for name in TERMS if terms.get(name)}


def _moved(rl: RlRun, actor: Prediction) -> list[Moved]:
    """The ways of offloaded state, phase by phase: a pass needs the parameters, an update all."""
    section = rl.section
    critic, reward_model = _size(rl, rl.critic), _size(rl, rl.reward_model)
    needed = (
        ("old_log_prob", ("parameters",), float(section.old_log_prob)),
        ("ref", ("reference",), float(section.has_reference)),
        ("values", ("parameters",), critic),
        ("reward_model", ("parameters",), reward_model),
        ("update_critic", STATE, critic),
        (UPDATING, STATE, 1.0),
    )
    return [
        Moved(phase=phase, state=state, bytes_moved=size, time=moved_time(size))
        for phase, states, scale in needed
        for state in states
        if (size := scale * moved_bytes(actor, section, of=(state,)))
    ]
