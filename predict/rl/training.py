"""Phases on the trainer's GPUs: updates, and passes without a backward, from the estimate of a training step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from predict.rl.flops import mfu_of_phase
from predict.rl.layout import laid_out_pass
from predict.rl.phase import Phase, independent, scaled
from predict.rl.run.config import RlRun
from predict.rl.state.offload import offload_time
from predict.run.training_run import TrainingRun
from predict.step.stragglers import stragglers_factor

if TYPE_CHECKING:
    from predict.step.prediction import Prediction

Estimate = Callable[[TrainingRun], "Prediction"]
COMMUNICATION = ("tp", "cp", "ep", "fsdp", "dp_exposed", "p2p")
PIPELINE, HOST = ("pp_bubble", "stragglers"), ("host", "step_overhead")
"""Headings of a step's ledger that are no compute."""


def update_run(rl: RlRun, base: TrainingRun | None = None) -> TrainingRun:
    """One optimizer step: its share of the samples, every so many-th of the ascending lengths."""
    section = rl.section
    of_epoch = section.optimizer_steps // section.epochs
    lengths = rl.samples.sequences[of_epoch // 2 :: of_epoch].tolist()
    return laid_out_pass(base or rl.base, section, lengths, micro=section.micro, max_tokens=section.max_tokens)


def pass_run(rl: RlRun, base: TrainingRun | None = None) -> TrainingRun:
    """All samples in the microbatches of passes without a backward, of the actor or of another model on its plan."""
    section = rl.section
    return laid_out_pass(
        base or rl.base,
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
    time = independent([scaled(one.step_time, steps), moved])
    phase = Phase(
        name=name,
        time=time,
        gpus=run.cluster.world_size,
        bound_by=_bound_by(one, steps * one.median_us, moved.median_us),
        mfu=mfu_of_phase(run, time.median_us, gpus=run.cluster.world_size, passes=steps),
    )
    return phase, one


def forward_pass(rl: RlRun, prediction: Prediction, name: str) -> Phase:
    """A pass without a backward over all samples, by a model whose training step over them is predicted."""
    section, run = rl.section, prediction.run
    forward_us = forward_only_us(prediction)
    moved = offload_time(prediction, section, of=("reference" if name == "ref" else "parameters",))
    time = independent([scaled(prediction.step_time, forward_us / prediction.median_us), moved])
    return Phase(
        name=name,
        time=time,
        gpus=run.cluster.world_size,
        bound_by=_bound_by(prediction, forward_us, moved.median_us),
        mfu=mfu_of_phase(run, time.median_us, gpus=run.cluster.world_size, forward_only=True),
    )


def forward_only_us(prediction: Prediction) -> float:
    """The forwards of all microbatches through the pipeline: the slowest stage's, and once those of the others and the sends."""
    stages = [rank.forward_us for rank in prediction.ranks]
    sends = sum(chunk.send.median_us for rank in prediction.ranks for chunk in rank.chunks)
    slowest = max(stages)
    alone = (prediction.run.microbatches - 1) * slowest + sum(stages) + sends
    return alone * stragglers_factor(prediction.run)


def _bound_by(prediction: Prediction, work_us: float, moved_us: float) -> str:
    """What most of a pass's time goes to, its work in the proportions of the training step's ledger."""
    ledger = prediction.breakdown_us
    share = work_us / sum(ledger.values())
    parts = {
        "communication": share * _sum(ledger, COMMUNICATION),
        "pipeline": share * _sum(ledger, PIPELINE),
        "host": share * _sum(ledger, HOST),
        "offload": moved_us,
    }
    parts["compute"] = work_us + moved_us - sum(parts.values())
    return max(parts, key=lambda name: parts[name])


def _sum(ledger: dict[str, float], names: Sequence[str]) -> float:
    return sum(ledger.get(name, 0.0) for name in names)
