"""Every mixer and feed-forward of predict/layers keeps the laws of a layer, in each model that has it: its sizes, its calls, what it keeps."""

from dataclasses import replace

import pytest

from predict.layers.part import mixer_of, parts_of
from predict.layers.registry import parts
from predict.layers.run_json import dump_run, load_run
from predict.layers.served import Products, ServerShare
from predict.model.spec import CROSS, VECTORS_A_PART, LayerKind, ModelSpec
from predict.rank.blocks import single
from tests.predict.memory.counted_layers import PROFILES, layer, rank_of
from tests.predict.workload.parallel_runs import beside, flops, layer_of, made, spec
from tests.shipped_models import SHIPPED
from tests.tested_names import untested

FORMS = {
    "plain": lambda model, kind: not model.encoder,
    "beside an encoder": lambda model, kind: model.encoder and not kind.gated,
    "gated": lambda model, kind: kind.gated,
}
"""Forms of layers: of a model alone, of one whose layers attend to an encoder's output, and with gates."""
EXAMPLES = {
    (name, form): next(
        (
            (model, kind)
            for model in map(spec, SHIPPED)
            for kind in dict.fromkeys(model.kinds())
            if is_meant(model, kind) and any(isinstance(part, of) for part in parts_of(model, kind))
        ),
        None,
    )
    for name, of in parts().items()
    for form, is_meant in FORMS.items()
}
"""Part and form → the first shipped model that has it, and the kind of its layers."""


@pytest.fixture(params=[key for key, example in EXAMPLES.items() if example], ids=" ".join)
def example(request: pytest.FixtureRequest) -> tuple[ModelSpec, LayerKind]:
    found = EXAMPLES[request.param]
    assert found
    return found


@pytest.fixture(params=PROFILES)
def profile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_part_is_of_a_shipped_model_or_has_a_test_of_its_own() -> None:
    found = {name for (name, _), example in EXAMPLES.items() if example}
    files = {parts()[name].__module__.rpartition(".")[2] for name in parts() if name not in found}
    assert untested(files) == []


def test_the_parameters_of_a_layer_are_those_of_its_parts_and_norms(example: tuple[ModelSpec, LayerKind]) -> None:
    model, kind = example
    own = [model.streams_of(kind) * part.parameters(model) for part in parts_of(model, kind)]
    assert min(own) > 0
    # the vectors of a modulated part are a table, or a product of the condition for each stream
    modulated = VECTORS_A_PART * model.modulated_parts(kind) * model.hidden
    if model.modulation == "product":
        modulated *= (model.hidden + 1) * model.streams_of(kind)
    gates = kind.gated * kind.parts
    assert (
        model.layer_parameters_of(kind) == sum(own) + model.norms_of(kind) * model.norm_parameters + modulated + gates
    )


def test_tensor_ranks_share_the_products_of_a_layer(example: tuple[ModelSpec, LayerKind]) -> None:
    model, kind = example
    if model.qk_norm_all_heads:  # norms over all heads are refused beside tp
        model = replace(model, qk_norm=False, qk_norm_all_heads=False)
    place = model.kinds().index(kind)
    whole, half = (layer_of(made(model, plan__tp=tp, plan__sp=tp > 1, **beside(model)), place) for tp in (1, 2))
    for name in ("forward", "backward"):
        alone, shared = (flops(single(getattr(blocks, name))) for blocks in (whole, half))
        assert 0 < alone / 2 <= shared < 0.6 * alone
    assert flops(single(whole.backward)) > 1.9 * flops(single(whole.forward))


def test_context_parallelism_divides_what_is_kept(example: tuple[ModelSpec, LayerKind], profile: str) -> None:
    model, kind = example
    whole, split = (layer(model, kind, profile, plan__cp=cp, **beside(model)).kept_bytes for cp in (1, 4))
    # DeepSeek's router multiplies by an fp32 copy of its weight
    copied = model.name == "deepseek-v2" or model.name.startswith("deepseek-v3")
    copy = 4 * model.experts.count * model.hidden if model.experts and kind.sparse and copied else 0
    if kind.mixer == CROSS:  # keys and values of the text are whole on every rank, with what the norm of its keys keeps
        run = rank_of(model, **beside(model)).run
        of_text = 2 * run.batch.micro * run.model.mixer(kind).reach(run.model, kind) * model.kv_width
        half = layer(model, kind, profile, plan__cp=2, **beside(model)).kept_bytes
        copy = round(2 * half - whole)
        # two tensors where keys are not normed
        assert 2 * of_text <= copy <= 6 * of_text
    assert split - copy <= (whole - copy) / 4 * 1.005
    assert split >= whole / 4 * 0.995


def test_recomputation_moves_what_is_kept_into_the_backward(example: tuple[ModelSpec, LayerKind], profile: str) -> None:
    model, kind = example
    none, ops, full = (layer(model, kind, profile, recompute, **beside(model)) for recompute in ("none", "ops", "full"))
    assert full.kept_without_rotary_bytes == 2 * rank_of(model, **beside(model)).tokens * model.hidden
    assert full.backward_working_bytes > none.kept_without_rotary_bytes - full.kept_without_rotary_bytes
    # tables of positions that all layers share are none of a layer that attends to another sequence
    kept = [each.kept_without_rotary_bytes for each in (full, ops, none)]
    assert kept == sorted(set(kept))
    assert full.backward_working_bytes >= ops.backward_working_bytes


def test_a_run_is_itself_again_after_json(example: tuple[ModelSpec, LayerKind]) -> None:
    run = made(example[0], **beside(example[0]))
    for each in filter(None, (run, run.tower)):
        assert load_run(dump_run(each)) == each


def on_server(model: ModelSpec, tp: int) -> ServerShare:
    products = Products(dtype="bf16", kernel="", weight_bytes=2)
    return ServerShare(
        model=model,
        tp=tp,
        dp=1,
        ep=1,
        gpus_per_node=8,
        products=products,
        expert_products=products,
        activations="bf16",
        kv_precision="bf16",
        cache_block=0,
        shares_keys=True,
        redundant_experts=0,
        expert_load=1.0,
        expert_alignment=1,
        dispatch="allgather",
    )


def test_a_server_keeps_more_of_a_longer_sequence_and_half_of_it_on_each_of_two_gpus(
    example: tuple[ModelSpec, LayerKind],
) -> None:
    model, kind = example
    mixer = mixer_of(model, kind)
    if mixer is None or not mixer.is_served():
        pytest.skip("its servers are not modelled")
    one, two = (on_server(model, tp) for tp in (1, 2))
    caches = [mixer.cache(share) for share in (one, two)]
    assert all(cache.token_bytes > 0 or cache.sequence_bytes > 0 for cache in caches)
    assert caches[1].token_bytes in (caches[0].token_bytes, caches[0].token_bytes / 2)
    for part in parts_of(model, kind):
        few, many = ([*part.token_calls(one, tokens)] for tokens in (64, 128))
        assert len(few) == len(many) > 0
    assert [*mixer.decode_calls(one, 8, 1024)]
    assert [*mixer.prefill_calls(one, 512)]
