"""Megatron-Core with its own layers in place of Transformer Engine's."""

from __future__ import annotations

from dataclasses import replace

from predict.memory.profiles import megatron_te

PROFILE = replace(megatron_te.PROFILE, name="megatron-local", transformer_engine=False)
