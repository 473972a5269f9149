"""Phases of an RL step: each with its time, its FLOPs, and what bounds it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from predict.interval import Interval, sum_of_phases
from predict.ledger.whole_job import checkpoint_bytes
from predict.model.spec import ModelSpec
from predict.rank.share import held_dtype
from predict.rl.config import RlRun
from predict.step.breakdown import add_up
from regressors.features.arrays import Floats
from sampling.files.places import shipped_json
from sampling.hardware.cluster import DTYPE_BYTES, Link
from sampling.units import SECOND_US

# Terms of an RL step that no kernel's price holds: what each is, its prior, and its bounds at 90 %.


@dataclass(frozen=True, kw_only=True, slots=True)
class RlTerm:
    """A prior in the unit of its name, read off the sources that it cites. Published times that it was read from are
    judged apart, as in-sample (READ_FROM)."""

    value: float
    low: float
    high: float
    meaning: str
    source: str

    def times(self, number: float) -> Interval:
        """`number` times the term, with its bounds."""
        return Interval(median=self.value, low=self.low, high=self.high).scaled(number)


TERMS: Mapping[str, RlTerm] = {name: RlTerm(**fields) for name, fields in shipped_json("rl-terms.json").items()}
"""Name → term. A step has the first two, and the one of its `rl.weight_sync.method`."""


READ_FROM: Mapping[str, str] = {
    "verl-fully-async-7b": "old_log_prob",
    "verl docs": "update_weights",
    "MoonshotAI/checkpoint-engine": "update_weights",
}
"""Start of a source's name in tables of published times → the phase of it that terms were read from: `padded_token_us` of the first,
`tensor_s` and `gather_s` of the second, `bucket_gb_per_s` of the third."""


def in_sample(source: str, phase: str) -> bool:
    """Whether a term was read from this phase of this source, so that its error there says nothing of other runs."""
    return any(source.startswith(name) and phase == read for name, read in READ_FROM.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
    """Factors on the time of phases, and the half-width in log time, at 90 %, of a phase that has one."""

    rollout: float = 1.0
    """Factor on generation: what an engine inside an RL framework takes over a server of its own."""
    update: float = 1.0
    """Factor on updates: what a trainer inside an RL framework takes over a training run of its own."""
    passes: float = 1.0
    """Factor on passes without a backward: logits and entropies in fp32, and microbatches that nothing overlaps."""
    half_width: float = 0.0


UNSCALED = Factors()
FACTORS = Factors(rollout=1.45, update=1.15, passes=1.5, half_width=0.69)
"""Fitted to steps and phases by `predict.validation.rl_fit`. The half-width is the least at which nine in ten runs of
each source have their published step in its interval, each predicted by factors fitted without its source: 0.43 hold nine in ten of all
runs, but five in six of the source that is predicted worst."""
FITTED_TO = ("nemo-rl-Llama-3.1-8B", "nemo-rl-Qwen3-235B-A22B", "nemo-rl-Qwen3-30B-A3B", "verl-log-c550")
"""Sources of these rows: NeMo-RL 0.4 to 0.6, its performance summary (whole steps); verl 0.7, a public log on C550 (phases too)."""
HOST_GB_PER_S, HOST_LOW, HOST_HIGH = 25.0, 10.0, 50.0
"""Bandwidth between a GPU and the host's memory: pinned copies over PCIe 4.0 x16 reach 25 GB/s of its 32, over PCIe 5.0 50 of its 64
(PCI-SIG), pageable ones about 10."""


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
"""Headings of phases in addition to those of a training step's ledger: what an RL framework takes over kernels alone, ways to the host and
back, the driver, scoring, writing, and engines waking up; the bytes of the weights and their handling by name; responses up to the last
tenth to end, and that tenth."""
NOTHING_US = 1e-6
"""Time that is rounding."""
STATED = frozenset({FRAMEWORK, OFFLOAD, DRIVER, SCORING, STORAGE, WAKE, TRANSFER, TENSORS})
"""Headings whose times follow from factors, priors, links' bandwidths and settings, and not from a kernel's price."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseMfu:
    """FLOPs of a phase by one convention, which counts a forward pass as a third of a training step, and their share of the peak.

    The time is the phase's but for the driver's: verl times its workers alone (verl/workers/fsdp_workers.py, `update_actor`)."""

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
    """Name of what most of its time goes to: compute, memory, communication, pipeline, host, offload, storage, long
    tail, reward or sync."""
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


# Phases that are neither generation nor passes of the trainer: the driver, which starts the phases and sends the samples, as they are
# padded, to the trainer's workers; scoring outside the GPUs; and checkpoints.


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


def checkpoint_phase(rl: RlRun) -> Phase | None:
    """A step's share of a checkpoint, which every rank waits for; None where none is saved."""
    saved, base = rl.section.checkpoint, rl.base
    if not saved.every:
        return None
    time_us = SECOND_US * checkpoint_bytes(base) / (saved.gb_per_s * 1e9) / saved.every
    gpus = base.cluster.world_size
    return Phase(
        name="checkpoint", time=Interval.exactly(time_us), gpus=gpus, bound_by="storage", parts={STORAGE: time_us}
    )


def reward_us(rl: RlRun, gen_us: Floats | float) -> Floats:
    """The time that scoring adds to a generation of this time: all of it; where it overlaps, what is left to score when generation ends."""
    reward, samples = rl.section.reward, rl.section.samples
    last = SECOND_US * reward.latency_s
    in_all = last * -(-samples // reward.workers)
    ended = np.asarray(gen_us, dtype=np.float64)
    return np.maximum(last, in_all - ended) if reward.overlaps else np.full_like(ended, in_all)


def reward_phase(rl: RlRun, phases: Iterable[Phase]) -> list[Phase]:
    """The phase after a generation that is among these phases; none for a reward without latency."""
    if not rl.section.reward.latency_s:
        return []
    (gen,) = (phase for phase in phases if phase.name == "gen")
    time = Interval.exactly(float(reward_us(rl, gen.time.median_us)))
    return [Phase(name="reward", time=time, gpus=gen.gpus, bound_by="reward", parts={SCORING: time.median_us})]


# Weight sync: the transfer of the trainer's new weights to the engines.

TENSORS_PER_LAYER = 9
"""Tensors of a layer apart from its experts' in a checkpoint: four of attention, three of the MLP, two norms."""
MATRICES_PER_EXPERT = 3


def update_weights(rl: RlRun) -> Phase:
    """The phase: the transfer of the weights, and the engines' waking up."""
    sync, base = rl.section.weight_sync, rl.base
    times = sync_parts(base.model, link_of(rl), sent_dtype(rl), sync.method) | {
        WAKE: Interval.exactly(SECOND_US * sync.wake_s)
    }
    parts = plus({name: time.median_us for name, time in times.items()}, {})
    return Phase(name="update_weights", time=sum_of_phases(times.values()), gpus=rl.gpus, bound_by="sync", parts=parts)


def sent_dtype(rl: RlRun) -> str:
    """The dtype of the weights in transfer: as the trainer holds them, since engines quantise what they receive (NeMo-RL,
    models/generation/fp8.py, `load_weights`); from the host's memory, as the engines hold them, a checkpoint of their own."""
    rollout = rl.section.rollout
    return rollout.precision if rl.section.weight_sync.method == "host" else held_dtype(rl.base)


def sync_time(model: ModelSpec, link: Link, precision: str, method: str) -> Interval:
    """The time of a transfer by a method of `rl.weight_sync`."""
    return sum_of_phases(sync_parts(model, link, precision, method).values())


def sync_parts(model: ModelSpec, link: Link, precision: str, method: str) -> dict[str, Interval]:
    """Heading → its time, of a transfer by a method of `rl.weight_sync`.

    `tensors`: the whole model crosses the slowest link once, and each tensor is gathered, resharded and loaded; `buckets`: each is only
    gathered; `host`: weights that lie gathered in the host's memory are loaded at a rate.
    """
    if method == "host":
        bytes_per_us = TERMS["bucket_gb_per_s"].times(1e3)
        return {TRANSFER: bytes_per_us.dividing(model.parameters * DTYPE_BYTES[precision])}
    of_tensor = TERMS["tensor_s" if method == "tensors" else "gather_s"]
    handling = of_tensor.times(SECOND_US * tensor_count(model))
    return {TRANSFER: Interval.exactly(transfer_us(model, link, precision)), TENSORS: handling}


def link_of(rl: RlRun) -> Link:
    """The slowest link that weights cross: within a node where trainer and engines fit into one."""
    cluster = rl.base.cluster
    return cluster.link(rl.gpus, cluster.gpus_per_node)


def transfer_us(model: ModelSpec, link: Link, precision: str) -> float:
    """The bytes of the model over the bandwidth of a link."""
    return model.parameters * DTYPE_BYTES[precision] / (link.gb_per_s * 1e3)


def tensor_count(model: ModelSpec) -> int:
    """Tensors of the model's checkpoint: three per expert, as many as a dense layer has, embedding, head and last norm."""
    sparse = Counter(kind.sparse for kind in model.kinds())[True]
    experts = model.experts.count if model.experts else 0
    return model.layers * TENSORS_PER_LAYER + sparse * experts * MATRICES_PER_EXPERT + 3
