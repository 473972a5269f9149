"""Attention to fewer keys than all: those that an indexer picks (DeepSeek-V3.2), and those of a chunk (Llama 4)."""

import pytest

from predict.huggingface.config_json import load_model
from predict.ledger import conventions
from predict.run.model_flops import attention_flops_per_token
from sampling.operators.attention import Attention, DecodeAttention
from sampling.operators.indexer import Indexer
from tests.predict.huggingface.family_configs import COMMON, LATENT
from tests.predict.serving.servers import server
from tests.predict.workload.parallel_runs import layer_of, made

PICKED = {"model_type": "deepseek_v32", **LATENT, "index_n_heads": 4, "index_head_dim": 8, "index_topk": 16}
IN_CHUNKS = {
    "model_type": "llama4_text",
    **COMMON,
    "num_attention_heads": 4,
    "head_dim": 16,
    "intermediate_size_mlp": 56,
    "num_local_experts": 4,
    "interleave_moe_layer_step": 2,
    "attention_chunk_size": 8,
    "pad_token_id": 0,
}


def test_an_indexer_bounds_what_a_query_sees_and_costs_its_own_scores() -> None:
    own = load_model(PICKED)
    run = made(own, batch={"global": 1, "micro": 1, "seq_len": 64})
    calls = [call.call for call in layer_of(run, 0).forward.calls]
    assert [call.window for call in calls if isinstance(call, Attention)] == [16]
    assert [call.NAME for call in calls].count("indexer") == 1
    longer = attention_flops_per_token(own, 128) - attention_flops_per_token(own, 64)
    assert longer == 6 * own.layers * 64 * 4 * 9


@pytest.mark.parametrize("tp", [1, 8])
def test_a_server_scores_all_keys_whole_on_every_gpu(tp: int) -> None:
    served = server("deepseek-v3.2", tp=tp, kv_precision="bf16")
    mixer, share, keys = served.model.attention, served.share(), 32_768
    core, scores = mixer.decode_calls(share, 4, keys)
    assert isinstance(core, DecodeAttention) and isinstance(scores, DecodeAttention)
    assert (core.seen, scores.seen) == (2048, keys)
    in_prefill = next(call for call in mixer.prefill_calls(share, keys) if isinstance(call, Indexer))
    assert scores.flops("forward") == 4 * in_prefill.flops("forward") / keys == 4 * keys * 2 * 64 * 129
    assert scores.bytes_moved("forward") == pytest.approx(4 * keys * 2 * 128, rel=0.01)
    plain = server("deepseek-v3", tp=tp)
    assert len(list(plain.model.attention.decode_calls(plain.share(), 4, keys))) == 1
    assert not any(isinstance(call, Indexer) for call in plain.model.attention.prefill_calls(plain.share(), keys))


def test_chunks_are_sequences_of_their_own() -> None:
    own = load_model(IN_CHUNKS)
    assert [kind.mixer for kind in own.kinds()] == ["chunked", "chunked", "chunked", "full", "chunked"]
    assert [kind.sparse for kind in own.kinds()] == [False, True, False, True, False]
    run = made(own, batch={"global": 2, "micro": 2, "seq_len": 20})
    chunked, full = (
        [call.call for call in layer_of(run, place).forward.calls if isinstance(call.call, Attention)]
        for place in (0, 3)
    )
    assert [(call.batch, call.seq_len) for call in chunked] == [(4, 8), (2, 4)]
    assert [(call.batch, call.seq_len) for call in full] == [(2, 20)]
    assert conventions.in_chunks({20: 2, 8: 1}, 8) == {8: 5, 4: 2}
    pairs = 2 * (8 * 9 // 2) + 4 * 5 // 2
    of_pair = 3 * 2 * 2 * 4 * 16
    in_chunks = conventions.exact(IN_CHUNKS, [20])
    whole = conventions.exact({**IN_CHUNKS, "attention_chunk_size": 64}, [20])
    assert whole - in_chunks == 4 * of_pair * (20 * 21 // 2 - pairs)
