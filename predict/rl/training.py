"""Phases on the trainer's GPUs: updates, and passes without a backward, from the estimate of a training step, and the state that lies in
the host's memory between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from predict.interval import Interval, sum_of_phases
from predict.ledger.verl_flops import verl, verl_peak_flops_per_us
from predict.rl.config import RlRun
from predict.rl.phases import HOST_GB_PER_S, HOST_HIGH, HOST_LOW, OFFLOAD, Phase, PhaseMfu, plus
from predict.rl.section import RlSection
from predict.run.adapters import NOTHING_TRAINED
from predict.run.lengths import PACKED, PADDED, RealSequences, alike, up_to
from predict.run.model_flops import FORWARD_SHARE, model_flops_per_step
from predict.run.plan import Batch
from predict.run.stages import placement_of
from predict.run.training_run import TrainingRun
from predict.step.breakdown import BUBBLE, P2P, STRAGGLERS, BlockLedgers, add_up
from predict.step.priced_rank import stragglers_factor
from sampling.errors import ConfigError, UserError
from sampling.hardware.cluster import Gpu

if TYPE_CHECKING:
    from predict.step.prediction import Prediction
    from predict.step.scheduling import Estimate


def laid_out_pass(
    base: TrainingRun, section: RlSection, lengths: Sequence[int], *, micro: int, max_tokens: int
) -> TrainingRun:
    """The trainer's run over sequences of these lengths, ascending.

    Padding kept: every sequence is a row of prompt_max + response_max. Removed: a microbatch of `micro` sequences, all of a replica's where
    these are fewer, has their tokens; with `max_tokens`, each replica's sequences are divided evenly among as few microbatches as the
    budget of max_tokens · cp takes (verl's dynamic batch size).
    """
    plan = base.plan
    multiple = plan.cp * (plan.tp if plan.sp else 1)
    tokens, replicas = sum(lengths), plan.dp
    micro = min(micro, ceil(len(lengths) / replicas))
    at_once = plan.pp if plan.vpp > 1 else 1  # an interleaved schedule takes microbatches in groups of its ranks
    if section.padding == "kept" or not max_tokens:
        rows = up_to(len(lengths), micro * replicas * at_once)
        row_tokens = section.longest if section.padding == "kept" else ceil(tokens / rows)
    else:
        micro, of_replica = 1, up_to(ceil(tokens / replicas / (max_tokens * plan.cp)), at_once)
        rows = of_replica * replicas
        row_tokens = ceil(tokens / rows)
    row_tokens = up_to(row_tokens, multiple)
    real = RealSequences(
        counts=tuple(sorted(Counter(lengths).items())),
        truncated=0,
        rows=rows,
        row_tokens=row_tokens,
        longest_row=max(row_tokens, up_to(lengths[-1], multiple)),
        attended=() if section.padding == "kept" else alike(lengths, rows),
    )
    batch = Batch(
        global_=rows, micro=micro, seq_len=row_tokens, padding=PADDED if section.padding == "kept" else PACKED
    )
    return replace(base, batch=batch, real=real)


def mfu_of_phase(
    run: TrainingRun, time_us: float, *, gpus: int, passes: float = 1.0, forward_only: bool = False
) -> dict[str, PhaseMfu]:
    """The figures of `passes` passes over the sequences of a run, in `time_us` on so many GPUs."""
    share = passes * (FORWARD_SHARE if forward_only else 1.0)
    by_convention: Mapping[str, tuple[Callable[[], float], Callable[[Gpu], float]]] = {
        "palm": (lambda: model_flops_per_step(run), lambda gpu: gpu.peak_flops_per_us(run.precision)),
        "verl": (lambda: _verl(run), verl_peak_flops_per_us),
    }
    return {name: _figure(run, time_us, gpus, share, *of) for name, of in by_convention.items()}


def _verl(run: TrainingRun) -> float:
    return sum(count * verl(run.model_keys, [length]) for length, count in run.sequences.items())


def _figure(
    run: TrainingRun,
    time_us: float,
    gpus: int,
    share: float,
    flops_of: Callable[[], float],
    peak_of: Callable[[Gpu], float],
) -> PhaseMfu:
    flops = None
    try:
        flops = share * flops_of()
        peak = peak_of(run.cluster.gpu) * gpus
    except (ConfigError, UserError):
        return PhaseMfu(flops=flops, mfu=None)  # the convention does not know the model, or the device
    return PhaseMfu(flops=flops, mfu=flops / (peak * time_us) if time_us else None)


WAITING: Mapping[str, Sequence[str]] = {
    "communication": ("tp", "cp", "ep", "fsdp", "dp_exposed", "p2p"),
    "pipeline": ("pp_bubble", "stragglers"),
    "host": ("host", "step_overhead"),
    "offload": (OFFLOAD,),
}
"""Bound of a pass other than compute → its headings in the ledger."""


def update_run(rl: RlRun, base: TrainingRun | None = None) -> TrainingRun:
    """One optimizer step: its share of the samples, every so many-th of the ascending lengths."""
    section = rl.section
    of_epoch = section.optimizer_steps // section.epochs
    lengths = rl.samples.sequences[of_epoch // 2 :: of_epoch].tolist()
    return laid_out_pass(base or rl.base, section, lengths, micro=section.micro, max_tokens=section.max_tokens)


def state_of(rl: RlRun, name: str) -> str:
    """The state that a pass needs on the GPU: a reference's weights are its own, or beside adapters those of the actor's base (verl,
    trainer/ppo/ray_trainer.py, `ref_in_actor`; TRL, trainer/grpo_trainer.py, whose `ref_model` is then None)."""
    return "reference" if name == "ref" and not rl.base.adapters.are_trained else "parameters"


def reference_base(rl: RlRun) -> TrainingRun:
    """The trainer's run of the reference: the actor's, without its adapters."""
    base = rl.base
    if not base.adapters.are_trained:
        return base
    return replace(base, adapters=replace(base.adapters, targets=NOTHING_TRAINED.targets))


def pass_run(rl: RlRun, base: TrainingRun | None = None) -> TrainingRun:
    """All samples in the microbatches of passes without a backward, of the actor or of another model on its plan."""
    section = rl.section
    return laid_out_pass(
        (base or rl.base).without_backward,
        section,
        rl.samples.sequences.tolist(),
        micro=section.passes.micro or section.micro,
        max_tokens=section.passes.max_tokens or section.max_tokens,
    )


def update(rl: RlRun, estimate: Estimate, name: str, base: TrainingRun | None = None) -> tuple[Phase, Prediction]:
    """The update of the actor, or of another model on its plan: optimizer steps, each over its share of the samples."""
    section, steps = rl.section, rl.section.optimizer_steps
    run = update_run(rl, base)
    one = estimate(run)
    moved = offload_time(one, section, of=("parameters", "optimizer"))
    time = sum_of_phases([one.step_time.scaled(steps), moved])
    kernels = {heading: steps * time_us for heading, time_us in one.breakdown_us.items()}
    parts = plus(kernels, {OFFLOAD: moved.median_us})
    phase = Phase(
        name=name,
        time=time,
        gpus=run.cluster.world_size,
        bound_by=_bound_by(parts),
        mfu=mfu_of_phase(run, time.median_us, gpus=run.cluster.world_size, passes=steps),
        parts=parts,
        sources=one.sources,
    )
    return phase, one


def forward_pass(rl: RlRun, prediction: Prediction, name: str) -> Phase:
    """A pass without a backward over all samples, by a model whose training step over them is predicted."""
    run = prediction.run
    forwards = forward_ledger_us(prediction)
    moved = offload_time(prediction, rl.section, of=(state_of(rl, name),))
    time = sum_of_phases([prediction.step_time.scaled(sum(forwards.values()) / prediction.median_us), moved])
    parts = plus(forwards, {OFFLOAD: moved.median_us})
    return Phase(
        name=name,
        time=time,
        gpus=run.cluster.world_size,
        bound_by=_bound_by(parts),
        mfu=mfu_of_phase(run, time.median_us, gpus=run.cluster.world_size, forward_only=True),
        parts=parts,
        sources=prediction.sources,
    )


def forward_ledger_us(prediction: Prediction) -> dict[str, float]:
    """µs by heading of the forwards of all microbatches through the pipeline: the slowest stage's, and once those of the others, in
    which it waits, and the sends. Of the copies of the model that a schedule holds, a microbatch goes through one."""
    ledgers, ranks, run = BlockLedgers(prediction.prices), prediction.ranks, prediction.run
    copies = placement_of(run).chain_count
    slowest = max(ranks, key=lambda rank: rank.forward_us)
    of_slowest = add_up(ledgers.bucket(chunk.forward) for chunk in slowest.chunks)
    forwards = {heading: run.microbatches / copies * time_us for heading, time_us in of_slowest.items()}
    filling = {
        BUBBLE: (sum(rank.forward_us for rank in ranks) - slowest.forward_us) / copies,
        P2P: sum(chunk.send.median_us for rank in ranks for chunk in rank.chunks) / copies,
    }
    alone = add_up([forwards, filling])
    return add_up([alone, {STRAGGLERS: (stragglers_factor(run) - 1) * sum(alone.values())}])


def _bound_by(parts: Mapping[str, float]) -> str:
    """The resource that most of a pass's time goes to."""
    of_class = {name: sum(parts.get(heading, 0.0) for heading in headings) for name, headings in WAITING.items()}
    of_class["compute"] = sum(parts.values()) - sum(of_class.values())
    return max(of_class, key=lambda name: of_class[name])


BYTES_PER_US = 1e3
"""Bytes per µs of 1 GB/s."""


def offload_time(prediction: Prediction, section: RlSection, *, of: Sequence[str]) -> Interval:
    """The time in which a rank's share of this state crosses PCIe before and after a phase that needs it, of what the section offloads."""
    return moved_time(moved_bytes(prediction, section, of=of))


def moved_bytes(prediction: Prediction, section: RlSection, *, of: Sequence[str]) -> float:
    """Bytes of this state that cross PCIe both ways, of what the section offloads; with the parameters goes the reference."""
    worst = prediction.memory.worst
    sizes = {"parameters": worst.parameters, "optimizer": worst.optimizer, "reference": worst.parameters}
    away = {*section.offload} | ({"reference"} if "parameters" in section.offload else set())
    return float(sum(2 * sizes[name] for name in of if name in away))


def moved_time(bytes_moved: float) -> Interval:
    """The time of so many bytes between a GPU and the host."""
    return Interval(median=HOST_GB_PER_S, low=HOST_LOW, high=HOST_HIGH).scaled(BYTES_PER_US).dividing(bytes_moved)
