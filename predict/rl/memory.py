"""Memory of one GPU in an RL step: the engine's weights and cache with the trainer's state, and what offload moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from predict.interval import Interval
from predict.memory.estimate import SAFETY_MARGIN, Verdict, forward_bytes, probability_of, upper_of, verdict_of
from predict.rl.phases import NAMES
from predict.rl.section import COLOCATED
from predict.rl.training import moved_bytes, moved_time, pass_run, state_of

if TYPE_CHECKING:
    from predict.rl.config import RlRun
    from predict.rl.rollout import Rollout
    from predict.rl.section import RlSection
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
weights of reference and reward model, and all state of the actor or the critic, whichever is not the one at work; `kv_cache` all
blocks, used or not."""
STATE = ("parameters", "optimizer")
GENERATING, UPDATING, UPDATING_CRITIC = "gen", "update_actor", "update_critic"


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """Bytes of one GPU in one phase."""

    phase: str
    terms: Mapping[str, float]
    """Name in TERMS → its bytes; terms of 0 bytes are left out."""
    capacity: float
    trainer_width: float
    """Bytes by which the trainer's buffers and slack, where they are on this GPU, may be more in 5 % of runs."""

    @property
    def peak(self) -> float:
        return sum(self.terms.values())

    @property
    def upper(self) -> float:
        """The peak that 95 % of runs stay below, as of a training run. An engine sizes its cache by what it finds left, so that has no
        error of its own."""
        counted = self.peak - self.terms.get("kv_cache", 0.0)
        return upper_of(self.peak, SAFETY_MARGIN * counted, self.trainer_width)

    @property
    def fits_probability(self) -> float:
        """The probability that the peak stays within the capacity."""
        return probability_of(self.peak, self.upper, self.capacity)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """State that a phase fetches from the host and puts back."""

    phase: str
    state: str
    bytes_moved: float
    """Bytes to the GPU and back."""
    time: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class RlMemory:
    """The moments of a step in which a GPU holds the most, and the transfers of what is offloaded."""

    generating: Moment
    updating: Moment
    """The update of the actor."""
    updating_critic: Moment | None
    passing: tuple[Moment, ...]
    """The passes without a backward that are fuller than the update of their model, in the order of the step: by larger microbatches, or
    by weights of the reference that are fetched beside the actor's. Of the passes of one shape the first stands for all; that of a
    reward model, which has no update, is fuller than every one."""
    capacity: float
    kv_used: float
    """Bytes of the cache that hold keys and values at most."""
    moved: tuple[Moved, ...]

    @property
    def moments(self) -> tuple[Moment, ...]:
        """The moments in the order of the step."""
        return (self.generating, *self.passing, *self.updates)

    @property
    def updates(self) -> tuple[Moment, ...]:
        return (self.updating_critic, self.updating) if self.updating_critic else (self.updating,)

    @property
    def worst(self) -> Moment:
        return max(self.moments, key=lambda moment: moment.peak)

    @property
    def fits(self) -> bool:
        return self.worst.peak <= self.capacity

    @property
    def riskiest(self) -> Moment:
        """The moment that is the least likely to fit; of several alike the fullest."""
        return min(self.moments, key=lambda moment: (moment.fits_probability, -moment.peak))

    @property
    def fits_probability(self) -> float:
        """The probability that a step fits: that of its riskiest moment, as what one is off by all are."""
        return self.riskiest.fits_probability

    @property
    def verdict(self) -> Verdict:
        moment = self.riskiest
        return verdict_of(moment.peak, moment.upper, self.capacity)


def memory_of(rl: RlRun, rollout: Rollout, actor: Prediction, critic: Prediction | None) -> RlMemory:
    """The memory of a step whose engine, actor and critic are known.

    An engine that shares its GPU sleeps during training: weights and cache are freed, and what it reserves for graphs and
    communication stays. State that is not offloaded stays during generation and the other model's update.
    """
    section, room = rl.section, rollout.room
    colocated = section.placement == COLOCATED
    of_actor, of_critic = _kept(section, actor), _kept(section, critic) if critic else {}
    others = _other_weights(rl, of_actor)
    worst = actor.memory.worst
    lasting = worst.between_steps - worst.parameters - worst.optimizer - worst.resident_gradients
    engine = {"engine_weights": room.weights, "kv_cache": room.blocks * room.block, "engine_reserved": room.reserved}
    trainer = of_actor | {"buffers": worst.device + lasting, "other_models": others + sum(of_critic.values())}
    asleep = {"engine_reserved": room.reserved} if colocated else {}

    def moment(phase: str, terms: Mapping[str, float], width: float) -> Moment:
        found = {name: terms[name] for name in TERMS if terms.get(name)}
        return Moment(phase=phase, terms=found, capacity=actor.memory.capacity_bytes, trainer_width=width)

    def update(phase: str, prediction: Prediction, beside: Mapping[str, float]) -> Moment:
        terms = _at_work(prediction) | {"other_models": others + sum(beside.values())} | asleep
        return moment(phase, terms, prediction.memory.worst.width)

    def forward(name: str, run: TrainingRun, own: dict[str, float], beside: float, on: Prediction) -> Moment:
        plan, held = on.run.plan, on.memory.worst
        needed = {"activations": forward_bytes(replace(run, plan=replace(run.plan, schedule=plan.schedule)))}
        buffers = held.buffers + held.slack + held.device
        return moment(name, own | needed | {"buffers": buffers, "other_models": beside} | asleep, held.width)

    def fuller_passes(updating: Moment, updating_critic: Moment | None) -> Iterator[Moment]:
        if rl.reward_model:
            weights = _size(rl, rl.reward_model) * worst.parameters
            beside = others + sum(of_actor.values()) + sum(of_critic.values())
            beside -= weights if "parameters" in of_actor else 0.0
            run = pass_run(rl, rl.reward_model)
            scoring = forward("reward_model", run, {"parameters": weights}, beside, actor)
            if scoring.peak > max(each.peak for each in (updating, updating_critic) if each):
                yield scoring
        fetched, run = _fetched_reference(rl, of_actor), pass_run(rl)
        name = "ref" if fetched else next((name for name, runs in _passes(section).items() if runs), "")
        if name and (fetched or _is_larger(run, actor)):
            own = of_actor | {"parameters": worst.parameters}
            passing = forward(name, run, own, others + fetched + sum(of_critic.values()), actor)
            if passing.peak > updating.peak:
                yield passing
        if critic and updating_critic and _is_larger(run := pass_run(rl, rl.critic), critic):
            own = of_critic | {"parameters": critic.memory.worst.parameters}
            valuing = forward("values", run, own, others + sum(of_actor.values()), critic)
            if valuing.peak > updating_critic.peak:
                yield valuing

    updating = update(UPDATING, actor, of_critic)
    updating_critic = update(UPDATING_CRITIC, critic, of_actor) if critic else None
    return RlMemory(
        generating=moment(GENERATING, (trainer if colocated else {}) | engine, worst.width if colocated else 0.0),
        updating=updating,
        updating_critic=updating_critic,
        passing=tuple(fuller_passes(updating, updating_critic)),
        capacity=actor.memory.capacity_bytes,
        kv_used=rollout.served.most_blocks * room.block,
        moved=tuple(_moved(rl, actor, critic)),
    )


def _passes(section: RlSection) -> dict[str, bool]:
    """The passes without a backward of the actor's shape → whether a step has them."""
    return {"old_log_prob": section.old_log_prob, "ref": section.has_reference}


def _is_larger(run: TrainingRun, updated: Prediction) -> bool:
    """Whether the longest microbatch of a pass has more tokens than that of the update of its model."""
    passed, trained = (each.with_longest_row.batch for each in (run, updated.run))
    return passed.micro * passed.seq_len > trained.micro * trained.seq_len


def _kept(section: RlSection, model: Prediction) -> dict[str, float]:
    """State of a model that stays on the GPU while it does nothing.

    Its gradient buffer leaves with its parameters, and is dropped rather than copied (verl/utils/megatron_utils.py,
    `offload_megatron_model_to_cpu`); a framework that makes gradients in each backward has none to keep.
    """
    worst, kept = model.memory.worst, {}
    if "parameters" not in section.offload:
        kept = {"parameters": worst.parameters, "gradients": worst.resident_gradients}
    if "optimizer" not in section.offload:
        kept["optimizer"] = worst.optimizer
    return kept


def _at_work(model: Prediction) -> dict[str, float]:
    """The terms of a model that is updated."""
    worst = model.memory.worst
    return {
        "parameters": worst.parameters,
        "gradients": worst.gradients,
        "optimizer": worst.optimizer,
        "activations": worst.activations + worst.working,
        "buffers": worst.buffers + worst.slack + worst.device,
    }


def _other_weights(rl: RlRun, of_actor: Mapping[str, float]) -> float:
    """Weights of the reference and of a reward model, of what is not offloaded."""
    weights = of_actor.get("parameters", 0.0)
    stays = _has_own_reference(rl) and "reference" not in rl.section.offload
    return weights * (float(stays) + _size(rl, rl.reward_model))


def _has_own_reference(rl: RlRun) -> bool:
    """Whether there is a reference whose weights are not the actor's."""
    return rl.section.has_reference and state_of(rl, "ref") == "reference"


def _fetched_reference(rl: RlRun, of_actor: Mapping[str, float]) -> float:
    """Weights that the reference's pass fetches from the host while those of the actor stay."""
    is_fetched = _has_own_reference(rl) and "reference" in rl.section.offload
    return of_actor.get("parameters", 0.0) if is_fetched else 0.0


def _size(rl: RlRun, other: TrainingRun | None) -> float:
    """Parameters of another model over those of the actor; 0 for none."""
    return other.model.parameters / rl.base.model.parameters if other else 0.0


def _moved(rl: RlRun, actor: Prediction, critic: Prediction | None) -> list[Moved]:
    """The transfers of offloaded state, phase by phase: a pass needs the parameters, an update all of it."""
    section = rl.section
    needed: list[tuple[str, tuple[str, ...], Prediction, float]] = [(UPDATING, STATE, actor, 1.0)]
    if section.old_log_prob:
        needed.append(("old_log_prob", ("parameters",), actor, 1.0))
    if section.has_reference:
        needed.append(("ref", (state_of(rl, "ref"),), actor, 1.0))
    if rl.reward_model:
        needed.append(("reward_model", ("parameters",), actor, _size(rl, rl.reward_model)))
    if critic:
        needed += [("values", ("parameters",), critic, 1.0), (UPDATING_CRITIC, STATE, critic, 1.0)]
    found = [
        Moved(phase=phase, state=state, bytes_moved=size, time=moved_time(size))
        for phase, states, model, scale in needed
        for state in states
        if (size := scale * moved_bytes(model, section, of=(state,)))
    ]
    return sorted(found, key=lambda each: NAMES.index(each.phase))
