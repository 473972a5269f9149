"""The real mixture against the transformers library's, and its grouped products against one product after the other."""

import pytest
import torch

from predict.measurement.decoder import initialise
from predict.measurement.mixture import Mixture, busiest_expert, by_loop, choose_products, grouped_product
from predict.model.spec import Experts

HIDDEN = 32
EXPERTS = Experts(count=4, topk=2, ffn=16)


def mixture() -> Mixture:
    torch.manual_seed(0)
    return Mixture(HIDDEN, EXPERTS).apply(initialise)


def test_outputs_and_gradients_are_the_librarys() -> None:
    pytest.importorskip("transformers")
    from transformers import Qwen3MoeConfig
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    config = Qwen3MoeConfig(
        hidden_size=HIDDEN,
        moe_intermediate_size=EXPERTS.ffn,
        num_experts=EXPERTS.count,
        num_experts_per_tok=EXPERTS.topk,
        norm_topk_prob=True,
    )
    config._experts_implementation = "grouped_mm"
    theirs, ours = Qwen3MoeSparseMoeBlock(config), mixture()
    choose_products(ours)
    theirs.gate.weight.data, theirs.experts.down_proj.data = ours.router.weight.data, ours.experts.down.data
    theirs.experts.gate_up_proj.data = ours.experts.gate_up.data
    x = torch.randn(2, 8, HIDDEN)
    torch.testing.assert_close(ours(x), theirs(x))
    ours(x).square().sum().backward()
    theirs(x).square().sum().backward()
    torch.testing.assert_close(ours.router.weight.grad, theirs.gate.weight.grad)
    torch.testing.assert_close(ours.experts.gate_up.grad, theirs.experts.gate_up_proj.grad)


def test_the_loop_computes_what_the_grouped_product_does() -> None:
    module, x = mixture(), torch.randn(1, 16, HIDDEN)
    assert choose_products(module) == "grouped"
    grouped = module(x)
    module.experts.product = by_loop
    torch.testing.assert_close(module(x), grouped)


def test_a_machine_without_grouped_products_takes_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("grouped gemm is not supported on this device")

    monkeypatch.setattr(torch.nn.functional, "grouped_mm", refuse, raising=False)
    assert grouped_product(torch.device("cpu"), torch.float32) is by_loop
    assert choose_products(mixture()) == "loop"
    assert choose_products(torch.nn.Linear(2, 2)) == ""


def test_the_busiest_expert_is_reported() -> None:
    module, x = mixture(), torch.randn(1, 64, HIDDEN)
    balanced = busiest_expert(module, lambda: module(x))
    module.router.weight.data[1:] = module.router.weight.data[:1]
    module.router.weight.data[0] *= 0  # ties are broken alike for all tokens but those that prefer the others
    crowded = busiest_expert(module, lambda: module(x))
    assert balanced is not None
    assert crowded is not None
    assert 1 <= balanced < crowded <= EXPERTS.count / EXPERTS.topk
    assert busiest_expert(torch.nn.Linear(2, 2), lambda: None) is None
