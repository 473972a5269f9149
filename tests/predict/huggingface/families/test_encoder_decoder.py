"""T5 and Whisper beside transformers' own modules, to the parameter, the FLOP and the byte; what runs of them need, and what is refused."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from predict import estimate
from predict.huggingface.config_json import load_model
from predict.layers.run_json import dump_run, load_run
from predict.ledger.books import mfu_by_convention
from predict.ledger.compute import compute_book
from predict.ledger.conventions import forward_parts
from predict.memory.activations import unit_activations
from predict.memory.estimate import memory_of
from predict.memory.state import layer_unit, run_of_unit, tower_units
from predict.rank.share import RankShare, layer_weights
from predict.reports.text import run_text
from predict.run.model_flops import model_flops_per_step, tower_flops_per_step
from predict.run.training_run import TrainingRun, settings_of
from predict.run.vision import Vision
from predict.serving.rules import placement_faults
from predict.serving.server import ServerPlacement
from predict.workload.chunks import ENCODER
from predict.workload.decompose import decompose
from sampling.errors import ConfigError
from sampling.operators.attention import Attention
from tests.predict.layers.saved_bytes import saved_bytes
from tests.predict.memory.counted_layers import PROFILES
from tests.predict.workload.parallel_runs import collectives, flops, made

BATCH, TOKENS, SOURCE, WIDTH, HEADS = 2, 24, 40, 32, 4
T5: dict[str, Any] = {
    "model_type": "t5",
    "vocab_size": 128,
    "d_model": WIDTH,
    "d_kv": 12,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": HEADS,
    "relative_attention_num_buckets": 8,
}
WHISPER: dict[str, Any] = {
    "model_type": "whisper",
    "vocab_size": 128,
    "num_mel_bins": 10,
    "d_model": WIDTH,
    "encoder_layers": 2,
    "encoder_attention_heads": HEADS,
    "encoder_ffn_dim": 48,
    "decoder_layers": 3,
    "decoder_attention_heads": HEADS,
    "decoder_ffn_dim": 40,
    "max_source_positions": SOURCE,
    "max_target_positions": 64,
}
CONFIGS = {
    "t5": T5,
    "t5-gated": {**T5, "feed_forward_proj": "gated-gelu"},
    "t5-silu": {**T5, "feed_forward_proj": "gated-silu"},
    "mt5": {**T5, "model_type": "mt5", "feed_forward_proj": "gated-gelu"},
    "whisper": WHISPER,
}


def built(name: str, attention: str = "eager") -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: nothing to compare with")
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    without_dropout = {} if name == "whisper" else {"dropout_rate": 0.0}
    config = transformers.AutoConfig.for_model(
        **CONFIGS[name], **special, **without_dropout, attn_implementation=attention
    )
    of = transformers.AutoModelForSpeechSeq2Seq if name == "whisper" else transformers.AutoModelForSeq2SeqLM
    return of.from_config(config).train()


def run_of(name: str, **settings: Any) -> TrainingRun:
    batch = {"global": BATCH, "micro": BATCH, "seq_len": TOKENS}
    length = {} if name == "whisper" else {"encoder_seq_len": SOURCE}
    model = load_model(CONFIGS[name])
    return made(model, **{"precision": "fp32", "batch": batch | length, **settings})


def forward_of(name: str, module: Any) -> Callable[[], Any]:
    tokens = torch.randint(4, 128, (BATCH, TOKENS))
    if name == "whisper":
        sound = torch.randn(BATCH, 10, 2 * SOURCE)
        return lambda: module(input_features=sound, decoder_input_ids=tokens, use_cache=False)
    source = torch.randint(4, 128, (BATCH, SOURCE))
    return lambda: module(input_ids=source, decoder_input_ids=tokens, use_cache=False)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_that_transformers_counts(name: str) -> None:
    with torch.device("meta"):
        counted = sum({id(each): each.numel() for each in built(name).parameters()}.values())
    assert load_model(CONFIGS[name]).parameters_with_tower == counted


@pytest.mark.parametrize("name", ["t5", "mt5"])
def test_keys_that_are_left_out_have_the_defaults_of_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: nothing to compare with")
    with torch.device("meta"):
        module = transformers.AutoModelForSeq2SeqLM.from_config(transformers.AutoConfig.for_model(name))
    counted = sum({id(each): each.numel() for each in module.parameters()}.values())
    model = load_model({"model_type": name})
    assert (model.parameters_with_tower, model.heads) == (counted, module.config.num_heads)


def test_an_untied_head_is_a_matrix_of_its_own() -> None:
    """As the weights of T5 1.1 and Flan-T5 have it, which transformers 5 ties."""
    tied, own = (load_model({**T5, "tie_word_embeddings": tie}).parameters for tie in (True, False))
    assert own - tied == 128 * WIDTH


@pytest.mark.parametrize("name", ["t5", "t5-gated", "whisper"])
def test_flops_are_those_that_torch_counts(name: str) -> None:
    """Of the book and of the calls, but for pairs that the decoder's mask leaves out."""
    from torch.utils.flop_counter import FlopCounterMode

    module = built(name)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        forward_of(name, module)()
    run = run_of(name, execution={"attention": "unfused"})
    assert run.tower
    own, encoder = run.model, run.tower.model
    parts = (
        *forward_parts(own, {TOKENS: BATCH}, mtp=False),
        *forward_parts(encoder, {SOURCE: BATCH}, mtp=False),
    )
    masked = 3 * BATCH * 2 * own.q_width * TOKENS * (TOKENS - 1)
    assert sum(part.forward for part in parts) + masked == counter.get_total_flops()
    (rank,) = decompose(run)
    assert flops(rank.chunks[0].forward) == counter.get_total_flops()


def kept_by(run: TrainingRun) -> float:
    """What the units of the encoder keep, and the layers of the decoder's first block."""
    decoder = [layer_unit(run, kind) for kind in run.model.kinds()[:2]]
    found, seen = 0.0, set()
    for unit in (*tower_units(run), *decoder):
        own = unit_activations(RankShare(run=run_of_unit(run, unit)), PROFILES["eager"], unit)
        shares = unit.role == "layer" and unit.tower in seen
        found += own.kept_without_rotary_bytes if shares else own.kept_bytes
        seen |= {unit.tower} if unit.role == "layer" else set()
    return found


@pytest.mark.parametrize("name", ["t5", "t5-silu", "whisper"])
def test_encoder_and_decoder_keep_every_byte_that_torch_saves(name: str) -> None:
    """The GELU of gated T5 is eight operators in transformers, and one here, as SiLU is."""
    module = built(name, attention="eager" if name != "whisper" else "sdpa")
    unfused = {"execution": {"attention": "unfused"}} if name != "whisper" else {}
    run = run_of(name, **unfused)
    decoder = module.model.decoder if name == "whisper" else module.decoder
    block = decoder.layers[0] if name == "whisper" else decoder.block[0]
    encoder = module.model.encoder if name == "whisper" else module.encoder
    x = torch.randn(BATCH, TOKENS, WIDTH, requires_grad=True)

    def forward() -> Any:
        if name == "whisper":
            made_of_sound = encoder(torch.randn(BATCH, 10, 2 * SOURCE)).last_hidden_state
            return block(x, encoder_hidden_states=made_of_sound, use_cache=False)
        source = encoder(input_ids=torch.randint(4, 128, (BATCH, SOURCE))).last_hidden_state
        return block(x, None, None, source, None, None)

    assert kept_by(run) == saved_bytes(forward, [module])


@pytest.mark.parametrize("name", ["t5", "whisper"])
def test_a_step_takes_its_encoder_too(name: str) -> None:
    run = run_of(name)
    prediction = estimate(run)
    (rank,) = decompose(run)
    own = [each for each in rank.chunks[0].forward if each.block.heading == ENCODER]
    assert flops(tuple(own)) > 0
    book = compute_book(run, prediction.calls, ())
    encoder = next(part for part in book.parts if part.part == "encoder")
    assert encoder.required_flops == 3 * flops(tuple(own))
    frozen = compute_book(replace(run, vision=Vision(trained="none")), prediction.calls, ())
    assert next(part for part in frozen.parts if part.part == "encoder").required_flops == flops(tuple(own))
    figures = mfu_by_convention(prediction, book)
    assert figures["exact"].flops == book.required_flops
    assert all("has an encoder" in figures[name].refusal for name in ("palm", "megatron"))
    assert 0 < tower_flops_per_step(run) < model_flops_per_step(run)
    assert f"beside {SOURCE} of its encoder" in run_text(run)
    state = memory_of(run).worst
    assert state.parameters == 4 * (run.model.parameters + run.tower.model.parameters if run.tower else 0)


def test_relative_positions_need_a_kernel_that_adds_them() -> None:
    """transformers runs T5 by scaled_dot_product_attention, whose memory-efficient kernel alone takes numbers that are trained."""

    def kernels(**execution: Any) -> set[str]:
        run = run_of("t5", execution={"framework": "fsdp", **execution})
        (rank,) = decompose(run)
        calls = (one.call for each in rank.chunks[0].forward for one in each.block.calls)
        return {call.kernel for call in calls if isinstance(call, Attention) and call.seq_len == TOKENS}

    assert kernels() == kernels(attention="sdpa") == {"efficient"}
    assert kernels(attention="unfused") == set()
    with pytest.raises(ConfigError, match=r"execution\.attention: fa2 does not add relative positions to the scores"):
        kernels(attention="fa2")
    assert run_of("whisper", execution={"framework": "fsdp"}).execution.attention == "fa2"


def test_longer_sources_take_longer_and_keep_more() -> None:
    short, long = (run_of("t5", batch__encoder_seq_len=length) for length in (SOURCE, 8 * SOURCE))
    assert estimate(short).step_time.median_us < estimate(long).step_time.median_us
    assert memory_of(short).point_bytes < memory_of(long).point_bytes
    assert settings_of(long)["batch.encoder_seq_len"] == 8 * SOURCE
    assert "batch.encoder_seq_len" not in settings_of(made("llama3-8b"))


def test_adapters_are_those_of_encoder_and_decoder() -> None:
    adapters = {"kind": "lora", "rank": 4, "targets": "q_proj"}
    run = run_of("t5", adapters=adapters)
    state, whole = memory_of(run).worst, memory_of(run_of("t5")).worst
    matrices = 2 + 3 + 3  # of the encoder, and two in each block of the decoder
    assert state.optimizer < whole.optimizer / 5
    assert state.parameters - whole.parameters == 4 * matrices * 4 * (WIDTH + HEADS * 12)


def test_adapters_of_keys_see_what_those_see() -> None:
    """In attention to the encoder's output all of its tokens, and in the decoder's own the decoder's."""
    adapters = {"kind": "lora", "rank": 4, "targets": "k_proj"}
    (whole,), (adapted,) = (decompose(run_of("t5", **settings)) for settings in ({}, {"adapters": adapters}))
    seen = 2 * BATCH * SOURCE + 3 * BATCH * SOURCE + 3 * BATCH * TOKENS
    more = flops(adapted.chunks[0].forward) - flops(whole.chunks[0].forward)
    assert more == 2 * seen * 4 * (WIDTH + HEADS * 12)


@pytest.mark.parametrize(("tp", "sp"), [(1, False), (2, False), (4, False), (4, True)])
def test_tensor_ranks_divide_encoder_and_decoder(tp: int, sp: bool) -> None:
    """Keys and values of the encoder's output are column-parallel too: each layer reduces its gradient (Megatron-Core,
    `linear_kv` of cross attention)."""
    run = run_of("whisper", plan={"tp": tp, "sp": sp})
    assert run.tower
    assert run.tower.plan.tp == tp
    for each in (run, run.tower):
        kind = each.model.kinds()[-1]
        matrices = [*each.model.mixer(kind).matrices(each.model), *each.model.feed_forward(kind).matrices(each.model)]
        left_out = each.model.layer_parameters_of(kind) - layer_weights(each.model, each.plan, kind).total
        assert left_out >= sum(matrix.elements for matrix in matrices) * (tp - 1) / tp
    (rank,) = decompose(run)
    made_of_sound = 4 * BATCH * SOURCE * WIDTH
    reduced = [times for name, size, times in collectives(rank.chunks[0].backward, "tp") if size == made_of_sound]
    of_encoder = 2 * run.tower.model.layers
    assert sum(reduced) == (3 + of_encoder if tp > 1 else 0)


@pytest.mark.parametrize(
    ("model", "settings", "problem"),
    [
        ("t5-base", {}, "batch.encoder_seq_len: missing, and the encoder of t5-base reads any number of tokens"),
        (
            "whisper-tiny",
            {"encoder_seq_len": 9},
            "batch.encoder_seq_len: 9, but the encoder of whisper-tiny always reads 1500",
        ),
        ("llama3-8b", {"encoder_seq_len": 9}, "batch.encoder_seq_len: 9, and llama3-8b is no encoder–decoder; omit it"),
        ("whisper-tiny", {"seq_len": 449}, "batch.seq_len: 449"),
        (
            "t5-base",
            {"encoder_seq_len": 64, "lengths": "constant:50", "padding": "packed"},
            "batch.padding: packed, and each row of t5-base has one sequence of its encoder",
        ),
    ],
)
def test_lengths_that_do_not_fit_are_refused(model: str, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        made(model, batch={"global": 8, "micro": 1, "seq_len": 128, **settings})


def test_encoder_and_decoder_are_on_one_stage_and_see_no_images() -> None:
    with pytest.raises(ConfigError, match=re.escape("plan.pp: 2 stages: layers on each of them read what the encoder")):
        run_of("t5", plan={"pp": 2})
    with pytest.raises(ConfigError, match=re.escape("vision.images: 1, and the vision tower of t5 is not")):
        run_of("t5", vision={"images": 1})
    assert any("attention to another sequence" in fault.problem or "cross" in fault.problem for fault in served("t5"))


def served(name: str) -> list[Any]:
    return [*placement_faults(load_model(CONFIGS[name]), ServerPlacement(tp=1, dp=1, pp=1))]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({**T5, "feed_forward_proj": "relu2"}, "feed_forward_proj: 'relu2' is not modelled here"),
        ({**T5, "num_layers": 0}, "num_layers: 0"),
        ({**T5, "d_kv": "x"}, "d_kv: 'x'"),
        ({**WHISPER, "activation_function": "relu"}, "activation_function: 'relu'"),
        ({**WHISPER, "num_mel_bins": 0}, "num_mel_bins: 0"),
        ({**WHISPER, "encoder_layers": None}, "encoder_layers: null"),
    ],
)
def test_what_is_not_modelled_is_refused_once(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)) as found:
        load_model(changed)
    assert str(found.value).count(problem) == 1


JUNK: tuple[Any, ...] = (None, 0, -1, True, "x", [], [1], [None], {}, {"a": 1}, 1.5, float("nan"), 10**30)


@pytest.mark.parametrize("name", ["t5", "whisper"])
def test_whatever_a_key_holds_is_read_or_refused(name: str) -> None:
    keys: list[Any] = [*CONFIGS[name], "feed_forward_proj", "text_config", 3]
    for key in keys:
        for value in JUNK:
            try:
                assert load_model({**CONFIGS[name], key: value}).parameters_with_tower > 0
            except ConfigError as error:
                assert str(error)


def test_a_run_is_itself_again_after_json() -> None:
    run = run_of("whisper")
    assert load_run(dump_run(run)) == run
