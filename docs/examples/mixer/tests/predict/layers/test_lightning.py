"""Lightning attention in MiniMax: parameters as transformers counts them, and FLOPs and weights that ranks divide."""

from __future__ import annotations

from typing import Any

import pytest

from predict.huggingface.config_json import load_model
from predict.rank.blocks import single
from predict.rank.share import RankShare, layer_weights
from predict.workload.layer import layer_blocks
from tests.predict.workload.parallel_runs import flops, made

CONFIG: dict[str, Any] = {
    "model_type": "minimax",
    "num_hidden_layers": 4,
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 1000,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
}


def test_parameters_are_those_that_transformers_counts() -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.MiniMaxConfig(**CONFIG))
    assert load_model(CONFIG).parameters == sum(weight.numel() for weight in model.parameters())


def test_every_second_layer_is_lightning_attention() -> None:
    mixers = [kind.mixer for kind in load_model(CONFIG).kinds()]
    assert mixers == ["full", "lightning_attention"] * 2


def test_tensor_parallel_ranks_divide_the_layer() -> None:
    one, two = (made(load_model(CONFIG), plan__tp=tp, plan__sp=tp > 1) for tp in (1, 2))
    kind = one.model.kinds()[1]
    forward = [flops(single(layer_blocks(RankShare(run=run), kind).forward)) for run in (one, two)]
    assert forward[0] == pytest.approx(2 * forward[1], rel=0.01)
    whole, half = (layer_weights(run.model, run.plan, kind).dense for run in (one, two))
    assert half < 0.55 * whole
