"""Transformers in torch's own operators, as the defaults of a profile describe it."""

from __future__ import annotations

from predict.run.memory_profile import MemoryProfile

PROFILE = MemoryProfile(name="eager")
