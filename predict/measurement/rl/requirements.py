"""Which RL steps can be run for real here, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterator

from predict.measurement.requirements import machine_faults
from predict.rl.config import RlRun
from predict.rl.section import COLOCATED
from sampling.errors import UserError


def require_measurable_rl(rl: RlRun) -> None:
    """Raise one UserError that lists everything that keeps the step from being run here."""
    if faults := [*_run_faults(rl), *_section_faults(rl), *_generation_faults(rl)]:
        listed = "\n".join(f"  - {fault}" for fault in faults)
        raise UserError(f"{rl.name} cannot be run as a real RL step:\n{listed}")


def _run_faults(rl: RlRun) -> Iterator[str]:
    run = rl.base
    if run.cluster.gpu.kind != "cpu":
        yield f"cluster.hardware: {run.cluster.gpu.name}; a real RL step runs on a CPU, use cpu"
        return
    yield from machine_faults(run)
    if run.cluster.world_size != 1:
        yield f"cluster.gpus_per_node: {run.cluster.world_size} ranks; a real RL step is one process, use 1"
    if run.plan.recompute not in ("none", "full"):
        yield f"plan.recompute: {run.plan.recompute!r}; use none or full"
    if not run.model.rope or run.model.experts or run.model.qk_norm:
        yield f"model: {run.model.name}; a real RL step has a Llama-like dense model"


def _section_faults(rl: RlRun) -> Iterator[str]:
    section = rl.section
    if section.placement != COLOCATED:
        yield f"rl.placement: {section.placement}; use {COLOCATED}"
    if section.has_critic:
        yield f"rl.algorithm: {section.algorithm} has a critic; use grpo, dapo or reinforce++"
    if section.padding != "kept":
        yield f"rl.padding: {section.padding}; the passes run over padded samples, use kept"
    if section.offload:
        yield f"rl.offload: {', '.join(section.offload)}; a CPU has nowhere to move it, omit it"
    if section.reward.latency_s:
        yield f"rl.reward.latency_s: {section.reward.latency_s:g}; the step scores by a rule of its own, omit it"
    if section.rollout.kept_share != 1:
        yield f"rl.rollout.kept_share: {section.rollout.kept_share:g}; every group is kept, omit it"
    of_step = section.samples // (section.optimizer_steps // section.epochs)
    for name, micro, rows in (
        ("rl.micro", section.micro, of_step),
        ("rl.passes.micro", section.passes.micro, section.samples),
    ):
        if micro and rows % micro:
            yield f"{name}: {micro} does not divide {rows} samples; give one that does"


def _generation_faults(rl: RlRun) -> Iterator[str]:
    section, prompts = rl.section, rl.samples.prompt
    if prompts.min() != section.prompt_max:
        yield f"rl.prompt: from {prompts.min()} tokens on; prompts have one length here, use constant:{section.prompt_max}"
    most = section.rollout.max_num_seqs
    if most and most < section.samples:
        yield f"rl.rollout.max_num_seqs: {most} for {section.samples} samples, which are generated at once; use {section.samples} or 0"
