"""Layers of hybrids: Mamba-2 and short convolutions (mamba.py, short_conv.py) beside transformers' own, and layers of one part."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from predict.huggingface.config_json import load_model
from predict.layers.mamba import Mamba
from predict.ledger import conventions
from predict.memory.activations import layer_activations
from predict.model.spec import LayerKind, ModelSpec
from predict.rank.blocks import single
from predict.rank.share import RankShare
from predict.run.model_flops import model_flops_per_token
from sampling.operators.experts import GroupedGemm
from sampling.operators.gemm import Gemm
from sampling.operators.routing import Permute
from tests.predict.layers.saved_bytes import BF16, saved_bytes
from tests.predict.memory.counted_layers import PROFILES
from tests.predict.workload.parallel_runs import flops, layer_of, made, spec

BATCH, SEQ, HIDDEN = 2, 32, 32
NEMOTRON = {
    "model_type": "nemotron_h",
    "hidden_size": HIDDEN,
    "intermediate_size": 40,
    "layers_block_type": ["mamba", "mlp", "attention", "mamba"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "mamba_num_heads": 4,
    "mamba_head_dim": 6,
    "n_groups": 2,
    "ssm_state_size": 10,
    "chunk_size": 16,
    "n_routed_experts": 0,
    "vocab_size": 64,
}
BAMBA = {
    "model_type": "bamba",
    "hidden_size": HIDDEN,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "attn_layer_indices": [1],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 10,
    "mamba_chunk_size": 16,
    "vocab_size": 64,
}
LFM2 = {
    "model_type": "lfm2",
    "hidden_size": HIDDEN,
    "intermediate_size": 60,
    "block_multiple_of": 8,
    "num_hidden_layers": 2,
    "layer_types": ["conv", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}
TINY: dict[str, dict[str, Any]] = {"nemotron_h": NEMOTRON, "bamba": BAMBA, "lfm2": LFM2}


def kept(model: ModelSpec, kind: LayerKind, profile: str = "eager", **settings: Any) -> float:
    run = made(model, precision="bf16", batch={"global": BATCH, "micro": BATCH, "seq_len": SEQ}, **settings)
    return layer_activations(RankShare(run=run), kind, PROFILES[profile], recompute="none").kept_bytes


@pytest.fixture(scope="module")
def built() -> dict[str, Any]:
    """Models of transformers in 16 bits, by family."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: no bytes to compare with")
    found = {}
    for name, keys in TINY.items():
        config = transformers.AutoConfig.for_model(**keys, attn_implementation="sdpa")
        found[name] = transformers.AutoModelForCausalLM.from_config(config).to(BF16).train()
    return found


@pytest.mark.parametrize(
    ("name", "layer"), [(name, layer) for name in TINY for layer in range(len(load_model(TINY[name]).kinds()))]
)
def test_a_layer_keeps_every_byte_that_torch_saves(name: str, layer: int, built: dict[str, Any]) -> None:
    model = built[name].model
    x = torch.randn(BATCH, SEQ, HIDDEN, dtype=BF16, requires_grad=True)
    rotary = getattr(model, "rotary_emb", None)
    positions = {} if rotary is None else {"position_embeddings": rotary(x, torch.arange(SEQ)[None])}
    counted = saved_bytes(lambda: model.layers[layer](x, **positions), [model])
    own = load_model(TINY[name])
    # Nemotron-H's norm keeps an fp32 copy of its weight too
    weight = 4 * HIDDEN if own.scales_in_fp32 else 0
    assert kept(own, own.kinds()[layer]) == counted - weight


def test_the_ledger_counts_each_part_once() -> None:
    own = load_model(NEMOTRON)
    parts = conventions.forward_parts(own, {SEQ: BATCH}, mtp=False)
    assert [(part.part, part.layers) for part in parts if part.layer] == [
        ("mamba_projections", 2),
        ("mamba_core", 2),
        ("dense_feed_forward", 1),
        ("attention_projections", 1),
        ("attention_core", 1),
    ]
    assert conventions.exact(NEMOTRON, [SEQ] * BATCH) == 3 * sum(part.forward for part in parts)


def test_megatron_counts_a_hybrid_as_its_own_formula_does() -> None:
    """`hybrid_flops` of megatron/training/training.py with its sizes in numbers."""
    config = {**NEMOTRON, "layers_block_type": ["mamba", "attention", "mlp"]}
    seq, hidden, inner = 64, HIDDEN, 24
    scan = 2 * seq * hidden * (2 * inner + 2 * 2 * 10 + 4) + 7 * seq * inner * 10 + 2 * seq * inner * hidden
    p = 8 * 4 / hidden
    attention = 4 * seq * hidden * p * (hidden + hidden * 2 / 4 + seq / 2)
    mlp = 4 * 40 / hidden * seq * hidden**2
    logits = 2 * seq * hidden * 64
    assert conventions.megatron(config, [seq]) == pytest.approx(3 * (scan + attention + mlp + logits))


def test_a_layer_of_one_part_has_one_norm_and_no_more() -> None:
    model = spec("nemotron3-nano-30b-a3b")
    kinds = dict.fromkeys(model.kinds())
    assert [kind.name for kind in kinds] == ["mamba", "moe", "full"]
    mamba, experts, attention = kinds
    assert model.norms_of(mamba) == model.norms_of(experts) == model.norms_of(attention) == 1
    run = made(model)
    for place, kind in enumerate([*kinds][:1]):
        modules = [call.call.NAME for call in layer_of(run, model.kinds().index(kind)).forward.calls]
        assert modules.count("residual_add") == 1 and "state_space_scan" in modules
        assert place == 0
    assert model.mixer(experts).matrices(model) == model.feed_forward(mamba).matrices(model) == ()


def test_a_run_of_a_hybrid_does_its_flops_within_what_chunks_add() -> None:
    model = spec("granite4.0-h-micro")
    run = made(model, batch={"global": 1, "micro": 1, "seq_len": 4096})
    done = sum(
        flops(single(layer_of(run, model.kinds().index(kind)).forward)) * model.kinds().count(kind)
        for kind in dict.fromkeys(model.kinds())
    )
    layers = model_flops_per_token(model, 4096) / 3 - 2 * model.vocab * model.hidden
    assert done == pytest.approx(4096 * layers, rel=0.05)


def test_experts_of_a_compressed_width_exchange_and_multiply_no_more_than_that() -> None:
    model = spec("nemotron3-super-120b-a12b")
    place = model.kinds().index(LayerKind(mixer="none", sparse=True))
    calls = [call.call for call in layer_of(made(model, plan__dp=4, plan__ep=4), place).forward.calls]
    grouped = [call for call in calls if isinstance(call, GroupedGemm)]
    assert {(call.n, call.k) for call in grouped} == {(2688, 1024), (1024, 2688)}
    assert [call.hidden for call in calls if isinstance(call, Permute)][:1] == [1024]
    ways = [(call.n, call.k) for call in calls if isinstance(call, Gemm)]
    assert (1024, 4096) in ways and (4096, 1024) in ways


@pytest.mark.parametrize("tp", [2, 8])
def test_tensor_ranks_split_heads_and_share_groups(tp: int) -> None:
    model = spec("nemotron-h-8b")
    kind = model.kinds()[0]
    whole, part = (kept(model, kind, "megatron-te", plan__tp=ranks, plan__sp=ranks > 1) for ranks in (1, tp))
    assert part == pytest.approx(whole / tp, rel=0.01)


def test_b_and_c_of_a_group_are_whole_on_every_gpu() -> None:
    mixer = Mamba(heads=48, head_dim=64, groups=1, state=128, conv=4, chunk=256)
    assert (mixer.channels_on_rank(1), mixer.channels_on_rank(8)) == (mixer.conv_width, 6 * 64 + 2 * 128)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"layers_block_type": ["mamba", "mixer"]}, "layers_block_type: 'mixer' is not modelled here"),
        ({"layers_block_type": 3}, "layers_block_type: 3 is not a list"),
        ({"num_hidden_layers": 7}, "4 blocks for the 7 layers"),
        ({"mamba_proj_bias": True}, "a bias on the products of Mamba"),
        ({"use_bias": True}, "a bias on every product"),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, Any], fault: str) -> None:
    from sampling.errors import ConfigError

    with pytest.raises(ConfigError, match="(?s).*" + fault):
        load_model({**NEMOTRON, **changes})


def test_letters_and_names_of_blocks_mean_the_same() -> None:
    letters = {key: value for key, value in NEMOTRON.items() if key != "layers_block_type"}
    assert load_model({**letters, "hybrid_override_pattern": "M-*M"}) == load_model(NEMOTRON)
    assert replace(load_model(NEMOTRON), layer_kinds=()).layers == 4
