"""Models with one value per token in the place of a vocabulary: the critic, and a model that scores responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from predict.huggingface.config_json import load_model
from predict.model.shipped import shipped_model, shipped_models
from predict.rl.run.section import RlSection
from predict.run.training_run import TrainingRun
from sampling.files.faults import Fault, did_you_mean, shown


def valued_runs(section: RlSection | None, base: TrainingRun | None) -> tuple[Mapping[str, TrainingRun], list[Fault]]:
    """The runs `critic` and `reward_model` that a section asks for, on the trainer's plan, and the faults of their names."""
    if section is None or base is None:
        return {}, []
    names = {"critic": section.critic, "reward.model": section.reward.model}
    unknown = [name for name in names if names[name] and shipped_model(names[name]) is None]
    if unknown:
        return {}, [_unknown(name, names[name]) for name in unknown]
    runs = {}
    if section.has_critic:
        runs["critic"] = _valued(base, section.critic)
    if section.reward.model:
        runs["reward_model"] = _valued(base, section.reward.model)
    return runs, []


def _unknown(key: str, name: str) -> Fault:
    near = did_you_mean(name, shipped_models()) or "; see configs/models"
    return Fault(path=f"rl.{key}", problem=f"{shown(name)} is not a shipped model{near}")


def _valued(base: TrainingRun, name: str) -> TrainingRun:
    """The run of a model of this name, or of the actor's shape. Its head has a column per tensor-parallel rank, the fewest that divide;
    its embedding is looked up, but what the optimizer does for its rows is left out."""
    path = shipped_model(name) if name else None
    model = load_model(path) if path else base.model
    return replace(base, model=replace(model, vocab=base.plan.tp, tied=False), model_keys={})
