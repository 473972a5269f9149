"""The memory profiles by name. A module of this package that declares a `PROFILE` is found by itself."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from predict.memory.profiles.memory_profile import MemoryProfile
from predict.run import frameworks
from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError


@cache
def memory_profiles() -> Mapping[str, MemoryProfile]:
    """Every profile by its name, in the order of the names."""
    modules = (import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    found: list[MemoryProfile] = [module.PROFILE for module in modules if hasattr(module, "PROFILE")]
    return {profile.name: profile for profile in sorted(found, key=lambda profile: profile.name)}


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
