"""Recomputation: the work that a backward repeats, and the messages that it sends again."""

from __future__ import annotations

from typing import Any

import pytest

from predict.rank.blocks import single
from predict.workload.chunks import ChunkCalls
from sampling.operators.attention import Attention
from sampling.operators.experts import GroupedGemm
from sampling.operators.routing import Router
from tests.predict.workload.parallel_runs import collectives, flops, layer_of, made, often, ranks

DENSE, MOE = "llama3-70b", "qwen3-30b-a3b"


def test_full_recomputation_makes_it_six_all_reduces_a_layer_and_microbatch() -> None:
    run = made(DENSE, 1, plan__tp=8, plan__recompute="full")
    layer = layer_of(run)
    whole = [often(block)["all_reduce"] for block in (layer.forward, layer.again, layer.backward)]
    assert sum(whole) == 6
    (rank,) = ranks(run)
    (chunk,) = rank.chunks
    ends = sum(often(each.block).get("all_reduce", 0) for each in chunk.forward + chunk.backward) - 6
    # of the embedding one, of the head's input one in backward, of the vocabulary-parallel loss three
    assert ends == 5


def test_full_recomputation_sends_tokens_to_their_experts_again() -> None:
    layer = layer_of(made(MOE, 1, plan__dp=8, plan__ep=8, plan__recompute="full"))
    assert [often(block, "ep") for block in (layer.forward, layer.again, layer.backward)] == [{"all_to_all": 2.0}] * 3


def test_selective_recomputation_repeats_the_named_modules_alone() -> None:
    def repeated(modules: str) -> float:
        layer = layer_of(
            made(MOE, 1, plan__dp=8, plan__ep=8, plan__recompute="selective", plan__recompute_modules=modules)
        )
        plain = layer_of(made(MOE, 1, plan__dp=8, plan__ep=8))
        return flops(single(layer.backward)) - flops(single(plain.backward))

    forward = layer_of(made(MOE, 1, plan__dp=8, plan__ep=8)).forward
    of_attention = sum(call.call.flops("forward") for call in forward.calls if isinstance(call.call, Attention))
    of_experts = sum(
        call.call.flops("forward") for call in forward.calls if isinstance(call.call, GroupedGemm | Router)
    )
    assert repeated("core_attn") == pytest.approx(of_attention)
    assert repeated("moe") == pytest.approx(of_experts)
    assert repeated("core_attn, moe") == pytest.approx(of_attention + of_experts)
    assert repeated("moe_act") == repeated("layernorm") == 0


def test_recomputation_by_operators_repeats_half_of_the_products_and_no_attention() -> None:
    plain, again = (layer_of(made(DENSE, 1, plan__recompute=recompute)) for recompute in ("none", "ops"))
    products = sum(call.call.flops("forward") * call.count for call in plain.forward.calls if call.call.KIND == "gemm")
    assert flops(single(again.backward)) - flops(single(plain.backward)) == pytest.approx(products / 2)


def test_recomputation_by_operators_gathers_again_and_reduces_nothing_again() -> None:
    def names(recompute: str) -> list[str]:
        run = made(DENSE, 1, plan__tp=8, plan__sp=True, plan__recompute=recompute)
        return [name for name, _, _ in collectives(single(layer_of(run).backward), "tp")]

    plain, again = names("none"), names("ops")
    assert again.count("all_gather") == plain.count("all_gather") + 2
    assert again.count("reduce_scatter") == plain.count("reduce_scatter")


@pytest.mark.parametrize(("method", "layers", "share"), [("uniform", 1, 8), ("block", 3, 3), ("block", 99, 8)])
def test_full_recomputation_takes_all_layers_or_the_first_of_a_chunk(method: str, layers: int, share: int) -> None:
    def backward(**plan: Any) -> ChunkCalls:
        (rank,) = ranks(made(DENSE, 8, **plan))
        return rank.chunks[0]

    plain = backward()
    again = backward(plan__recompute="full", plan__recompute_method=method, plan__recompute_layers=layers)
    one_layer = flops(single(layer_of(made(DENSE, 8)).forward))
    assert flops(again.backward) - flops(plain.backward) == pytest.approx(share * one_layer)
