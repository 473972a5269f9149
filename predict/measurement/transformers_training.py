"""The same training run with the transformers library's Llama, as a second, foreign witness."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from predict.measurement.decoder import DTYPES, NORM_EPS, SEED, Training, random_batch
from predict.measurement.training import make_optimizers
from predict.run.training_run import TrainingRun


def build_transformers_training(run: TrainingRun) -> Training:
    """A LlamaForCausalLM with random weights on one process; its loss is over seq − 1 positions, as the library shifts."""
    torch.manual_seed(SEED)
    model: nn.Module = LlamaForCausalLM(llama_config(run))
    model.to(dtype=DTYPES[run.precision])
    microbatches = torch.split(random_batch(run, replica=0)[0], run.batch.micro)

    def passes() -> Tensor:
        total = torch.zeros(())
        for tokens in microbatches:
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss / len(microbatches)
            loss.backward()
            total += loss.detach()
        return total

    return Training(
        module=model,
        optimizers=make_optimizers(model, None, zero=0),
        passes=passes,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )


def llama_config(run: TrainingRun) -> LlamaConfig:
    spec = run.model
    kernels: dict[str, Any] = {"attn_implementation": "sdpa"}
    return LlamaConfig(
        vocab_size=spec.vocab,
        hidden_size=spec.hidden,
        intermediate_size=spec.ffn,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        max_position_embeddings=max(spec.max_positions, run.batch.seq_len),
        rms_norm_eps=NORM_EPS,
        attention_bias=spec.attention_bias,
        mlp_bias=spec.mlp_bias,
        tie_word_embeddings=spec.tied,
        use_cache=False,
        **kernels,
    )
