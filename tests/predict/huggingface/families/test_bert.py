"""Encoders: BERT and ModernBERT beside transformers' own modules, to the parameter, the FLOP and the byte."""

from typing import Any

import pytest
import torch

from predict import load
from predict.config.document import Document
from predict.huggingface.config_json import load_model
from predict.layers.embedding import saved_by_embedding
from predict.layers.head import saved_by_head
from predict.layers.saved_tensors import Sizes
from predict.ledger import conventions
from predict.memory.activations import layer_activations
from predict.model.spec import ModelSpec
from predict.rank.share import RankShare
from predict.serving.rules import placement_faults
from predict.serving.server import ServerPlacement
from sampling.operators.attention import Attention
from tests.predict.layers.saved_bytes import BF16, FP32, saved_bytes
from tests.predict.memory.counted_layers import PROFILES
from tests.predict.workload.parallel_runs import layer_of, made

BATCH, LENGTH = 2, 24
BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 96,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
MODERN = {
    "model_type": "modernbert",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 96,
    "local_attention": 8,
    "pad_token_id": 0,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def built(config: dict[str, Any], dtype: torch.dtype = FP32, attention: str = "sdpa") -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: nothing to compare with")
    keys = {**config, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    own = transformers.AutoConfig.for_model(**(keys if config is BERT else config), attn_implementation=attention)
    return transformers.AutoModelForMaskedLM.from_config(own).to(dtype).train()


def sizes_of(model: ModelSpec, dtype: torch.dtype) -> Sizes:
    precision = "bf16" if dtype is BF16 else "fp32"
    run = made(model, precision=precision, batch={"global": BATCH, "micro": BATCH, "seq_len": LENGTH})
    return Sizes(rank=RankShare(run=run), profile=PROFILES["eager"])


@pytest.mark.parametrize(("config", "missing"), [(BERT, 0), (MODERN, 32)], ids=["bert", "modernbert"])
def test_parameters_are_those_that_transformers_counts(config: dict[str, Any], missing: int) -> None:
    """ModernBERT's first layer has one norm less than the others, which is counted as if it had it."""
    own = sum({id(weight): weight.numel() for weight in built(config).parameters()}.values())
    assert load_model(config).parameters - missing == own


@pytest.mark.parametrize("config", [BERT, MODERN], ids=["bert", "modernbert"])
def test_flops_are_those_that_torch_counts(config: dict[str, Any]) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    module = built(config, attention="eager")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(input_ids=torch.randint(3, 96, (BATCH, LENGTH)))
    own = load_model(config)
    # transformers multiplies what lies outside of a window too
    seen = sum(min(LENGTH, at + 5) - max(0, at - 4) for at in range(LENGTH))
    outside = sum(kind.mixer == "sliding" for kind in own.kinds()) * (LENGTH**2 - seen) * 4 * 32
    assert counter.get_total_flops() == conventions.exact(config, [LENGTH] * BATCH) / 3 + BATCH * outside


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_a_layer_of_bert_keeps_every_byte_that_torch_saves(dtype: torch.dtype) -> None:
    model = built(BERT, dtype).bert
    x = torch.randn(BATCH, LENGTH, 32, dtype=dtype, requires_grad=True)
    own = load_model(BERT)
    sizes = sizes_of(own, dtype)
    kept = layer_activations(sizes.rank, own.kinds()[0], sizes.profile, recompute="none").kept_bytes
    # on a CPU mean and 1/σ of a norm have the input's dtype, on a GPU they are fp32
    statistics = 2 * BATCH * LENGTH * (8 - 2 * dtype.itemsize)
    assert saved_bytes(lambda: model.encoder.layer[0](x), [model]) == kept - statistics


def test_embedding_and_head_keep_every_byte_that_torch_saves() -> None:
    module = built(BERT)
    own = load_model(BERT)
    sizes = sizes_of(own, FP32)
    tokens = torch.randint(3, 96, (BATCH, LENGTH))
    embedding = sum(step.kept for step in saved_by_embedding(sizes))
    counted = saved_bytes(lambda: module.bert.embeddings(input_ids=tokens), [module])
    # token types and positions are one row of indices for the batch, which transformers expands
    assert counted == pytest.approx(embedding, abs=8 * LENGTH * BATCH)
    x = torch.randn(BATCH, LENGTH, 32, requires_grad=True)

    def loss() -> torch.Tensor:
        logits = module.cls(x)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    assert saved_bytes(loss, [module]) == pytest.approx(sum(step.kept for step in saved_by_head(sizes)), abs=16)


def test_every_token_sees_every_other_one() -> None:
    own = load_model(BERT)
    run = made(own, batch={"global": 2, "micro": 2, "seq_len": LENGTH})
    calls = [call.call for call in layer_of(run, 0).forward.calls]
    assert [call.causal for call in calls if isinstance(call, Attention)] == [False]
    modern = load_model(MODERN)
    assert [kind.mixer for kind in modern.kinds()] == ["full", "sliding", "sliding", "full"]
    assert modern.window == 9


def test_a_run_of_an_encoder_is_predicted_and_a_server_of_one_refused() -> None:
    content = {
        "model": "bert-large-uncased",
        "cluster": {"hardware": "h100", "nodes": 1, "gpus_per_node": 8},
        "plan": {"dp": 8},
        "batch": {"global": 256, "micro": 32, "seq_len": 512},
        "precision": "bf16",
    }
    run = load(Document(name="bert", content=content, sources={"": "here"}))
    assert run.model.bidirectional
    faults = placement_faults(run.model, ServerPlacement(tp=1, dp=1, pp=1))
    assert [fault.problem for fault in faults] == [
        "bert-large-uncased sees all tokens at once, as an encoder does, and generates none; take a decoder"
    ]
