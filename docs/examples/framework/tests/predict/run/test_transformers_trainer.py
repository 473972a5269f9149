"""The framework `transformers-trainer`: what it sets beside FSDP."""

from __future__ import annotations

from predict.run.frameworks import framework_settings, framework_spread, memory_profile


def test_it_is_fsdp_with_another_attention_kernel() -> None:
    fsdp, trainer = framework_settings("fsdp"), framework_settings("transformers-trainer")
    assert dict(trainer) == {**fsdp, "attention": "cudnn", "clip_gradients": True}
    assert memory_profile("transformers-trainer").name == memory_profile("fsdp").name
    assert framework_spread("transformers-trainer") == 0.25
