"""Layers of shipped models whose activations are counted under any plan, framework and memory profile."""

from typing import Any

from predict.memory.activations import Activations, layer_activations, unit_activations
from predict.memory.state import Role, Unit
from predict.model.spec import DENSE, LayerKind, ModelSpec
from predict.rank.share import RankShare, Weights
from predict.run.frameworks import framework_names, memory_profile
from predict.run.memory_profile import MemoryProfile
from tests.predict.workload.parallel_runs import made

SPARSE = LayerKind(sparse=True)

PROFILES = {
    profile.name: profile for profile in sorted(map(memory_profile, framework_names()), key=lambda each: each.name)
}
"""Every memory profile by the name that answers print."""

LINEAR = LayerKind(mixer="linear", sparse=True)

TOKENS = 4096

KINDS = [("llama3-70b", DENSE), ("qwen3-30b-a3b", SPARSE), ("deepseek-v3", SPARSE), ("qwen3.5-35b-a3b", LINEAR)]


def rank_of(model: str | ModelSpec, *, micro: int = 1, seq_len: int = TOKENS, **settings: Any) -> RankShare:
    return RankShare(run=made(model, batch={"global": 64 * micro, "micro": micro, "seq_len": seq_len}, **settings))


def layer(
    model: str | ModelSpec, kind: LayerKind, profile: str, recompute: str = "none", **settings: Any
) -> Activations:
    modules = {"plan__recompute_modules": settings.pop("modules")} if "modules" in settings else {}
    rank = rank_of(model, plan__recompute=recompute, **modules, **settings)
    return layer_activations(rank, kind, PROFILES[profile], recompute=recompute)


def role_activations(role: Role, rank: RankShare, profile: MemoryProfile) -> Activations:
    return unit_activations(rank, profile, Unit(role=role, weights=Weights()))
