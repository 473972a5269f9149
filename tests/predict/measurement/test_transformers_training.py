"""The real model against the transformers library's Llama: same weights, same logits."""

from dataclasses import replace

import pytest
import torch

from predict.measurement.decoder import random_batch
from predict.measurement.training import build_training
from predict.run.plan import Plan
from tests.predict.measurement.train_variants import LLAMA, run_of

pytest.importorskip("transformers")

NAMES = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    **{f"attention.{part}.": f"self_attn.{part}_proj." for part in "qkvo"},
    **{f"mlp.{part}.": f"mlp.{part}_proj." for part in ("gate", "up", "down")},
}


def library_name(name: str) -> str:
    if name.startswith("layers."):
        name = f"model.{name}"
    for ours, theirs in NAMES.items():
        if ours in name and not (name.startswith("model.") and theirs.startswith(("model.", "lm_head"))):
            return name.replace(ours, theirs)
    return name


def test_logits_are_the_librarys_with_the_same_weights() -> None:
    from transformers import LlamaForCausalLM

    from predict.measurement.transformers_training import llama_config

    run = run_of(Plan())
    ours = build_training(run).module
    theirs = LlamaForCausalLM(llama_config(run))
    theirs.load_state_dict({library_name(name): weight for name, weight in ours.state_dict().items()}, strict=True)
    tokens, _ = random_batch(run, replica=0)
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(input_ids=tokens).logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("tied", [False, True])
def test_the_library_trains_as_many_parameters_and_learns(tied: bool) -> None:
    from predict.measurement.transformers_training import build_transformers_training

    run = run_of(Plan(), replace(LLAMA, tied=tied))
    training = build_transformers_training(run)
    losses = [training.step() for _ in range(3)]
    assert training.parameters == build_training(run).parameters
    assert losses[0] is not None and losses[-1] is not None
    assert losses[-1].item() < losses[0].item() - 0.05
