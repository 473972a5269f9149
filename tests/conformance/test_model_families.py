"""Every family of models is read as transformers builds it, adds up, and is counted as torch counts it; a file dropped in is held to them by
a test of its own."""

import json
from dataclasses import replace
from typing import Any

import pytest

from predict.huggingface.config_json import load_model, override, with_model_type
from predict.huggingface.families import AROUND_DECODERS, FAMILIES
from predict.layers.latent import LatentAttention
from predict.layers.linear import CHUNK, LinearAttention
from predict.layers.mamba import Mamba
from predict.ledger import conventions
from predict.model.spec import ModelSpec
from sampling.errors import ConfigError
from tests.predict.huggingface.family_configs import TINY, transformers_config, transformers_count
from tests.shipped_models import FAMILIES as FAMILIES_READ
from tests.shipped_models import FORMS, READ
from tests.tested_names import untested

CONFIGS_READ = READ | TINY
APART = (
    *("bert", "modernbert", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "mllama", "t5", "whisper"),
    *("DiTTransformer2DModel", "WanTransformer3DModel", "FluxTransformer2DModel"),
)
"""Families with a test of their own: encoders, decoders that transformers builds with their towers or encoders alone, and those of
diffusers."""
OF_EACH_FAMILY = list({family: name for name, family in FAMILIES_READ.items() if family not in APART}.values())
"""One shipped model of each family; the others differ in their sizes alone, which their cards hold."""


@pytest.mark.parametrize("name", [*OF_EACH_FAMILY, *TINY])
def test_parameters_are_those_that_transformers_counts(name: str) -> None:
    assert load_model(CONFIGS_READ[name]).parameters == transformers_count(CONFIGS_READ[name])


@pytest.mark.parametrize("name", [*FORMS, *TINY])
def test_kinds_add_up_to_the_whole(name: str) -> None:
    spec = load_model(CONFIGS_READ[name])
    kinds = spec.kinds()
    assert len(kinds) == spec.layers
    ends = spec.embedding_parameters + spec.final_norm_parameters + spec.head_parameters
    layers = sum(spec.layer_parameters_of(kind) for kind in kinds)
    assert spec.parameters == ends + layers
    for kind in set(kinds):
        parts = spec.mixer(kind).parameters(spec) + spec.feed_forward(kind).parameters(spec)
        assert spec.layer_parameters_of(kind) == spec.streams_of(kind) * parts + spec.beside_parts_of(kind)
    assert spec.active_parameters <= spec.parameters


@pytest.mark.parametrize("name", TINY)
def test_configs_as_transformers_writes_them_mean_the_same(name: str) -> None:
    written = json.loads(transformers_config(TINY[name]).to_json_string(use_diff=False))
    given = load_model(TINY[name])
    read = load_model(written)
    assert replace(read, name=given.name, max_positions=0, mtp_layers=0) == replace(
        given, max_positions=0, mtp_layers=0
    )


def test_every_family_has_a_config_here_or_a_test_of_its_own() -> None:
    tested = {with_model_type(config)["model_type"] for config in CONFIGS_READ.values()} | {
        "qwen3_5_moe_text",
        "mllama_text_model",
        "qwen3_vl_moe_text",
    }
    assert tested <= {*FAMILIES, *AROUND_DECODERS}
    assert untested(set(FAMILIES) - tested) == []


JUNK: tuple[Any, ...] = (None, 0, -1, True, "x", [], [1], [None], {}, {"a": 1}, 1.5, float("nan"), 10**30)


@pytest.mark.parametrize("name", TINY)
def test_whatever_a_key_holds_is_read_or_refused(name: str) -> None:
    config = TINY[name]
    for key in {*config, "layer_types", "mlp_only_layers", "rope_parameters", "sliding_window", "text_config", 3}:
        for value in JUNK:
            given = {**config, key: value}
            override(given, "num_layers", 3)
            try:
                assert load_model(given).parameters > 0
            except ConfigError as error:
                assert str(error)


SEQUENCES, LENGTH = 2, 24


def _counted(config: dict[str, Any]) -> int:
    """FLOPs of a forward, with attention and experts in torch's own products."""
    decoder = transformers_config(config)
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    decoder._attn_implementation = decoder._experts_implementation = "eager"
    torch.manual_seed(0)
    module = transformers.AutoModelForCausalLM.from_config(decoder).eval()
    ids = torch.randint(0, decoder.vocab_size, (SEQUENCES, LENGTH))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(input_ids=ids, use_cache=False)
    return counter.get_total_flops()


def _masked(spec: ModelSpec) -> int:
    """FLOPs on pairs of tokens that the mask or an indexer leaves out, which products of whole matrices do all the same."""
    found = 0
    for kind in spec.kinds():
        mixer = spec.mixer(kind)
        chosen = mixer.index_topk if isinstance(mixer, LatentAttention) and mixer.index_heads else LENGTH
        if kind.mixer != "linear":
            reach = min(spec.window, LENGTH) if kind.mixer == "sliding" else chosen
            found += 2 * SEQUENCES * _left_out(reach) * mixer.score_width(spec)
        if isinstance(mixer, LatentAttention):
            found += 2 * SEQUENCES * _left_out(LENGTH) * mixer.index_width(spec)
    return found


def _left_out(reach: int) -> int:
    """The pairs of a sequence's tokens that are not of one with itself or one of the `reach` - 1 before it."""
    return LENGTH**2 - sum(min(token, reach) for token in range(1, LENGTH + 1))


def _solved(spec: ModelSpec) -> int:
    """FLOPs of Gated DeltaNet's triangular solve, which torch does row by row without a product."""
    linear = next((mixer for mixer in spec.mixers if isinstance(mixer, LinearAttention)), None)
    if linear is None:
        return 0
    layers = sum(kind.mixer == "linear" for kind in spec.kinds())
    padded = -(-LENGTH // CHUNK) * CHUNK
    of_layer = linear.value_heads * padded * CHUNK * (linear.key_dim + linear.value_dim)
    return SEQUENCES * layers * of_layer


def _repeated(spec: ModelSpec) -> int:
    """FLOPs of Mamba-2 in torch that kernels do not do: C·Bᵀ for each head of a group, and a product of all pairs of chunks."""
    mamba = next((mixer for mixer in spec.mixers if isinstance(mixer, Mamba)), None)
    if mamba is None:
        return 0
    chunks = -(-LENGTH // mamba.chunk)
    shared = 2 * chunks * mamba.chunk**2 * mamba.state * (mamba.heads - mamba.groups)
    passed = 2 * (chunks + 1) ** 2 * mamba.width * mamba.state
    return SEQUENCES * sum(kind.mixer == "mamba" for kind in spec.kinds()) * (shared + passed)


@pytest.mark.parametrize("name", TINY)
def test_exact_is_what_torch_counts(name: str) -> None:
    """But for recurrences to the digit: there torch counts the convolution's overhang too, 0.3 % of these widths at most."""
    config = TINY[name]
    spec = load_model(config)
    forward = conventions.exact(config, [LENGTH] * SEQUENCES) / 3
    exact = forward + _masked(spec) - _solved(spec) + _repeated(spec)
    assert _counted(config) == pytest.approx(exact, rel=1e-12 if spec.attention is spec.mixers[-1] else 3e-3)
