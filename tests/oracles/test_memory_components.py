"""Memory by component equals that of another tool, except for named differences: Primus's formulas, and our own activations."""

import json
from dataclasses import replace
from typing import Any

import pytest

from predict.memory.activations import layer_activations
from predict.memory.primus import primus_memory
from predict.model.spec import DENSE
from tests.oracles.shared import SHARED
from tests.predict.memory.counted_layers import PROFILES, SPARSE, rank_of
from tests.predict.memory.primus_runs import DEEPSEEK_V2, MIXTRAL_8X22B, PRINTED, components, run
from tests.predict.workload.parallel_runs import spec

COMPONENTS = SHARED / "oracles" / "memory" / "components.json"

ROWS: list[dict[str, Any]] = json.loads(COMPONENTS.read_text())
LLAMA_405B = replace(
    MIXTRAL_8X22B, name="405b", layers=126, hidden=16384, heads=128, ffn=53248, layer_kinds=(), experts=None
)
LLAMA_70B = replace(LLAMA_405B, name="70b", layers=80, hidden=8192, heads=64, ffn=28672)


def row_of(config: str) -> dict[str, Any]:
    """The peer's row of a config whose name starts so, on one node and without recomputation."""
    return next(
        row for row in ROWS if row["config"].startswith(config) and row["nnodes"] == 1 and row["recompute"] == "none"
    )


PEER_RUNS = {
    "llama3.1_70B": run(LLAMA_70B, (128, 1, 8192), dp=8),
    "llama3.1_405B": run(LLAMA_405B, (256, 1, 8192), tp=8, pp=8),
    "mixtral_8x22B": PRINTED,
    "deepseek_v2-": run(DEEPSEEK_V2, (256, 1, 4096), pp=4, ep=8, dp=8),
}


@pytest.mark.parametrize("config", PEER_RUNS)
def test_the_peers_parameters_are_ours_to_the_last(config: str) -> None:
    """The peer runs Primus's code, with a vocabulary of 100,352 except for DeepSeek's."""
    row, subject = row_of(config), PEER_RUNS[config]
    subject = replace(subject, model=replace(subject.model, vocab=row["P_embedding"] // subject.model.hidden))
    found = primus_memory(subject)
    assert found.total_parameters == row["total_params"]
    assert found.parameters == row["rank0_params"]
    assert found.bytes_per_parameter == row["bytes_per_param"]
    for layer, _ in found.layers:
        assert layer.parameters == row[f"P_{layer.name}"]
        for name, part in components(layer).items():
            assert part.parameters == row[f"P_{layer.name}.{name}"], name


@pytest.mark.parametrize("config", [name for name in PEER_RUNS if not name.startswith("deepseek")])
def test_the_peers_activations_are_ours_but_for_the_experts(config: str) -> None:
    """The peer's later code keeps a mixture's output once instead of topk times, omits the router from a layer's sum, and
    applies no penalty without virtual chunks. We follow what Primus prints, which has no formula of latent attention."""
    row, found = row_of(config), primus_memory(PEER_RUNS[config])
    for layer, _ in found.layers:
        for name, part in components(layer).items():
            peer = row[f"A_{layer.name}.{name}"]
            if (name, layer.name) != ("mlp", "moe_transformer_layer"):
                assert part.activation_bytes == peer, name
            else:
                tokens, hidden, topk = 16384, 6144, 2
                assert part.activation_bytes - peer == (topk - 1) * tokens * hidden * 2
    if not PEER_RUNS[config].model.experts:
        factors = found.factors
        assert found.base_activation_bytes * factors.pp * factors.ga_saving == row["act_total"]


SAME_FORM = {
    "llama3.1_70B": "llama3-70b",
    "llama2_7B": "llama2-7b",
    "llama3.1_405B": "llama3.1-405b",
    "mixtral_8x22B_v0.1": "mixtral-8x22b",
    "mixtral_8x7B_v0.1": "mixtral-8x7b",
}
"""The peer's models whose formulas are ours. It counts keys and values twice where head_dim is given (Qwen3, GPT-OSS), and its
numbers for latent attention follow no formula that we could find."""


@pytest.mark.parametrize("name", SAME_FORM)
def test_a_peer_s_components_agree_but_for_named_differences(name: str) -> None:
    row = row_of(f"{name}-")
    model, tokens = spec(SAME_FORM[name]), row["mbs"] * row["seq"]
    plan = {"plan__tp": row["tp"], "plan__sp": row["tp"] > 1}
    rank = rank_of(model, micro=row["mbs"], seq_len=row["seq"], **plan)
    found = layer_activations(
        rank, DENSE if model.experts is None else SPARSE, PROFILES["megatron-te"], recompute="none"
    ).components
    kind = "dense" if model.experts is None else "moe"
    theirs = {part: row[f"A_{kind}_transformer_layer.{part}"] for part in ("layer_norm", "self_attention", "mlp")}
    # they leave out the statistics of norms and attention
    assert found["norm"] - 2 * 4 * rank.rows == 2 * theirs["layer_norm"]
    statistics = 4 * tokens * model.heads // row["tp"]
    assert found["qkv"] + found["core_attn"] + found["proj"] - statistics == theirs["self_attention"]
    stream = 2 * rank.rows * model.hidden
    if model.experts is None:
        assert found["mlp"] == theirs["mlp"]
        # they count the residual stream beside the norms that keep it
        assert row["A_dense_transformer_layer"] - sum(theirs.values()) - theirs["layer_norm"] == 3 * stream
    else:
        # their experts read one copy of a token, however many it is sent to
        assert found["experts"] - theirs["mlp"] == stream * (model.experts.topk - 1)
        assert found["router"] - tokens * 9 * model.experts.count == row["A_moe_transformer_layer.router"]
