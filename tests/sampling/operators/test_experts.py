"""Experts and their tokens: who gets how many rows, grouped products against a loop, a permutation and its inverse."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from sampling.arithmetic.expert_rows import rows_of_groups
from sampling.errors import SamplesError
from sampling.hardware.cluster import Cluster
from sampling.operators.experts import GroupedGemm
from sampling.torch_work.cells.moe_layer import Mixture, make_moe_layer
from sampling.torch_work.kernels.grouped_product import by_loop, grouped_product, row_offsets
from sampling.torch_work.operators.experts import Experts
from sampling.torch_work.operators.routing import assignment, permute, route, unpermute
from tests.expert_calls import expert_mlp
from tests.sampling.cells.layer_shapes import MOE_LAYER

CPU = torch.device("cpu")
ROWS, GROUPS = st.integers(0, 10_000), st.integers(1, 300)


@given(rows=ROWS, groups=GROUPS, exponent=st.one_of(st.none(), st.floats(0, 50)))
def test_groups_get_all_rows_the_first_the_most(rows: int, groups: int, exponent: float | None) -> None:
    distribution = "balanced" if exponent is None else f"power_law_{exponent}"
    shared = rows_of_groups(rows, groups, distribution)
    assert len(shared) == groups
    assert sum(shared) == rows
    assert min(shared) >= 0
    assert list(shared) == sorted(shared, reverse=True)


@given(rows=ROWS, groups=GROUPS)
def test_balanced_groups_differ_by_one_row_at_most_and_are_the_flattest_power_law(rows: int, groups: int) -> None:
    shared = rows_of_groups(rows, groups, "balanced")
    assert max(shared) - min(shared) <= 1
    assert shared == rows_of_groups(rows, groups, "power_law_0")


@given(rows=ROWS, groups=GROUPS, exponent=st.floats(0, 3))
def test_a_steeper_power_law_gives_the_first_group_no_fewer(rows: int, groups: int, exponent: float) -> None:
    flat, steep = (rows_of_groups(rows, groups, f"power_law_{value}")[0] for value in (exponent, exponent + 0.5))
    assert steep >= flat - 1


@pytest.mark.parametrize("distribution", ["", "uniform", "power_law_", "power_law_x", "power_law_-1", "power_law_nan"])
def test_another_distribution_is_named(distribution: str) -> None:
    with pytest.raises(SamplesError, match=f"'{distribution}'"):
        rows_of_groups(10, 2, distribution)


@pytest.mark.parametrize(("dtype", "name"), [(torch.float32, "fp32"), (torch.bfloat16, "bf16")])
def test_grouped_products_are_those_of_a_loop(dtype: torch.dtype, name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 16, dtype=dtype, requires_grad=True)
    weight = torch.randn(3, 8, 16, dtype=dtype, requires_grad=True)
    offsets, gradient = row_offsets((7, 0, 5), CPU), torch.randn(12, 8, dtype=dtype)
    found = []
    for way in (grouped_product(CPU, name, 8, 16), by_loop):
        output = way(x, weight, offsets)
        found.append((output, *torch.autograd.grad(output, (x, weight), gradient)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_widths_that_no_grouped_kernel_takes_go_through_the_loop() -> None:
    assert grouped_product(CPU, "bf16", 30, 64) is by_loop


def test_tokens_are_assigned_as_often_as_experts_have_rows() -> None:
    assert torch.bincount(assignment((5, 3, 0, 2), 2, CPU).flatten(), minlength=4).tolist() == [5, 3, 0, 2]


def test_what_is_permuted_lies_sorted_by_expert_and_comes_back_weighted() -> None:
    x, chosen = torch.randn(6, 4), assignment((5, 3, 0, 4), 2, CPU)
    rows, order = permute(x, chosen)
    assert chosen.flatten()[order].tolist() == sorted(chosen.flatten().tolist())
    weights = torch.rand(6, 2)
    torch.testing.assert_close(unpermute(rows, weights, order), x * weights.sum(1, keepdim=True))


def test_a_router_weighs_the_likeliest_experts() -> None:
    x, weight = torch.randn(6, 4), torch.randn(5, 4)
    weights, chosen = route(x, weight, 2)
    assert (weights[:, 0] >= weights[:, 1]).all()
    torch.testing.assert_close(weights, (x @ weight.T).softmax(-1).gather(1, chosen))


def test_a_mixture_is_each_tokens_experts_weighted_by_the_router() -> None:
    torch.manual_seed(0)
    mixture = Mixture(MOE_LAYER, CPU)
    x = torch.randn(2, 8, 32)
    tokens = x.flatten(0, 1)
    weights, _ = route(tokens, mixture.router, 2)
    expected = torch.zeros_like(tokens)
    for token, (of_token, chosen) in enumerate(zip(weights, mixture.chosen, strict=True)):
        for share, expert in zip(of_token, chosen, strict=True):
            gate, up = (mixture.experts.up[expert] @ tokens[token]).chunk(2)
            expected[token] += share * (mixture.experts.down[expert] @ (functional.silu(gate) * up))
    torch.testing.assert_close(mixture(x).flatten(0, 1), expected)


def test_a_mixture_layers_weight_shapes_are_those_of_the_module_it_builds() -> None:
    built = sorted(tuple(weight.shape) for weight in make_moe_layer(MOE_LAYER, CPU).parameters())
    assert built == sorted(MOE_LAYER.weight_shapes())


def test_ungated_experts_have_one_matrix_up() -> None:
    experts = Experts(2, 8, 16, gated=False, dtype="fp32", device=CPU)
    assert experts(torch.randn(6, 8), row_offsets((4, 2), CPU)).shape == (6, 8)
    assert experts.up.shape == (2, 16, 8)


def test_the_weight_half_of_experts_is_their_products(two_ranks: Cluster) -> None:
    call = expert_mlp(dtype="fp32", tokens=64, hidden=32, inter=48, topk=2, experts=8, ep=2)
    halves = sum(call.flops(phase) for phase in ("backward_input", "backward_weight"))  # type: ignore[arg-type]
    assert halves == call.flops("backward") == 2 * call.flops("forward")
    assert {type(part.call) for part in call.parts("backward_weight")} == {GroupedGemm}
