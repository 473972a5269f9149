"""Layers under every parallelism: ranks together do the model's FLOPs once, and exchange what the papers say they do."""

from dataclasses import replace
from typing import Any

import pytest

from predict.layers.head import logits_again
from predict.rank.blocks import single
from predict.rank.share import RankShare, padded_vocabulary
from predict.run.model_flops import model_flops_per_token
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from predict.workload.chunks import ChunkCalls, sends_of_ranks
from predict.workload.layer import head_blocks, layer_blocks
from sampling.operators.attention import Attention
from sampling.operators.experts import GroupedGemm
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Stream
from sampling.operators.routing import Router
from tests.predict.workload.parallel_runs import (
    collectives,
    communication,
    counted,
    flops,
    layer_of,
    made,
    often,
    ranks,
    spec,
    step_us,
)
from tests.shipped_models import FORMS

DENSE, MOE, MLA = "llama3-70b", "qwen3-30b-a3b", "deepseek-v3"
BF16 = 2


def _tensor_bytes(run: TrainingRun) -> int:
    """One tensor [tokens, hidden] of a microbatch."""
    return BF16 * run.batch.micro * run.batch.seq_len * run.model.hidden


PLANS: list[tuple[str, int, dict[str, Any]]] = [
    (DENSE, 8, {}),
    (DENSE, 8, {"tp": 8}),
    (DENSE, 8, {"tp": 4, "sp": True}),
    (DENSE, 8, {"pp": 4, "dp": 2}),
    (DENSE, 8, {"pp": 2, "vpp": 2, "schedule": "interleaved-1f1b"}),
    (DENSE, 9, {"pp": 4, "layout": "1,2,2,4"}),
    (DENSE, 8, {"cp": 4, "dp": 2}),
    (DENSE, 8, {"cp": 2, "tp": 2, "cp_method": "all_to_all"}),
    (DENSE, 8, {"dp": 4, "zero": 3}),
    (MOE, 4, {}),
    (MOE, 4, {"dp": 8, "ep": 8}),
    (MOE, 4, {"dp": 8, "ep": 2, "etp": 2}),
    (MOE, 4, {"tp": 2, "sp": True, "dp": 4, "ep": 8}),
    (MOE, 4, {"tp": 4, "sp": True, "cp": 2, "dp": 2, "ep": 4, "etp": 2, "pp": 2}),
    (MLA, 6, {"dp": 8, "ep": 8}),
    (MLA, 6, {"tp": 4, "sp": True, "dp": 2, "ep": 8, "pp": 2}),
    (MLA, 6, {"tp": 2, "sp": True, "cp": 2, "dp": 2, "ep": 4, "etp": 2}),
]


@pytest.mark.parametrize(("model", "layers", "plan"), PLANS, ids=lambda value: str(value).replace(" ", ""))
def test_all_ranks_together_do_the_forward_flops_of_the_model(model: str, layers: int, plan: dict[str, Any]) -> None:
    """PaLM's convention, attention not halved for causality; and the logits of Megatron's padding, which ranks do compute."""
    run = made(replace(spec(model, layers), mtp_layers=0), **{f"plan__{name}": value for name, value in plan.items()})
    of_stage = run.plan.tp * run.plan.cp * run.plan.dp
    done = sum(flops(chunk.forward) for rank in ranks(run) for chunk in rank.chunks) * of_stage * run.microbatches
    tokens = run.batch.global_ * run.batch.seq_len
    padding = padded_vocabulary(run.model.vocab, run.plan.tp) - run.model.vocab
    expected = tokens * (model_flops_per_token(run.model, run.batch.seq_len) / 3 + 2 * padding * run.model.hidden)
    assert done == pytest.approx(expected, rel=1e-9)


DECODERS = [name for name in FORMS if not (spec(name).patches or spec(name).encoder)]
"""Without diffusion transformers and models beside an encoder, which do other work than that for each token: test_cross.py and
test_encoder_decoder.py hold them to their books."""
OTHER_RECURRENCE = 0.05
"""Chunked as kernels run it, a recurrence takes other FLOPs than one token at a time, as counted."""


@pytest.mark.parametrize("model", DECODERS)
def test_every_shipped_model_is_done_whole(model: str) -> None:
    """Windows of sliding layers are masked, not left out, where FLOPs are counted as torch does."""
    own = replace(spec(model), mtp_layers=0)
    seq_len = 4096 if own.rope else min(4096, own.max_positions)
    whole = own.qk_norm_all_heads or own.attention.index_width(own)
    tp = 2 if own.heads % 2 == own.kv_heads % 2 == 0 and not whole else 1
    run = made(own, plan__tp=tp, plan__sp=tp > 1, batch__seq_len=seq_len)
    done = sum(flops(chunk.forward) for rank in ranks(run) for chunk in rank.chunks) * tp * run.microbatches
    padding = 2 * (padded_vocabulary(own.vocab, tp) - own.vocab) * own.hidden
    shapes = [(own.mixer(kind), own.mixer(kind).reach(own, kind)) for kind in own.kinds()]
    masked = sum(2 * shape.score_width(own) * (seq_len - min(seq_len, reach)) for shape, reach in shapes if reach)
    gates = own.experts is not None and own.experts.shared_gate and 2 * own.hidden * sum(k.sparse for k in own.kinds())
    a_token = model_flops_per_token(own, seq_len) / 3 + padding + masked - gates
    tokens = run.batch.global_ * seq_len
    assert done == pytest.approx(
        tokens * a_token, rel=OTHER_RECURRENCE if any(mixer.IS_RECURRENT for mixer in own.mixers) else 1e-9
    )


@pytest.mark.parametrize(("model", "layers", "plan"), PLANS[:4] + PLANS[10:12], ids=str)
def test_a_backward_is_two_forwards_but_for_the_scores_that_flash_attention_computes_again(
    model: str, layers: int, plan: dict[str, Any]
) -> None:
    run = made(model, layers, **{f"plan__{name}": value for name, value in plan.items()})
    for rank in ranks(run):
        for chunk in rank.chunks:
            scores = sum(
                many * call.count * call.call.flops("forward") / 2
                for call, many in counted(chunk.forward)
                if isinstance(call.call, Attention)
            )
            assert flops(chunk.backward) == pytest.approx(2 * flops(chunk.forward) + scores, rel=1e-9)


RECOMPUTED: list[dict[str, Any]] = [
    {"plan__recompute": "none"},
    {"plan__recompute": "full"},
    {"plan__recompute": "full", "plan__recompute_method": "block"},
    {"plan__recompute": "ops"},
    {"plan__recompute": "selective", "plan__recompute_modules": "core_attn, moe"},
]


@pytest.mark.parametrize("recomputed", RECOMPUTED, ids=str)
def test_halves_of_a_backward_do_together_what_the_whole_does(recomputed: dict[str, Any]) -> None:
    """A forward is repeated once, before the inputs' half: the weights' takes what it made."""
    halves: dict[str, Any] = {"plan__pp": 2, "plan__schedule": "zb-h1", "plan__dp": 4, "plan__ep": 4}
    without = ranks(made(MOE, 4, **halves))
    for rank, same in zip(ranks(made(MOE, 4, **halves, **recomputed)), without, strict=True):
        for chunk, plain in zip(rank.chunks, same.chunks, strict=True):
            assert flops(chunk.backward_input) + flops(chunk.backward_weight) == pytest.approx(flops(chunk.backward))
            assert flops(chunk.backward_weight) == flops(plain.backward_weight)
            again = flops(chunk.backward_input) - flops(plain.backward_input)
            assert (again > 0) == (recomputed["plan__recompute"] != "none")
            assert again == pytest.approx(flops(chunk.backward) - flops(plain.backward))


# Megatron: two collectives forward and two backward around attention, and as many around the MLP's two products


def test_tensor_parallelism_all_reduces_twice_forward_and_twice_backward() -> None:
    run = made(DENSE, 2, plan__tp=8)
    layer = layer_of(run)
    assert often(layer.forward) == {"all_reduce": 2}
    assert often(layer.backward) == {"all_reduce": 2}
    sizes = {
        size for _, size, _ in collectives(single(layer.forward), "tp") + collectives(single(layer.backward), "tp")
    }
    assert sizes == {_tensor_bytes(run)}


def test_sequence_parallelism_gathers_and_scatters_in_pairs_and_gathers_each_input_once_more_in_backward() -> None:
    run = made(DENSE, 2, plan__tp=8, plan__sp=True)
    layer = layer_of(run)
    assert often(layer.forward) == {"all_gather": 2, "reduce_scatter": 2}
    column_parallel = 2
    assert often(layer.backward) == {"all_gather": 2 + column_parallel, "reduce_scatter": 2}
    assert {size for _, size, _ in collectives(single(layer.backward), "tp")} == {_tensor_bytes(run)}


def test_latent_attention_gathers_what_is_compressed_and_scatters_the_hidden_width() -> None:
    run = made(MLA, 1, plan__tp=8, plan__sp=True)
    gathered, scattered, *_ = collectives(single(layer_of(run).forward), "tp")
    compressed = 1536 + 512 + 64
    assert gathered == ("all_gather", BF16 * 4096 * compressed, 1.0)
    assert scattered == ("reduce_scatter", BF16 * 4096 * 7168, 1.0)


def test_ranks_alone_exchange_nothing() -> None:
    run = made(MLA, 5)
    for rank in ranks(run):
        assert [call for chunk in rank.chunks for call in chunk.send] == []
        assert (
            rank.end.blocking_reduction,
            rank.end.shared_weights_reduction,
            rank.end.gradient_reduction,
            rank.end.parameter_all_gather,
        ) == ((), (), (), ())
        assert [
            each.block.overlapped
            for chunk in rank.chunks
            for each in chunk.forward + chunk.backward
            if each.block.overlapped
        ] == []


@pytest.mark.parametrize("vocab_parallel_ranks", [1, 2, 8])
def test_the_loss_reduces_three_numbers_a_token_over_the_vocabulary(vocab_parallel_ranks: int) -> None:
    run = made(DENSE, 1, plan__tp=vocab_parallel_ranks)
    (rank,) = ranks(run)
    (chunk,) = rank.chunks
    of_a_number = 4 * run.batch.micro * run.batch.seq_len
    found = [count for _, size, count in collectives(chunk.forward, "tp") if size == of_a_number]
    assert sum(found) == (3 if vocab_parallel_ranks > 1 else 0)


@pytest.mark.parametrize(("ep", "etp"), [(1, 1), (8, 1), (4, 2), (1, 8), (2, 4)])
def test_tokens_go_to_their_experts_and_back_in_each_direction(ep: int, etp: int) -> None:
    run = made(MOE, 1, plan__dp=8, plan__ep=ep, plan__etp=etp)
    layer, experts = layer_of(run), run.model.experts
    assert experts is not None
    for block in (layer.forward, layer.backward):
        expected = {"all_to_all": 2.0} if ep > 1 else {}
        expected |= {"all_gather": 1.0, "reduce_scatter": 1.0} if etp > 1 else {}
        assert often(block, "ep") == expected
        for name, size, _ in collectives(single(block), "ep"):
            # a rank's own buffer, or what etp ranks gather of theirs
            assert size == _tensor_bytes(run) * experts.topk * (1 if name == "all_to_all" else etp)


@pytest.mark.parametrize("model", [DENSE, MLA])
@pytest.mark.parametrize("cp", [1, 2, 4, 8])
def test_a_context_parallel_rank_does_its_share_of_attention_and_not_the_square_of_it(model: str, cp: int) -> None:
    def attention(cp: int) -> tuple[float, float]:
        run = made(model, 4, plan__cp=cp)
        (rank,) = ranks(run)
        (chunk,) = rank.chunks
        return tuple(  # type: ignore[return-value]
            sum(
                many * call.count * call.call.executed_flops(call.phase)
                for call, many in counted(blocks)
                if isinstance(call.call, Attention)
            )
            for blocks in (chunk.forward, chunk.backward)
        )

    alone, shared = attention(1), attention(cp)
    # each piece of a ring has its own diagonal
    assert shared == pytest.approx([whole / cp for whole in alone], rel=cp / 4096)


def test_what_context_parallelism_exchanges_follows_from_its_method() -> None:
    cp, model = 4, spec(DENSE)
    keys = BF16 * 4096 // cp * 2 * model.kv_heads * model.head_dim
    queries = BF16 * 4096 // cp * model.heads * model.head_dim
    found = {}
    for method in ("ring", "all_to_all", "all_gather"):
        layer = layer_of(made(DENSE, 1, plan__cp=cp, plan__cp_method=method))
        found[method] = [collectives(single(block), "cp") for block in (layer.forward, layer.backward)]
    # keys and values go round; in backward so do their gradients
    assert found["ring"] == [[("send_recv", keys, cp - 1.0)], [("send_recv", 2 * keys, cp - 1.0)]]
    both_ways = [("all_to_all", keys + queries, 1.0), ("all_to_all", queries, 1.0)]
    assert found["all_to_all"] == [both_ways, both_ways]
    gathered = ("all_gather", cp * keys, 1.0)
    assert found["all_gather"] == [[gathered], [gathered, ("reduce_scatter", cp * keys, 1.0)]]


@pytest.mark.parametrize(
    ("plan", "share"),
    [
        ({}, 1),
        ({"cp": 2}, 2),
        ({"tp": 4, "sp": True}, 4),
        ({"tp": 2, "sp": True, "cp": 4}, 8),
    ],
    ids=str,
)
def test_a_stage_hands_on_its_share_of_the_residual_stream(plan: dict[str, Any], share: int) -> None:
    """B · S · H / cp, and / tp with sequence parallelism."""
    run = made(DENSE, 8, plan__pp=2, batch__micro=2, **{f"plan__{name}": value for name, value in plan.items()})
    (first,), (last,) = (rank.chunks for rank in ranks(run))
    assert communication(first.send) == [("send_recv", _tensor_bytes(run) // share, 1.0)]
    assert last.send == ()


def test_without_sequence_parallelism_ranks_send_a_share_each_and_gather_it_where_the_framework_does() -> None:
    shared, whole = (made(DENSE, 8, plan__pp=2, plan__tp=4, execution__split_p2p=split) for split in (True, False))
    size = _tensor_bytes(shared)
    assert communication(ranks(shared)[0].chunks[0].send) == [("send_recv", size // 4, 1.0), ("all_gather", size, 1.0)]
    assert communication(ranks(whole)[0].chunks[0].send) == [("send_recv", size, 1.0)]


def test_a_stage_on_another_node_is_reached_over_the_network() -> None:
    for tp, apart in ((4, 2), (8, 1)):
        run = made(DENSE, 8, plan__pp=2, plan__tp=tp, plan__sp=True)
        (sent,) = sends_of_ranks(run, registry.get("1f1b").placement(2, 1))[0][0]
        assert sent.call.fields()["ranks_per_node"] == apart


def test_fsdp_gathers_a_layer_forward_and_backward_and_scatters_its_gradients() -> None:
    layer = layer_of(made(DENSE, 1, plan__dp=8, plan__zero=3))
    assert often(layer.forward, "fsdp") == {"all_gather": 1}
    assert often(layer.backward, "fsdp") == {"all_gather": 1, "reduce_scatter": 1}
    weights = 855_654_400  # of one layer of llama3-70b: four projections, three matrices, two norms
    assert collectives(single(layer.forward), "fsdp") == [("all_gather", BF16 * weights, 1.0)]
    assert collectives(single(layer.backward), "fsdp")[1] == ("reduce_scatter", 4 * weights, 1.0)


def test_sharding_copies_what_it_gathers_and_widens_gradients_before_it_sums_them() -> None:
    def passes(block: str, **execution: Any) -> float:
        settings = {f"execution__{key}": value for key, value in execution.items()}
        layer = layer_of(made(DENSE, 1, plan__dp=8, plan__zero=3, **settings))
        moved = getattr(layer, block).overlapped
        streams = [one.call for each in moved for one in each.communication if isinstance(one.call, Stream)]
        return sum(call.size_bytes for call in streams) / 855_654_400

    assert passes("forward", copy_gathered=False) == 0
    assert passes("forward", copy_gathered=True) == 2 * BF16
    assert passes("backward", copy_gathered=False, fuse_gradients=False) == BF16 + 4
    assert passes("backward", copy_gathered=True, fuse_gradients=False) == 2 * BF16 + BF16 + 4
    assert passes("backward", copy_gathered=False, fuse_gradients=False, gradient_dtype="bf16") == 0
    assert passes("backward", copy_gathered=False, fuse_gradients=True) == 0


def test_gathering_and_scattering_share_the_work_that_hides_them() -> None:
    layer = layer_of(made(DENSE, 1, plan__dp=8, plan__zero=3))
    (both,) = (each for each in layer.backward.overlapped if each.heading == "fsdp")
    assert [one.call.NAME for one in both.communication] == ["all_gather", "reduce_scatter"]


def test_hybrid_sharding_adds_up_the_shards_of_its_copies() -> None:
    layer = layer_of(made(DENSE, 1, plan__dp=16, plan__zero=3, plan__shard=4))
    whole = collectives(single(layer.backward), "fsdp")
    assert [name for name, _, _ in whole] == ["all_gather", "reduce_scatter", "all_reduce"]
    assert whole[2][1] == whole[1][1] // 4


def test_each_rank_routes_its_share_of_the_sequence_and_does_as_many_rows_of_its_experts() -> None:
    run = made(MOE, 1, plan__tp=4, plan__sp=True, plan__dp=2, plan__ep=4, plan__etp=2)
    fields = {call.call.NAME: call.call.fields() for call in layer_of(run).forward.calls}
    assert fields["router"]["tokens"] == 4096 // 4
    assert fields["grouped_gemm"]["rows"] == 4096 // 4 * 8 * 2
    assert fields["grouped_gemm"]["groups"] == 128 // 4


# Recomputation: the work that a backward repeats, and the messages that it sends again.


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


def test_layers_that_stay_wide_are_those_of_a_run_in_16_bits() -> None:
    plan = {"plan__dp": 8, "plan__zero": 1}
    wide = made("llama3-8b", **plan, precision="fp8", execution__wide_first_layers=32)
    assert step_us(wide) == step_us(made("llama3-8b", **plan))
    ends = {"execution__wide_first_layers": 1, "execution__wide_last_layers": 2}
    some = made("llama3-8b", plan__pp=4, precision="fp8", **ends)
    assert [kind.wide for kind in some.model.kinds()] == [True, *29 * [False], True, True]
    dtypes = [
        {call.call.dtype for call, _ in counted(rank.chunks[0].forward) if isinstance(call.call, Gemm)}
        for rank in ranks(some)
    ]
    assert dtypes == [{"bf16", "fp8"}, {"fp8"}, {"fp8"}, {"bf16", "fp8"}]


def test_a_ring_runs_a_kernel_for_each_of_its_pieces() -> None:
    layer = layer_of(made("llama3-8b", plan__cp=4))
    (piece,) = [call for call, _ in counted(single(layer.forward)) if isinstance(call.call, Attention)]
    assert (piece.call.seq_len, piece.count) == (1024, 4)


@pytest.mark.parametrize("further", [0, 1, 2])
def test_each_further_token_makes_a_policys_logits_again_and_sums_the_gradients_of_its_layer(further: int) -> None:
    model = replace(spec(DENSE, 2), mtp_layers=further)
    settings = {"execution__elementwise": "eager", "adapters__kind": "lora", "adapters__rank": 16}
    rank = RankShare(run=made(model, tuning__task="policy", **settings))
    head, layer = head_blocks(rank, shares_embedding=False), layer_blocks(rank, model.mtp_kind)
    again = [[each for each in blocks.backward.calls if each.phase == "forward"] for blocks in (head, layer)]
    assert [each.call for each in again[0] if isinstance(each.call, Gemm)] == [
        logits.call for logits in logits_again(rank)
    ] * (1 + further)
    assert len(again[0]) == 1 + further * (len(again[1]) + 1) > further
