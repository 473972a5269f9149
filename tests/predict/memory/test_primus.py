"""The formulas of Primus Projection give its worked examples to the printed digits.

Source: Primus "Projection", sections Activation Memory, Full Layer Activation Summary, Pipeline Schedule Memory Scaling and
Example Output.
"""

from dataclasses import replace
from typing import Any

import pytest

from predict.memory.primus import PrimusLayer, PrimusMemory, primus_memory
from sampling.errors import UserError
from sampling.units import GIB
from tests.predict.memory.primus_runs import DEEPSEEK_V2, MIXTRAL_8X22B, MOE_4_5T, PRINTED, SPARSE, components, run


def gib(size_bytes: float, digits: int = 2) -> float:
    return round(size_bytes / GIB, digits)


def only_layer(found: PrimusMemory) -> PrimusLayer:
    ((layer, _),) = found.layers
    return layer


def test_the_mixture_of_4_5_t_is_as_printed() -> None:
    subject = run(MOE_4_5T, (4, 4, 16384), cp=4)
    layer = only_layer(primus_memory(subject, softmax="log_sum_exp"))
    sizes = {name: gib(part.activation_bytes * part.count) for name, part in components(layer).items()}
    assert sizes == {"layer_norm": 0.75, "residual_add": 0.5, "router": 0.25, "self_attention": 0.51, "mlp": 16.19}
    assert components(layer)["mlp"].activation_bytes == 16384 * 37 * (8192 + 3 * 2048) * 2
    assert gib(layer.activation_bytes) == 18.20


def test_the_formula_of_attention_is_wider_than_its_example() -> None:
    """Its text counts softmax statistics as wide as the queries, its example 4 MB of them."""
    attention = components(only_layer(primus_memory(run(MOE_4_5T, (4, 4, 16384), cp=4))))["self_attention"]
    assert gib(attention.activation_bytes) == 0.76
    assert attention.activation_bytes == 16384 * (8192 + 2 * 128 + 8192 + 8192) * 2


def test_a_recomputed_layer_keeps_its_input() -> None:
    found = primus_memory(run(MOE_4_5T, (64, 4, 16384), cp=4, recompute="full"))
    assert gib(found.base_activation_bytes) == 0.25
    assert found.working_bytes == only_layer(found).activation_bytes
    outside = sum(component.activation_bytes for component in found.outside_layers)
    assert found.activation_bytes == found.base_activation_bytes + found.working_bytes + outside


def test_the_table_of_mixtral_8x22b_is_as_printed() -> None:
    found = primus_memory(PRINTED)
    moe = only_layer(found)
    dense = only_layer(primus_memory(run(replace(MIXTRAL_8X22B, layer_kinds=(), experts=None), pp=4, dp=8)))
    assert {name: gib(part.activation_bytes, 4) for name, part in components(moe).items()} == {
        "layer_norm": 0.1875,
        "self_attention": 0.625,
        "residual_add": 0.1875,
        "router": 0.1875,
        "mlp": 3.375,
    }
    assert gib(components(dense)["mlp"].activation_bytes, 4) == 1.6875
    assert (gib(dense.activation_bytes, 4), gib(moe.activation_bytes, 4)) == (3.25, 5.125)
    assert (dense.parameters, moe.parameters) == (390_107_136, 390_156_288)
    billions = {name: round(part.parameters / 1e9, 3) for name, part in components(moe).items()}
    assert billions == {"layer_norm": 0.0, "self_attention": 0.088, "residual_add": 0.0, "router": 0.0, "mlp": 0.302}
    (embedding,) = found.outside_layers
    assert (embedding.parameters, gib(embedding.activation_bytes, 4)) == (616_562_688, 0.1875)
    norm, output = primus_memory(PRINTED, pipeline_rank=3).outside_layers
    assert (gib(norm.activation_bytes, 4), output.parameters) == (0.1875, 616_562_688)
    assert gib(output.activation_bytes, 4) == 3.0625


def test_the_summary_of_mixtral_8x22b_is_as_printed() -> None:
    found = primus_memory(PRINTED)
    assert found.total_parameters == 140_845_350_912
    assert found.parameters == 6_078_750_720
    assert gib(found.state_bytes) == 79.26
    assert gib(found.activation_bytes) == 503.56
    assert gib(found.total_bytes) == 582.82


def test_the_factors_are_as_printed() -> None:
    assert primus_memory(PRINTED).factors.interleaved_penalty == 1 + 3 / 4
    small = replace(MIXTRAL_8X22B, layers=80, layer_kinds=(SPARSE,) * 80)
    assert round(primus_memory(run(small, pp=4, vpp=20, ep=8, dp=8)).factors.interleaved_penalty, 2) == 1.04
    assert primus_memory(run(MIXTRAL_8X22B, (4, 2, 8192), pp=4, ep=8, dp=8)).factors.ga_saving == 0.5
    assert primus_memory(PRINTED).factors.gradient_accumulation == 64  # 128 / (2 × 1): with the microbatch's size


def test_virtual_stages_are_dealt_in_turn() -> None:
    """55 layers on 8 virtual stages: all have 7 but the last, which is the last rank's."""
    model = replace(MIXTRAL_8X22B, layers=55, layer_kinds=(SPARSE,) * 55)
    counts = [primus_memory(run(model, pp=4, vpp=2, ep=8, dp=8), pipeline_rank=rank).layers[0][1] for rank in range(4)]
    assert counts == [14, 14, 14, 13]


def test_a_block_of_layers_is_recomputed_in_each_virtual_stage() -> None:
    plan: dict[str, Any] = {"pp": 4, "vpp": 2, "ep": 8, "dp": 8, "recompute": "full", "recompute_method": "block"}
    found = primus_memory(run(MIXTRAL_8X22B, **plan, recompute_layers=3))
    layer, count = found.layers[0]
    sbh = components(layer)["router"].activation_bytes
    assert (count, found.recomputed_layers) == (14, 6)
    assert found.base_activation_bytes == 6 * sbh + 8 * layer.activation_bytes
    assert found.activation_bytes == found.base_activation_bytes * 4 * 1.375 + layer.activation_bytes + sbh


def test_what_primus_has_no_formula_for_is_among_the_differences() -> None:
    assert "latent_attention" in primus_memory(run(DEEPSEEK_V2, (256, 1, 4096), pp=4, ep=8, dp=8)).differences
    assert (
        "multi_token_prediction"
        in primus_memory(run(replace(MIXTRAL_8X22B, mtp_layers=1), pp=4, ep=8, dp=8)).differences
    )
    assert "precision" in primus_memory(replace(PRINTED, precision="fp32")).differences
    assert not {"latent_attention", "precision", "linear_attention"} & set(primus_memory(PRINTED).differences)


def test_a_stage_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match=r"pipeline_rank: 4 is not below 4.*give 0 to 3"):
        primus_memory(PRINTED, pipeline_rank=4)
