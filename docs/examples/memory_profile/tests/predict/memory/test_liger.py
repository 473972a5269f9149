"""Liger kernels: what a token of a layer keeps, and that logits are never kept."""

from __future__ import annotations

from predict.memory.activations import head_activations
from predict.memory.profiles import memory_profiles
from predict.model.layer_kinds import DENSE
from tests.predict.memory.test_activations import TOKENS, layer, own, rank_of


def test_a_layer_keeps_what_compiled_fsdp_keeps() -> None:
    assert own(layer("llama3-8b", DENSE, "liger").kept) == 139_400 * TOKENS


def test_the_loss_keeps_targets_alone() -> None:
    head = head_activations(rank_of("llama3-8b"), memory_profiles()["liger"])
    assert head.kept["loss"] == 8 * TOKENS + 4
