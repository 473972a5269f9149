"""The engines of an RL run: their settings, and those that the model, the machines or an engine's own rules do not allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from predict.model.spec import ModelSpec
from predict.rl.section import LAYERS, NAME, RlSection
from predict.run.training_run import TrainingRun
from predict.serving.config import limit_faults, placement_faults, step_token_faults
from predict.serving.server import EngineSettings, Placement, engine_fault, engine_settings
from sampling.files.faults import Fault

ENGINE, ROLLOUT = "engine.", f"{NAME}.rollout."
"""Start of the keys of a server's engine, and of those that stand for them here."""


def rollout_engine(section: RlSection) -> EngineSettings:
    """The settings of an engine. A request is at most as long as a padded sequence, as verl tells its engines (`max_model_len`)."""
    given = section.rollout
    usual = engine_settings(given.engine)
    return replace(
        usual,
        max_num_seqs=given.max_num_seqs or usual.max_num_seqs,
        max_num_batched_tokens=given.max_num_batched_tokens or usual.max_num_batched_tokens,
        max_model_len=section.longest,
        memory_utilization=given.memory_share,
        enforce_eager=given.enforce_eager,
    )


def rollout_faults(base: TrainingRun, section: RlSection) -> list[Fault]:
    """Engines that the model or the machines do not allow."""
    rollout, gpus = section.rollout, section.rollout.gpus or base.cluster.world_size
    placed = Placement(tp=rollout.tp, expert_parallel=rollout.expert_parallel)
    of_keys = {
        "model": "model",
        "placement.tp": f"{ROLLOUT}tp",
        "placement.expert_parallel": f"{ROLLOUT}expert_parallel",
    }
    faults = [
        Fault(path=of_keys[fault.path], problem=fault.problem)
        for fault in placement_faults(base.model, placed)
        if fault.path in of_keys
    ]
    plain = base.execution.whole_layers
    if plain != (rollout.step_model == LAYERS):
        problem = f"{rollout.step_model} with execution.framework {base.execution.framework}; " + (
            f"plain torch generates layer by layer: set {LAYERS}" if plain else "set kernels, or framework: torch"
        )
        faults.append(Fault(path=f"{ROLLOUT}step_model", problem=problem))
    if unknown := engine_fault(rollout.engine, f"{ROLLOUT}engine"):
        faults.append(unknown)
    else:
        faults += _engine_faults(base.model, section)
    faults += _microbatch_faults(section, base.plan.cp)
    engines = gpus // rollout.tp
    if rollout.partial and section.samples < engines:
        problem = f"true with {engines} engines for the {section.samples} responses of a step; give each engine at least one, or omit it"
        faults.append(Fault(path=f"{ROLLOUT}partial", problem=problem))
    if gpus % rollout.tp:
        problem = f"{rollout.tp} does not divide the {gpus} GPUs of the engines; give one that does"
        faults.append(Fault(path=f"{ROLLOUT}tp", problem=problem))
    return faults


def _engine_faults(model: ModelSpec, section: RlSection) -> Iterator[Fault]:
    """The faults of a server's engine, under the keys of this section."""
    engine = rollout_engine(section)
    if limit_faults(model, engine):
        problem = (
            f"{section.response_max:,} and {NAME}.prompt_max, {section.prompt_max:,}, are more tokens than the {model.max_positions:,} positions "
            f"of {model.name}; give fewer"
        )
        yield Fault(path=f"{NAME}.response_max", problem=problem)
    for fault in step_token_faults(model, engine):
        yield Fault(path=fault.path.replace(ENGINE, ROLLOUT), problem=fault.problem.replace(ENGINE, ROLLOUT))


def _microbatch_faults(section: RlSection, cp: int) -> list[Fault]:
    """Budgets of tokens that do not hold the longest sequence: verl's `rearrange_micro_batches` asserts that max_tokens · cp does."""
    budgets = {"max_tokens": section.max_tokens, "passes.max_tokens": section.passes.max_tokens}
    return [
        Fault(
            path=f"{NAME}.{key}",
            problem=f"{tokens} tokens · cp {cp} do not hold a sequence of prompt_max + response_max = "
            f"{section.longest} tokens; give at least {-(-section.longest // cp)}",
        )
        for key, tokens in budgets.items()
        if tokens and tokens * cp < section.longest
    ]
