"""The memory profile torch-eager against what a layer that `predict measure` trains keeps for its backward, to the byte."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from predict import estimate
from predict.measurement.decoder import rope_tables, seeded_block
from predict.measurement.mixture import choose_products
from predict.model.spec import ModelSpec
from tests.predict.measurement.gpu_runs import DENSE, MIXTURE, gpu_run

SEQUENCES, LENGTH = 2, 128


def kept_bytes(model: ModelSpec) -> int:
    """Bytes that a layer keeps beside its weights and the rotary tables, without what its norms keep: on a CPU they are not fused."""
    block = seeded_block(model, 0, model.kinds()[0]).bfloat16()
    choose_products(block)
    block.attention_norm, block.mlp_norm = nn.Identity(), nn.Identity()
    tables = rope_tables(LENGTH, model.head_dim, torch.bfloat16)
    apart = {each.untyped_storage().data_ptr() for each in (*block.parameters(), *tables)}
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in apart:
            storages[storage.data_ptr()] = storage
        return tensor

    x = torch.randn(SEQUENCES, LENGTH, model.hidden, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = block(x, tables)
    assert output.requires_grad
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("model", [DENSE, MIXTURE], ids=["dense", "mixture"])
def test_a_layer_keeps_what_is_predicted(model: ModelSpec) -> None:
    model = replace(model, hidden=256, heads=4, kv_heads=2, head_dim=64, ffn=512)
    run = gpu_run(model, batch=(SEQUENCES, SEQUENCES, LENGTH))
    (layer,) = (activations for unit, _, activations in estimate(run).memory.units if unit.role == "layer")
    tokens = SEQUENCES * LENGTH
    assert layer.components["norm"] == 2 * tokens * (2 * model.hidden + 4)  # input and 1/σ of each fused norm
    assert layer.kept_bytes - layer.components["norm"] == kept_bytes(model)
