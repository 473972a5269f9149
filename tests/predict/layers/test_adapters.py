"""Adapters: their weights, what frozen weights leave out of a step, and what is held in memory."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from predict.layers.adapters import (
    adapters_of,
    gathered_in_layer,
    quantised_in_layer,
    trained_in_layer,
    unknown_targets,
)
from predict.memory.activations import layer_activations
from predict.memory.estimate import memory_of
from predict.memory.state import chunks_of_ranks, state_of_unit, trained_of_unit
from predict.model.spec import LayerKind
from predict.rank.groups import groups_of
from predict.rank.share import RankShare, layer_weights
from predict.run.adapters import Adapters
from predict.run.frameworks import memory_profile_of
from predict.run.stages import stages_of_ranks
from predict.run.training_run import TrainingRun
from predict.workload.layer import LayerBlocks, head_blocks, layer_blocks
from predict.workload.step_end import trained_end_weights_of
from sampling.call import Counted
from sampling.errors import ConfigError
from sampling.operators.dequantise import STORED_BYTES, Dequantise
from sampling.operators.experts import GroupedGemm
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Stream
from tests.predict.layers.saved_bytes import BF16, FP32, saved_bytes
from tests.predict.layers.test_saved_tensors import llama, llama_layer, run_of
from tests.predict.memory.counted_layers import PROFILES
from tests.predict.workload.parallel_runs import collectives, counted, estimated, flops, made, ranks, spec

LORA: dict[str, Any] = {"adapters__kind": "lora", "adapters__rank": 16}
HIDDEN, FFN, KV = 8192, 28672, 1024
"""Of Llama-3-70B."""


def trained(run: TrainingRun) -> int:
    (kind,) = set(run.model.kinds())
    return trained_in_layer(run, kind).total


@pytest.mark.parametrize(
    ("settings", "sides"),
    [
        ({}, 2 * (HIDDEN + HIDDEN) + 2 * (HIDDEN + KV) + 3 * (HIDDEN + FFN)),
        ({"adapters__targets": "attention"}, 2 * (HIDDEN + HIDDEN) + 2 * (HIDDEN + KV)),
        ({"adapters__targets": "qkv", "adapters__joint": True}, HIDDEN + HIDDEN + 2 * KV),
        ({"adapters__targets": "linear_fc2,o_proj"}, HIDDEN + FFN + 2 * HIDDEN),
        ({"adapters__targets": "q_proj, v_proj"}, 2 * HIDDEN + HIDDEN + KV),
        ({"adapters__targets": "linear_qkv", "adapters__joint": True}, HIDDEN + HIDDEN + 2 * KV),
        ({"adapters__targets": "gate_proj"}, HIDDEN + FFN),
        ({"adapters__targets": "w1,w2,w3"}, 3 * (HIDDEN + FFN)),
        # A of a column-parallel product is whole on each rank, as is B of a row-parallel one
        ({"adapters__targets": "attention", "plan__tp": 8}, 2 * (HIDDEN + HIDDEN // 8) + 2 * (HIDDEN + KV // 8)),
    ],
    ids=str,
)
def test_adapters_have_the_weights_of_both_sides_of_a_product_times_their_rank(
    settings: dict[str, Any], sides: int
) -> None:
    assert trained(made("llama3-70b", 2, **LORA, **settings)) == 16 * sides


def test_dora_trains_a_magnitude_for_each_output_too() -> None:
    lora, dora = (trained(made("llama3-70b", 2, **{**LORA, "adapters__kind": kind})) for kind in ("lora", "dora"))
    assert dora - lora == HIDDEN + 2 * KV + HIDDEN + 2 * FFN + HIDDEN


def test_experts_of_a_rank_have_adapters_of_their_own() -> None:
    run = made("qwen3-30b-a3b", 2, plan__dp=8, plan__ep=8, **LORA)
    (kind,) = set(run.model.kinds())
    assert {each.experts for each in adapters_of(run, kind)} == {0, 128 // 8}


def test_the_backward_of_frozen_products_is_that_of_their_input() -> None:
    (rank,) = ranks(made("llama3-70b", 2, **LORA))
    (chunk,) = rank.chunks
    gemms = [call for call, _ in counted(chunk.backward) if isinstance(call.call, Gemm)]
    small = [call for call in gemms if isinstance(call.call, Gemm) and 16 in (call.call.n, call.call.k)]
    big = [call for call in gemms if call not in small]
    assert {call.phase for call in big} == {"backward_input"}
    assert {call.phase for call in small} == {"backward"}


@pytest.mark.parametrize("model", ["llama3-70b", "deepseek-v3"])
def test_a_step_of_adapters_is_between_two_thirds_and_all_of_one_that_trains_everything(model: str) -> None:
    whole, adapted = (estimated(made(model, 4, batch__global=64, **each)) for each in ({}, LORA))
    assert 0.6 < adapted.step_time.median_us / whole.step_time.median_us < 1.0
    assert adapted.breakdown_us["optimizer"] < whole.breakdown_us["optimizer"] / 20


def test_frozen_weights_have_neither_gradients_nor_moments() -> None:
    whole, adapted = (
        memory_of(made("llama3-70b", 8, plan__dp=8, batch__global=8, **each)).ranks[0] for each in ({}, LORA)
    )
    assert adapted.optimizer < whole.optimizer / 50
    assert adapted.resident_gradients < whole.resident_gradients / 50
    assert adapted.parameters == pytest.approx(whole.parameters, rel=0.02)


def test_a_larger_rank_takes_longer() -> None:
    steps = [
        estimated(made("llama3-70b", 4, **{**LORA, "adapters__rank": rank})).step_time.median_us
        for rank in (8, 64, 256)
    ]
    assert steps == sorted(steps)


def test_dora_keeps_the_scales_of_adapters_that_a_microbatch_sees() -> None:
    """Of a hundred at once, those of its one sequence."""
    batch, dora = {"global": 100, "micro": 1, "seq_len": 512}, {"kind": "dora", "targets": "q_proj"}

    def kept(many: int) -> float:
        run = made("llama3-8b", batch=batch, adapters={**dora, "at_once": many})
        return layer_activations(
            RankShare(run=run), run.model.kinds()[0], PROFILES["eager"], recompute="none"
        ).kept_bytes

    assert kept(100) == kept(1)


def test_adapters_at_once_share_the_tokens_and_have_weights_of_their_own() -> None:
    """As many FLOPs and kept bytes as one, in more and smaller products, and the state of each."""
    batch = {"global": 8, "micro": 4, "seq_len": 512}
    one, four = (
        made("llama3-8b", batch=batch, adapters={"kind": "lora", "targets": "q_proj,v_proj", "at_once": many})
        for many in (1, 4)
    )
    kind = one.model.kinds()[0]
    assert trained_in_layer(four, kind).total == 4 * trained_in_layer(one, kind).total
    (alone,), (together,) = (ranks(run) for run in (one, four))
    for half in ("forward", "backward"):
        blocks = [getattr(rank.chunks[0], half) for rank in (alone, together)]
        assert flops(blocks[0]) == pytest.approx(flops(blocks[1]))
    products = {
        call.call.m
        for call, _ in counted(together.chunks[0].forward)
        if isinstance(call.call, Gemm) and call.call.n == 16
    }
    assert products == {512}
    states = [memory_of(run).worst for run in (one, four)]
    assert states[1].optimizer == 4 * states[0].optimizer
    assert states[1].activations == states[0].activations
    assert estimated(one).step_time.median_us < estimated(four).step_time.median_us


def test_a_microbatch_has_no_more_adapters_than_sequences() -> None:
    batch = {"global": 8, "micro": 2, "seq_len": 512}
    for at_once in (8, 9):  # of nine, one waits
        run = made("llama3-8b", batch=batch, adapters={"kind": "lora", "targets": "q_proj", "at_once": at_once})
        (rank,) = ranks(run)
        calls = [call.call for call, _ in counted(rank.chunks[0].forward)]
        assert {call.m for call in calls if isinstance(call, Gemm) and call.n == 16} == {512}


def test_nothing_is_trained_beside_all_weights() -> None:
    assert not Adapters().are_trained
    assert adapters_of(made("llama3-70b", 2), LayerKind()) == ()


def test_keys_of_adapters_without_their_kind_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"adapters\.kind: missing, so that rank, targets would change nothing"):
        made("llama3-70b", 2, adapters__rank=8, adapters__targets="qkv")
    assert not made("llama3-70b", 2, adapters__kind="none", adapters__rank=8).adapters.are_trained


def test_a_target_is_a_matrix_of_the_model() -> None:
    wrong, known = unknown_targets(Adapters(targets="q_proj,kv_b_proj,router"), spec("llama3-70b"))
    assert wrong == ["kv_b_proj", "router"]
    assert {"all", "attention", "mlp", "qkv", "q_proj", "down_proj"} <= set(known)
    assert unknown_targets(Adapters(targets="q_a_proj,linear_kv_up_proj,mlp"), spec("deepseek-v3"))[0] == []


# Mixtures, latent attention, and what predicts more tokens.

SPARSE = LayerKind(sparse=True)


def test_dora_trains_magnitudes_of_every_expert_and_of_latent_projections() -> None:
    lora, dora = (
        trained_in_layer(made("deepseek-v3", 4, plan__dp=8, plan__ep=8, **{**LORA, "adapters__kind": kind}), SPARSE)
        for kind in ("lora", "dora")
    )
    model = spec("deepseek-v3")
    of_attention = sum(matrix.outputs for matrix in model.attention.matrices(model))
    shared = 2 * 2048 + 7168
    assert dora.dense - lora.dense == of_attention + shared
    assert dora.experts - lora.experts == 256 // 8 * (2 * 2048 + 7168)


def adapter_calls(blocks: LayerBlocks, phase: str) -> list[Counted]:
    return [
        each for each in getattr(blocks, phase).calls if 16 in (getattr(each.call, "n", 0), getattr(each.call, "k", 0))
    ]


def test_the_norms_of_dora_run_in_the_forward_alone() -> None:
    lora, dora = (
        layer_blocks(RankShare(run=made("llama3-70b", 1, **{**LORA, "adapters__kind": kind})), LayerKind())
        for kind in ("lora", "dora")
    )
    assert (
        len(adapter_calls(dora, "forward")) - len(adapter_calls(lora, "forward")) == 7
    )  # a product of B and A per matrix
    assert len(dora.backward.calls) == len(lora.backward.calls)


def test_adapters_of_experts_see_the_rows_of_the_busiest_rank() -> None:
    even, uneven = (
        layer_blocks(
            RankShare(run=made("qwen3-30b-a3b", 2, plan__dp=8, plan__ep=8, execution__expert_load=load, **LORA)), SPARSE
        )
        for load in ("balanced", "1.5")
    )
    rows = [
        {each.call.rows for each in adapter_calls(blocks, "forward") if isinstance(each.call, GroupedGemm)}
        for blocks in (even, uneven)
    ]
    assert rows[1] == {round(1.5 * row) for row in rows[0]}


def test_what_predicts_more_tokens_is_frozen_but_for_its_adapters() -> None:
    run = made("deepseek-v3", 4, plan__zero=3, plan__dp=8, **LORA)
    assert run.model.mtp_layers == 1
    blocks = head_blocks(RankShare(run=run), shares_embedding=False)
    wide = [
        each for each in blocks.backward.calls if isinstance(each.call, Gemm) and 16 not in (each.call.n, each.call.k)
    ]
    assert wide and {each.phase for each in wide} == {"backward_input"}
    (chunks,) = chunks_of_ranks(run)
    further = [unit for unit in chunks[0].units if unit.role != "embedding"][4:]
    assert [unit.role for unit in further] == ["head", "joining", "layer", "head"]
    own = trained_in_layer(run, run.model.mtp_kind)
    assert sum(trained_of_unit(run, unit).total for unit in further) == own.total > 0
    (stages,) = stages_of_ranks(run)
    assert trained_end_weights_of(run, stages) == own


# Sharding of base and adapters.


def test_zero_3_shards_and_gathers_the_base_with_its_adapters_and_reduces_their_gradients_alone() -> None:
    run = made("llama3-70b", 2, plan__dp=8, plan__zero=3, **LORA)
    whole, own = layer_weights(run.model, run.plan, LayerKind()), trained_in_layer(run, LayerKind())
    (rank,) = ranks(run)
    gathered = {size for name, size, _ in collectives(rank.chunks[0].forward, "fsdp") if name == "all_gather"}
    assert gathered_in_layer(run, LayerKind()).total == 2 * (whole.total + own.total) in gathered
    reduced = [size for name, size, _ in collectives(rank.chunks[0].backward, "fsdp") if name == "reduce_scatter"]
    assert max(reduced) == 4 * own.total


def test_zero_3_keeps_shards_of_adapters_too() -> None:
    run = made("llama3-70b", 2, plan__dp=8, plan__zero=3, execution__framework="fsdp", **LORA)
    profile, groups = memory_profile_of(run), groups_of(run)
    unit = next(unit for (chunk,) in chunks_of_ranks(run) for unit in chunk.units if unit.role == "layer")
    held = unit.weights.total + trained_of_unit(run, unit).total
    assert state_of_unit(run, profile, unit, groups).parameters == 4 * held / 8


# A base in few bits.

NF4: dict[str, Any] = {**LORA, "adapters__base": "nf4"}
LINEAR = 2 * HIDDEN * HIDDEN + 2 * HIDDEN * KV + 3 * HIDDEN * FFN
"""Weights of the linear modules of a layer of Llama-3-70B."""


@pytest.mark.parametrize(
    ("settings", "stored"),
    [
        ({"adapters__base": "nf4"}, 0.5 + 1 / 64 + 4 / (64 * 256)),
        ({"adapters__base": "nf4", "adapters__double_quantised": False}, 0.5 + 4 / 64),
        ({"adapters__base": "mxfp4"}, 0.5 + 1 / 32),
        ({"adapters__base": "fp8"}, 1 + 4 / 128**2),
    ],
    ids=str,
)
def test_the_linear_weights_of_a_base_have_the_bytes_of_its_format(settings: dict[str, Any], stored: float) -> None:
    plain, few = (memory_of(made("llama3-70b", 2, **LORA, **each)).ranks[0] for each in ({}, settings))
    assert plain.parameters - few.parameters == pytest.approx(2 * LINEAR * (2 - stored))
    assert few.optimizer == plain.optimizer


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_base_in_few_bits_is_widened_before_each_product(recompute: str) -> None:
    """Once in the forward, once in the backward, and once more where the backward repeats the forward."""
    (rank,) = ranks(made("llama3-70b", 2, plan__recompute=recompute, **NF4))
    widened = [
        sum(each.call.count * each.count * many for each, many in counted(blocks) if isinstance(each.call, Dequantise))
        for blocks in (rank.chunks[0].forward, rank.chunks[0].backward)
    ]
    assert widened == [2 * LINEAR, 2 * LINEAR * (2 if recompute == "full" else 1)]


def test_sharding_gathers_a_base_in_its_few_bits() -> None:
    run = made("llama3-70b", 2, plan__dp=8, plan__zero=3, **NF4)
    plain = made("llama3-70b", 2, plan__dp=8, plan__zero=3, **LORA)
    saved = gathered_in_layer(plain, LayerKind()).total - gathered_in_layer(run, LayerKind()).total
    assert saved == pytest.approx(LINEAR * (2 - STORED_BYTES["nf4_double"]), abs=1)
    times = [estimated(each).step_time.median_us for each in (run, plain)]
    assert times[0] > times[1]  # what is not gathered is widened, and links inside a node are fast


def test_experts_of_a_base_in_few_bits_are_stored_so_too() -> None:
    run = made("qwen3-30b-a3b", 2, plan__dp=8, plan__ep=8, **NF4)
    assert quantised_in_layer(run, SPARSE).experts == layer_weights(run.model, run.plan, SPARSE).experts


def test_a_70b_model_in_four_bits_fits_on_one_gpu_of_48_gib() -> None:
    """QLoRA's own claim is 65B on 48 GB with a paged optimizer and batches of one (arXiv 2305.14314, abstract)."""
    run = made(
        "llama2-70b",
        plan__recompute="full",
        batch={"global": 1, "micro": 1, "seq_len": 512},
        execution__framework="transformers",
        **NF4,
    )
    assert 34 < memory_of(run).point_bytes / 2**30 < 44


# Against torch: a decoder layer of transformers whose projections have adapters.


class Adapted(nn.Module):
    """A frozen linear layer, and its update (peft, lora/layer.py, Linear.forward)."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Linear(base.in_features, rank, bias=False, dtype=base.weight.dtype)
        self.b = nn.Linear(rank, base.out_features, bias=False, dtype=base.weight.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(x) + self.b(self.a(x)) * 2.0
        return out


class AdaptedByDora(Adapted):
    """The same with a magnitude of each output (peft, lora/dora.py, DoraLinearLayer.forward without dropout)."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__(base, rank)
        self.magnitude = nn.Parameter(torch.ones(base.out_features, dtype=base.weight.dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        base, update = self.base(x), self.b(self.a(x))
        with torch.no_grad():
            norm = torch.linalg.norm(self.base.weight + 2.0 * (self.b.weight @ self.a.weight), dim=1).to(x.dtype)
        scale = (self.magnitude / norm).view(1, -1)
        out: torch.Tensor = base + ((scale - 1) * base + scale * update * 2.0)
        return out


def adapted_layer(dtype: torch.dtype, targets: str, kind: str = "lora") -> tuple[nn.Module, torch.Tensor, Any]:
    layer, x, positions = llama_layer(llama()[0], dtype)
    layer.requires_grad_(False)
    for path, module in list(layer.named_modules()):
        parent, _, name = path.rpartition(".")
        if name in targets.split(",") and isinstance(module, nn.Linear):
            setattr(layer.get_submodule(parent), name, (AdaptedByDora if kind == "dora" else Adapted)(module, 4))
    return layer, x, positions


EVERY = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("targets", [EVERY, "q_proj,v_proj", "down_proj", "o_proj,gate_proj"])
@pytest.mark.parametrize("form", ["lora", "dora"])
def test_a_layer_with_adapters_trains_computes_and_keeps_what_torch_does(
    form: str, targets: str, dtype: torch.dtype
) -> None:
    layer, x, positions = adapted_layer(dtype, targets, form)
    run = run_of(llama()[1], dtype, adapters__kind=form, adapters__rank=4, adapters__targets=targets)
    (kind,) = set(run.model.kinds())
    parameters = sum(each.numel() for each in layer.parameters() if each.requires_grad)
    assert trained_in_layer(run, kind).total == parameters

    predicted = layer_activations(RankShare(run=run), kind, PROFILES["eager"], recompute="none")
    assert predicted.kept_bytes == saved_bytes(lambda: layer(x, position_embeddings=positions), [layer])

    products = torch.ops.aten
    with FlopCounterMode(display=False) as counter:
        layer(x, position_embeddings=positions).sum().backward()
    counts = counter.get_flop_counts()["Global"]
    found = sum(counts.get(each, 0) for each in (products.mm, products.addmm, products.bmm))
    blocks = layer_blocks(RankShare(run=run), kind)
    calls = [each for block in (blocks.forward, blocks.backward) for each in block.calls]
    assert sum(each.count * each.call.flops(each.phase) for each in calls if isinstance(each.call, Gemm)) == found


def test_dora_reads_every_weight_once_more_and_scales_both_results() -> None:
    """peft, lora/dora.py: the norms of W + B·A, each a pass over as many elements as the weight has; passes over the output."""
    settings = {**LORA, "adapters__kind": "dora", "adapters__targets": "q_proj"}
    run = made("llama3-70b", 1, **settings)
    lora = replace(run, adapters=replace(run.adapters, kind="lora"))
    streams = [
        sum(
            each.count * each.call.size_bytes
            for each in layer_blocks(RankShare(run=of), LayerKind()).forward.calls
            if isinstance(each.call, Stream)
        )
        for of in (run, lora)
    ]
    assert streams[0] - streams[1] == 3 * 2 * HIDDEN * HIDDEN + 13 * 2 * 4096 * HIDDEN


@pytest.mark.parametrize(("at_once", "seen"), [(1, 1), (2, 2), (8, 2)])
def test_dora_takes_the_norms_of_the_adapters_that_a_microbatch_sees(at_once: int, seen: int) -> None:
    adapters = {"kind": "dora", "rank": 16, "targets": "q_proj", "at_once": at_once}
    run = made("llama3-8b", batch={"global": 8, "micro": 2, "seq_len": 512}, adapters=adapters)
    norms = Gemm(dtype="bf16", m=4096, n=4096, k=16)
    forward = layer_blocks(RankShare(run=run), LayerKind()).forward
    assert sum(each.count for each in forward.calls if each.call == norms) == seen


def test_norms_of_a_base_in_few_bits_widen_it_once_more() -> None:
    widened = [
        sum(each.call.count * each.count for each in blocks.forward.calls if isinstance(each.call, Dequantise))
        for kind in ("lora", "dora")
        for blocks in [
            layer_blocks(RankShare(run=made("llama3-70b", 1, **{**NF4, "adapters__kind": kind})), LayerKind())
        ]
    ]
    assert widened == [LINEAR, 2 * LINEAR]
