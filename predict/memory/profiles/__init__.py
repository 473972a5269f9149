"""The memory profiles by name. A module of this package that declares a `PROFILE` is found by itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from predict.run import frameworks
from predict.run.memory_profile import MemoryProfile
from predict.run.training_run import TrainingRun
from sampling.additions import add, modules_of
from sampling.errors import ConfigError


@cache
def memory_profiles() -> Mapping[str, MemoryProfile]:
    """Every profile by its name, in the order of the names."""
    profiles: dict[str, MemoryProfile] = {}
    for module in modules_of(__name__):
        if hasattr(module, "PROFILE"):
            add(profiles, module.PROFILE.name, module.PROFILE, "memory profiles")
    return dict(sorted(profiles.items()))


def memory_profile_of(run: TrainingRun) -> MemoryProfile:
    """The profile of the run's framework. ConfigError if the framework's file names an unknown one."""
    profiles, framework = memory_profiles(), run.execution.framework
    name = frameworks.memory_profile(framework)
    if name not in profiles:
        raise ConfigError(
            f"configs/frameworks/{framework}.yml: memory: {name!r} is not a memory profile; choose one of {', '.join(profiles)}"
        )
    profile = profiles[name]
    return profiles[profile.uncompiled] if profile.uncompiled and run.execution.elementwise == "eager" else profile
