"""The step of an RL run: its phases, composed as the placement has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from predict import estimate
from predict.config.document import Config
from predict.interval import Interval, longer, sum_of_phases, sum_of_training_phases
from predict.rl.config import RlRun, load_rl
from predict.rl.memory import RlMemory, memory_of
from predict.rl.phases import (
    FACTORS,
    TRAINING,
    UNSCALED,
    Factors,
    Phase,
    adv_phase,
    checkpoint_phase,
    in_order,
    reward_phase,
    update_weights,
    with_factors,
    with_moving,
)
from predict.rl.plain_torch import plain_reward, plain_sync
from predict.rl.rollout import Rollout, gen_phase, rollout_of
from predict.rl.section import ASYNC, COLOCATED, RlSection
from predict.rl.training import forward_pass, pass_run, reference_base, update
from regressors.features.arrays import Floats
from sampling.units import SECOND_US

if TYPE_CHECKING:
    from predict.step.prediction import Prediction
    from predict.step.scheduling import Estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """Samples between the start of their generation and their training, as steps' worth of them."""

    generating: float
    """Samples in the engines, on average."""
    waiting: float
    """Samples that have ended, and are not yet trained on."""
    staleness: float
    """Updates of the weights between the start of a sample's generation and its training, on average."""


def queue_of(section: RlSection, rollout: Rollout, *, gen_us: float, train_us: float, step_us: float) -> Queue:
    """The queue in the steady state, by Little's law: samples in a place are their rate times their time there.

    A step's samples leave per step. With `async` a slower trainer lets the engines run ahead until a sample would be older than
    `staleness` allows; a slower engine leaves nothing to wait. One step off, all samples are of the weights before.
    """
    if section.placement == COLOCATED:
        return Queue(generating=0.0, waiting=0.0, staleness=0.0)
    served = rollout.served
    # engines that resume interrupted responses are always full
    share = 1.0 if section.rollout.partial else float((served.last_us - served.start_us).mean() / served.last_us.max())
    ahead = section.staleness if section.placement == ASYNC else 0.0
    generating = share * (1 + ahead) * gen_us / step_us
    if section.placement != ASYNC:
        return Queue(generating=generating, waiting=max(0.0, 1 - generating), staleness=1.0)
    waiting = max(0.0, ahead - generating) if train_us > gen_us else 0.0
    return Queue(generating=generating, waiting=waiting, staleness=min(ahead, generating + waiting))


@dataclass(frozen=True, kw_only=True, eq=False)
class RlStep:
    """One predicted step. Times are µs."""

    rl: RlRun
    phases: tuple[Phase, ...]
    """Phases in the order in which a colocated step runs them; a phase that the run does not have is left out."""
    rollout: Rollout
    actor: Prediction
    """One optimizer step of the actor, its memory among the rest."""
    critic: Prediction | None = None
    """The same of the critic; None without one."""

    def phase(self, name: str) -> Phase | None:
        return next((phase for phase in self.phases if phase.name == name), None)

    @property
    def training(self) -> Interval:
        """The phases on the trainer's GPUs, whose errors move together."""
        return sum_of_training_phases(phase.time for phase in self.phases if phase.name in TRAINING)

    @property
    def generating(self) -> Interval:
        """The phases on the engines' GPUs."""
        return sum_of_phases(phase.time for phase in self.phases if phase.name in ("gen", "reward"))

    @property
    def sync(self) -> Interval:
        return sum_of_phases(phase.time for phase in self.phases if phase.name == "update_weights")

    @property
    def time(self) -> Interval:
        """The step: trainer and engines by their placement, and both wait for new weights.

        Generation and training share the factors' half-width, and yet add in quadrature: it was fitted to whole steps that are added so
        (`predict.validation.rl_fit`), and so covers what their errors have in common. Summed otherwise, it would have to be fitted anew.
        """
        return sum_of_phases([self._until_sync, self.sync])

    @property
    def _until_sync(self) -> Interval:
        return until_both_are_done(self.rl.section, self.generating, self.training)

    @property
    def wait_gen_us(self) -> float:
        """Time in which a trainer of its own waits for samples."""
        if self.rl.section.placement == COLOCATED:
            return 0.0
        return max(0.0, self._until_sync.median_us - self.training.median_us)

    @property
    def idle_gen_us(self) -> float:
        """Time in which engines of their own wait for the trainer."""
        if self.rl.section.placement == COLOCATED:
            return 0.0
        return max(0.0, self._until_sync.median_us - self.generating.median_us)

    @property
    def queue(self) -> Queue:
        """Samples between engines and trainer, and their age."""
        gen, train, step = (time.median_us for time in (self.generating, self.training, self.time))
        return queue_of(self.rl.section, self.rollout, gen_us=gen, train_us=train, step_us=step)

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Tokens of prompts and responses that a step trains on."""
        return self.rl.samples.tokens / self.time.median_us * SECOND_US / self.rl.gpus

    @property
    def memory(self) -> RlMemory:
        """The memory of a GPU while it generates and while it updates."""
        return memory_of(self.rl, self.rollout, self.actor, self.critic)

    @property
    def engine_bytes(self) -> float:
        """Memory of a GPU that an engine takes."""
        return self.rollout.room.memory


def rl_step(config: Config, overrides: Sequence[str] = ()) -> RlStep:
    """One step of reinforcement learning of an RL config, as in configs/rl: `.time`, `.phases` under verl's names, `.rollout`.

    `overrides` are keys such as `rl.n=8`, or verl's own names. ConfigError lists every fault; InfeasibleError where a response does
    not fit an engine's cache.
    """
    return estimate_rl(load_rl(config, overrides), estimate)


def estimate_rl(rl: RlRun, estimate: Estimate) -> RlStep:
    """Predict one step of a loaded config; `estimate` predicts a training run."""
    return scaled_step(unscaled_step(rl, estimate), UNSCALED if rl.in_plain_torch else FACTORS)


def scaled_step(step: RlStep, factors: Factors) -> RlStep:
    """An unscaled step with its phases under factors, and with what follows from these: scoring, and the driver's moving of samples."""
    phases = [with_factors(phase, factors) for phase in step.phases]
    if step.rl.in_plain_torch:
        return replace(step, phases=tuple(phases))
    return replace(step, phases=with_moving(step.rl, in_order([*phases, *reward_phase(step.rl, phases)])))


def unscaled_step(rl: RlRun, estimate: Estimate) -> RlStep:
    """The step as priced, without factors, and without what follows from these: scoring, and the driver's moving of samples."""
    rollout = rollout_of(rl)
    gen = gen_phase(rl, rollout)
    actor, prediction = update(rl, estimate, "update_actor")
    phases = [gen, actor, *_beside(rl)]
    phases += _passes(rl, estimate)
    critic = None
    if rl.critic:
        of_critic, critic = update(rl, estimate, "update_critic", rl.critic)
        phases.append(of_critic)
    return RlStep(rl=rl, phases=in_order(phases), rollout=rollout, actor=prediction, critic=critic)


def _beside(rl: RlRun) -> list[Phase]:
    """The phases that are neither generation nor passes of the trainer."""
    if rl.in_plain_torch:
        return [plain_reward(rl), plain_sync(rl)]
    found = [adv_phase(rl), update_weights(rl)]
    if saved := checkpoint_phase(rl):
        found.append(saved)
    return found


def _passes(rl: RlRun, estimate: Estimate) -> list[Phase]:
    """The passes without a backward."""
    wanted = {
        "old_log_prob": rl.base if rl.section.old_log_prob else None,
        "ref": reference_base(rl) if rl.section.has_reference else None,
        "values": rl.critic,
        "reward_model": rl.reward_model,
    }
    bases = {id(base): base for base in wanted.values() if base}
    priced = {key: estimate(pass_run(rl, base)) for key, base in bases.items()}  # old_log_prob and ref are mostly alike
    return [forward_pass(rl, priced[id(base)], name) for name, base in wanted.items() if base]


def until_both_are_done(section: RlSection, generating: Interval, training: Interval) -> Interval:
    """The time of a step without the sync of the weights: trainer and engines in turn, or side by side as far as samples may be of older
    weights.

    When a step begins, the trainer finds as many samples as the engines may be ahead; the others come as the engines make them. It is
    done no sooner than they have made the last of them and it has trained on its last fetch, and no sooner than its own time after the
    first fetch. The engines go on with the samples of the next step meanwhile, and need a whole generation per step. Without samples
    ahead and with one fetch, generation and training follow one another; with a step ahead, the step is the longer of the two. The modes
    that verl's page on fully asynchronous training describes are its cases.
    """
    ways = (
        sum_of_phases([generating.scaled(generated), training.scaled(trained)]) for generated, trained in _ways(section)
    )
    return reduce(longer, ways)


def both_done_us(section: RlSection, generating_us: Floats, training_us: Floats) -> Floats:
    """The same of many times at once."""
    ways = [generated * generating_us + trained * training_us for generated, trained in _ways(section)]
    longest: Floats = reduce(np.maximum, ways)
    return longest


def _ways(section: RlSection) -> Iterator[tuple[float, float]]:
    """Shares of generation and training that follow each other: the step waits for the longest of these."""
    fetch = 1 / section.fetches
    yield 1.0, 0.0
    yield max(0.0, 1 - section.ahead), fetch
    yield max(0.0, fetch - section.ahead), 1.0


SHARES = (10, 50, 90)
"""Percentiles of each time."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RlDraws:
    """The same step over draws of its lengths, each with a seed of its own. Times are µs, medians of their intervals."""

    steps: tuple[RlStep, ...]

    def times_us(self, name: str) -> Floats:
        """The times of a phase, or of the `step`; 0 where the run does not have the phase."""
        if name == "step":
            return np.array([step.time.median_us for step in self.steps])
        phases = [step.phase(name) for step in self.steps]
        return np.array([phase.time.median_us if phase else 0.0 for phase in phases])

    def percentiles_us(self, name: str) -> dict[str, float]:
        """`p10`, `p50` and `p90` of those times."""
        values = np.percentile(self.times_us(name), SHARES)
        return {f"p{share}": float(value) for share, value in zip(SHARES, values, strict=True)}


def rl_step_draws(config: Config, overrides: Sequence[str] = (), *, draws: int = 16) -> RlDraws:
    """The step of an RL config over draws of its lengths, with seeds from 1: `.percentiles_us("step")`, or of a phase. ConfigError and
    InfeasibleError as from `rl_step`."""
    runs = [load_rl(config, [*overrides, f"rl.draw={seed}"]) for seed in range(1, draws + 1)]
    return RlDraws(steps=tuple(estimate_rl(run, estimate) for run in runs))
