"""Liger kernels: what a token of a layer keeps, and that logits are never kept."""

from __future__ import annotations

from predict.model.spec import DENSE
from tests.predict.memory.counted_layers import PROFILES, TOKENS, layer, rank_of, role_activations


def test_a_layer_keeps_what_compiled_fsdp_keeps() -> None:
    assert layer("llama3-8b", DENSE, "liger").kept_without_rotary_bytes == 139_400 * TOKENS


def test_the_loss_keeps_targets_alone() -> None:
    head = role_activations("head", rank_of("llama3-8b"), PROFILES["liger"])
    assert head.components["loss"] == 8 * TOKENS + 4
