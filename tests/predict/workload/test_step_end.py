"""Weights that ranks hold, and what they do with their gradients once a step: reduce, clip, update, share out."""

from dataclasses import replace
from typing import Any

import pytest

from predict.layers.latent import LatentAttention
from predict.model.spec import LayerKind, ModelSpec
from predict.rank.share import layer_weights, padded_vocabulary
from predict.run.training_run import TrainingRun
from predict.workload.decompose import RankCalls
from predict.workload.layer import FUSED_SHARE
from sampling.operators.optimizer import AdamW
from tests.predict.workload.parallel_runs import collectives, communication, made, ranks, spec

DENSE, MOE, MLA, TIED = "llama3-70b", "qwen3-30b-a3b", "deepseek-v3", "gemma2-27b"


def _updated(rank: RankCalls) -> int:
    """Elements whose optimizer state a rank keeps; all that it holds without ZeRO."""
    (own,) = (call.call.parameters for call in rank.end.optimizer if isinstance(call.call, AdamW))
    return own


def _made(model: str | ModelSpec, layers: int, plan: dict[str, Any], **settings: Any) -> TrainingRun:
    settings = {f"plan__{name}": value for name, value in plan.items()} | settings
    return made(model, layers, **settings) if isinstance(model, str) else made(model, **settings)


def _experts(model: ModelSpec, kinds: tuple[LayerKind, ...]) -> int:
    return sum(kind.sparse for kind in kinds) * model.experts.routed_parameters(model) if model.experts else 0


def _whole_on_each_tensor_rank(model: ModelSpec, kinds: tuple[LayerKind, ...]) -> int:
    """Norms, router and what compresses latents, which tensor parallelism does not divide."""
    latent, experts = model.attention, model.experts
    down = (
        model.hidden * (latent.q_rank + latent.kv_rank + latent.rope_dim) if isinstance(latent, LatentAttention) else 0
    )
    routers = sum(kind.sparse for kind in kinds) * (
        sum(router.parameters for router in experts.routers(model)) if experts else 0
    )
    return len(kinds) * (model.norms_a_layer * model.norm_parameters + down) + routers + model.final_norm_parameters


PLANS: list[tuple[str, int, dict[str, Any]]] = [
    (DENSE, 8, {}),
    (DENSE, 8, {"tp": 8, "dp": 2}),
    (DENSE, 8, {"tp": 2, "pp": 4, "cp": 2}),
    (DENSE, 8, {"tp": 2, "pp": 2, "vpp": 2, "schedule": "interleaved-1f1b"}),
    (DENSE, 9, {"pp": 4, "layout": "Et|tt|tt|t*4L"}),
    (MOE, 4, {"dp": 8}),
    (MOE, 4, {"dp": 8, "ep": 8}),
    (MOE, 4, {"dp": 8, "ep": 2, "etp": 2}),
    (MOE, 4, {"tp": 2, "sp": True, "cp": 2, "dp": 2, "ep": 8, "pp": 2}),
    (MLA, 6, {"dp": 8, "ep": 8}),
    (MLA, 6, {"tp": 4, "sp": True, "dp": 2, "ep": 4, "etp": 2, "pp": 3}),
    (TIED, 4, {"tp": 2, "dp": 2}),
]


@pytest.mark.parametrize(("model", "layers", "plan"), PLANS, ids=str)
def test_all_ranks_together_hold_the_model_as_often_as_there_are_replicas(
    model: str, layers: int, plan: dict[str, Any]
) -> None:
    """Dense parts once a replica (dp · cp), what tp does not divide once a tensor rank too, experts once a replica of
    their own; and the rows of Megatron's padded vocabulary. The norms of heads and latents are counted as divided."""
    run = _made(replace(spec(model, layers), mtp_layers=0), 0, plan)
    own, p = run.model, run.plan
    stage_ranks = p.tp * p.cp * p.dp
    held = sum(_updated(rank) for rank in ranks(run)) * stage_ranks
    tables = 1 if own.tied else 2
    padding = tables * own.hidden * (padded_vocabulary(own.vocab, p.tp) - own.vocab)
    experts, whole = _experts(own, own.kinds()), _whole_on_each_tensor_rank(own, own.kinds())
    divided = own.parameters - experts - whole + padding
    expected = p.cp * p.dp * (divided + p.tp * whole) + stage_ranks // (p.ep * p.etp) * experts
    assert held == pytest.approx(expected, rel=1e-6)


def test_a_key_and_value_head_is_copied_to_the_tensor_ranks_that_share_it() -> None:
    model = spec(DENSE, 2)  # 8 key and value heads
    on_eight, on_sixteen = (
        _updated(ranks(_made(model, 0, {"tp": tp}))[0]) - (model.layers * 2 + 1) * model.hidden for tp in (8, 16)
    )
    of_a_head = model.layers * 2 * model.hidden * model.head_dim
    padding = 2 * model.hidden * (padded_vocabulary(model.vocab, 16) - padded_vocabulary(model.vocab, 8))
    assert 2 * on_sixteen - on_eight == of_a_head + padding // 8


def test_multi_token_prediction_is_held_by_the_last_stage() -> None:
    model = spec(MLA, 6)
    first, last = (
        [_updated(rank) for rank in ranks(_made(replace(model, mtp_layers=layers), 0, {"pp": 2}))] for layers in (0, 1)
    )
    assert last[0] == first[0]
    # a layer, a projection of hidden state and embedding with a norm for either, a norm before the shared head
    module = model.layer_parameters_of(model.mtp_kind) + 2 * model.hidden**2 + 3 * model.hidden
    assert last[1] - first[1] == module


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("model", "layers", "plan"), [plan for plan in PLANS if plan[2].get("dp", 1) > 1], ids=str)
def test_replicas_reduce_the_gradients_of_what_they_hold(
    model: str, layers: int, plan: dict[str, Any], dtype: str
) -> None:
    item = {"fp32": 4, "bf16": 2}[dtype]
    run = _made(replace(spec(model, layers), mtp_layers=0), 0, plan, execution__gradient_dtype=dtype)
    alone_with_experts = run.plan.tp * run.plan.cp * run.plan.dp == run.plan.ep * run.plan.etp
    kinds = list(run.model.kinds())
    for rank in ranks(run):
        own, kinds = tuple(kinds[: rank.layers]), kinds[rank.layers :]
        calls = communication(rank.end.gradient_reduction)
        assert {name for name, _, _ in calls} == {"all_reduce"}
        # a rank alone with its experts has nobody to add their gradients up with
        kept = _experts(run.model, own) // (run.plan.ep * run.plan.etp) if alone_with_experts else 0
        assert sum(size for _, size, _ in calls) == item * (_updated(rank) - kept)


def test_zero_scatters_gradients_in_fp32_and_gathers_weights_in_sixteen_bits() -> None:
    held = _updated(ranks(made(DENSE, 4, plan__dp=8))[0])
    for zero, at_the_end in ((1, [("reduce_scatter", 4 * held, 1.0)]), (2, [])):
        (rank,) = ranks(made(DENSE, 4, plan__dp=8, plan__zero=zero))
        assert communication(rank.end.gradient_reduction) == at_the_end
        assert communication(rank.end.parameter_all_gather) == [("all_gather", 2 * held, 1.0)]
        assert _updated(rank) == held // 8


def test_zero_shards_the_optimizer_over_context_ranks_too() -> None:
    whole, shared = (ranks(made(DENSE, 4, plan__dp=2, plan__cp=4, plan__zero=zero))[0] for zero in (0, 1))
    assert _updated(shared) == _updated(whole) // 8


def test_fsdp_moves_layers_in_the_pipeline_and_nothing_at_its_end() -> None:
    (rank,) = ranks(made(DENSE, 4, plan__dp=8, plan__zero=3))
    assert (rank.end.gradient_reduction, rank.end.parameter_all_gather) == ((), ())
    (chunk,) = rank.chunks
    held = _updated(ranks(made(DENSE, 4, plan__dp=8))[0])
    gathered = sum(size * count for _, size, count in collectives(chunk.forward, "fsdp"))
    backward = collectives(chunk.backward, "fsdp")
    assert gathered == 2 * held
    assert sum(size * count for name, size, count in backward if name == "all_gather") == 2 * held
    assert sum(size * count for name, size, count in backward if name == "reduce_scatter") == 4 * held


def test_hybrid_sharding_reduces_a_shard_over_its_copies() -> None:
    held = _updated(ranks(made(DENSE, 4, plan__dp=16))[0])
    (rank,) = ranks(made(DENSE, 4, plan__dp=16, plan__zero=1, plan__shard=4))
    assert communication(rank.end.gradient_reduction) == [("reduce_scatter", 4 * held, 1.0), ("all_reduce", held, 1.0)]
    assert _updated(rank) == held // 4
    assert [call.call.fields()["ranks"] for call in rank.end.gradient_reduction] == [4, 4]


@pytest.mark.parametrize(
    ("dp", "ep", "shard", "expert_groups"),
    [
        (16, 2, 4, [("reduce_scatter", 2), ("all_reduce", 4)]),
        (16, 2, 0, [("reduce_scatter", 8)]),
        (16, 8, 8, [("all_reduce", 2)]),
        (16, 16, 8, []),
    ],
)
def test_hybrid_sharding_keeps_as_many_copies_of_the_experts(
    dp: int, ep: int, shard: int, expert_groups: list[tuple[str, int]]
) -> None:
    """Megatron's instances of its distributed optimizer do so: every replica of an expert has its gradient added up."""
    run = made(MOE, 4, plan__dp=dp, plan__ep=ep, plan__zero=1, plan__shard=shard)
    (rank,) = ranks(run)
    experts = _experts(run.model, run.model.kinds()) // ep
    of_dense = 2 if shard else 1
    calls = [(call.call.NAME, call.call.fields()["ranks"]) for call in rank.end.gradient_reduction]
    assert calls[of_dense:] == expert_groups
    sizes = [size for _, size, _ in communication(rank.end.gradient_reduction)][of_dense:]
    copied = [4 * experts // 2] if len(expert_groups) > 1 else []
    assert sizes == ([4 * experts, *copied] if expert_groups else [])


def test_an_all_reduce_leaves_all_gradients_on_every_rank_where_the_framework_asks_for_it() -> None:
    held = _updated(ranks(made(DENSE, 4, plan__dp=8))[0])
    (rank,) = ranks(made(DENSE, 4, plan__dp=8, plan__zero=1, execution__sharded_reduction="all_reduce"))
    assert communication(rank.end.gradient_reduction) == [("all_reduce", 4 * held, 1.0)]


def test_experts_are_reduced_over_the_ranks_that_hold_the_same() -> None:
    run = made(MOE, 4, plan__tp=2, plan__sp=True, plan__dp=16, plan__ep=4, plan__etp=2)
    (rank,) = ranks(run)
    assert [call.call.fields()["ranks"] for call in rank.end.gradient_reduction] == [16, 4]
    experts = _experts(run.model, run.model.kinds()) // (4 * 2)
    assert [size for _, size, _ in communication(rank.end.gradient_reduction)] == [
        4 * (_updated(rank) - experts),
        4 * experts,
    ]


def _passes(rank: RankCalls) -> float:
    """Bytes a parameter that the step moves beside the optimizer's own."""
    stream, *_ = (call.call.fields()["size_bytes"] for call in rank.end.optimizer if call.call.NAME == "stream")
    return float(stream) / _updated(rank)


@pytest.mark.parametrize(
    ("precision", "recipe", "bytes_a_weight"),
    # read in 16 bits, for nvfp4 twice, and written by rows and by columns; a microscaled recipe of nemo keeps fp8 weights alone
    [
        ("bf16", "", 0),
        ("fp8", "blockwise", 4),
        ("fp8", "mxfp8", 0),
        ("nvfp4", "", 4 + 2 * 0.5625),
        ("mxfp4", "", 2 + 2 * 0.53125),
    ],
)
def test_weights_of_fewer_bits_are_made_once_a_step_where_they_are_gathered_in_16(
    precision: str, recipe: str, bytes_a_weight: float
) -> None:
    blackwell = {"hardware": "b200", "profile": "nowhere"}
    settings: dict[str, Any] = {"execution__framework": "nemo", "execution__fp8_recipe": recipe} if recipe else {}
    run = made(DENSE, 2, cluster=blackwell, precision=precision, plan__dp=8, plan__zero=1, batch__global=64, **settings)
    plain = made(
        DENSE,
        2,
        cluster=blackwell,
        plan__dp=8,
        plan__zero=1,
        batch__global=64,
        **settings | {"execution__fp8_recipe": ""},
    )
    more = _streamed(ranks(run)[0]) - _streamed(ranks(plain)[0])
    of_layers = sum(layer_weights(run.model, run.plan, kind).total for kind in run.model.kinds())
    assert more == pytest.approx(bytes_a_weight * of_layers, rel=1e-6)


def test_fp8_weights_are_gathered_in_half_the_bytes() -> None:
    def gathered(precision: str) -> float:
        run = made(DENSE, 40, precision=precision, execution__framework="nemo", plan__dp=8, plan__zero=1)
        return sum(call.call.fields()["size_bytes"] for call in ranks(run)[0].end.parameter_all_gather)

    assert 0.5 < gathered("fp8") / gathered("bf16") < 0.55, "embedding and head stay in 16 bits"


def test_the_bucket_of_the_embedding_is_the_one_that_nothing_hides() -> None:
    first, *_, last = ranks(made(DENSE, 8, plan__pp=4, plan__dp=8, plan__zero=1))
    assert 0 < first.end.exposed_bucket_share < 1
    assert last.end.exposed_bucket_share == 0
    (whole,) = ranks(made(DENSE, 8, plan__dp=8, plan__zero=3))
    assert whole.end.exposed_bucket_share == 0, "layers are gathered one by one"


def _streamed(rank: RankCalls) -> float:
    return sum(call.call.fields()["size_bytes"] for call in rank.end.optimizer if call.call.NAME == "stream")


@pytest.mark.parametrize(
    ("settings", "bytes_a_parameter"),
    [
        # squares of fp32 gradients 4, weights from their master 4 + 2, gradients set to 0 4
        ({}, 14.0),
        ({"execution__clip_gradients": False}, 10.0),
        ({"execution__master_weights": False}, 8.0),
        ({"execution__loss_scaling": True}, 22.0),
        ({"execution__gradient_dtype": "bf16"}, 12.0),
        ({"batch__global": 1}, 10.0),
        ({"precision": "fp8"}, 14.0),
    ],
    ids=str,
)
def test_what_mixed_precision_moves_beside_the_optimizer(settings: dict[str, Any], bytes_a_parameter: float) -> None:
    (rank,) = ranks(made(DENSE, 2, **settings))
    assert _passes(rank) == pytest.approx(bytes_a_parameter)


def test_only_zero_two_sets_to_zero_a_share_of_the_gradients() -> None:
    # 10 bytes of the shard; 4 of all gradients, which are eight shards
    assert [_passes(ranks(made(DENSE, 2, plan__dp=8, plan__zero=zero))[0]) for zero in (1, 2, 3)] == pytest.approx(
        [10 + 8 * 4, 14, 14]
    )


def test_muon_adds_products_on_the_shard() -> None:
    adamw, muon = (ranks(made(DENSE, 2, execution__optimizer=name))[0] for name in ("adamw", "muon"))
    more = [call for call in muon.end.optimizer if call not in adamw.end.optimizer]
    width = 8192
    assert [call.call.NAME for call in more] == ["gemm"]
    # five steps of three products
    assert more[0].count == pytest.approx(15 * _updated(muon) / width**2)


def test_tied_tables_on_two_stages_add_up_their_gradients() -> None:
    apart, together = (ranks(made(TIED, 4, plan__pp=pp, plan__tp=2)) for pp in (2, 1))
    assert [[name for name, _, _ in communication(rank.end.shared_weights_reduction)] for rank in apart] == [
        ["all_reduce"]
    ] * 2
    assert [rank.end.shared_weights_reduction for rank in together] == [()]
    untied = ranks(made(DENSE, 4, plan__pp=2))
    assert [rank.end.shared_weights_reduction for rank in untied] == [(), ()]


def test_gradients_of_later_microbatches_are_added_to_the_first() -> None:
    def moved(**settings: Any) -> float:
        (rank,) = ranks(made(DENSE, 2, **settings))
        blocks = rank.chunks[0].backward
        streams = [(each, call) for each in blocks for call in each.block.calls if call.call.NAME == "stream"]
        return sum(each.count * call.count * float(call.call.fields()["size_bytes"]) for each, call in streams)

    held = _updated(ranks(made(DENSE, 2))[0])
    assert moved(batch__global=1) == 0
    # the fp32 sum is read and written by all microbatches but the first, mostly beside the product; a pass of its own reads the bf16 gradients too, and
    # copies the first
    assert moved(batch__global=4) == pytest.approx(FUSED_SHARE * 8 * held * 3 / 4)
    assert moved(batch__global=4, execution__fuse_gradients=False) == pytest.approx((10 * 3 + 6) * held / 4)
    assert moved(batch__global=1, execution__fuse_gradients=False) == pytest.approx(6 * held)
    assert moved(batch__global=1, execution__fuse_gradients=False, execution__gradient_dtype="bf16") == 0
    assert moved(batch__global=4, execution__gradient_dtype="bf16") == pytest.approx(FUSED_SHARE * 4 * held * 3 / 4)


def test_a_stage_without_adapters_updates_nothing() -> None:
    plan = {"plan__pp": 2, "plan__layout": "E|" + "t" * 32 + "L"}
    optimizers = [rank.end.optimizer for rank in ranks(made("llama3-8b", **plan, adapters__kind="lora"))]
    assert [bool(calls) for calls in optimizers] == [False, True]
