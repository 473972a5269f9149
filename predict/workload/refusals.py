"""What a `config.json` may say that is well-formed but not modelled yet, so that none of it is silently ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from predict.faults import Fault, shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A feature that is off when its key is missing, null, false, 0 or `off`."""

    key: str
    feature: str
    fix: str
    off: tuple[Any, ...] = ()

    def applies(self, value: Any) -> bool:
        return value not in (None, False, 0) and value not in self.off


_NO_EXPERTS = "use a dense model, without this key"
_NO_LATENT = "use a model with plain or grouped-query attention, without this key"
REFUSALS = (
    *(
        Refusal(key=key, feature="a mixture of experts", fix=_NO_EXPERTS)
        for key in ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok")
    ),
    *(
        Refusal(key=key, feature="multi-head latent attention", fix=_NO_LATENT)
        for key in ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    ),
    Refusal(
        key="sliding_window",
        feature="sliding-window attention",
        fix="set it to null, which is the same for a seq_len within the window",
    ),
    Refusal(
        key="use_parallel_residual",
        feature="attention and MLP side by side",
        fix="set it to false to predict them one after the other (the same matrices)",
    ),
    Refusal(
        key="rotary_pct", feature="a partial rotary embedding", fix="set it to 1.0 to rotate whole heads", off=(1,)
    ),
    Refusal(
        key="partial_rotary_factor",
        feature="a partial rotary embedding",
        fix="set it to 1.0 to rotate whole heads",
        off=(1,),
    ),
    Refusal(key="num_nextn_predict_layers", feature="multi-token prediction", fix="set it to 0"),
    Refusal(key="add_cross_attention", feature="cross-attention", fix="set it to false"),
    Refusal(key="is_encoder_decoder", feature="an encoder with a decoder", fix="use a decoder-only model"),
    Refusal(key="quantization_config", feature="training of quantised weights", fix="use the unquantised config"),
    Refusal(key="use_qk_norm", feature="a norm on queries and keys", fix="set it to false"),
)
"""Each by the name that published configs give it."""

FULL_ATTENTION = "full_attention"
_NEUTRAL = {
    "the file itself": "model_type architectures auto_map transformers_version dtype torch_dtype name_or_path tokenizer_class"
    " is_llama_config unsloth_fixed unsloth_version",
    "tokens": "bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id cls_token_id mask_token_id"
    " decoder_start_token_id forced_bos_token_id forced_eos_token_id",
    "starting values and numerics": "initializer_range rms_norm_eps layer_norm_eps layer_norm_epsilon scale_attn_weights"
    " scale_attn_by_inverse_layer_idx reorder_and_upcast_attn use_bfloat16",
    "dropout, taken as 0": "attention_dropout hidden_dropout classifier_dropout attn_pdrop embd_pdrop resid_pdrop"
    " attention_probs_dropout_prob hidden_dropout_prob",
    "angles of the rotary embedding": "rope_theta rope_scaling rope_parameters rope_interleaved rotary_emb_base",
    "how it runs": "use_cache pretraining_tp gradient_checkpointing attn_implementation use_flash_attention"
    " use_flash_attention_2 chunk_size_feed_forward logits_to_keep num_logits_to_keep torchscript is_decoder"
    " tie_encoder_decoder pruned_heads cross_attention_hidden_size tf_legacy_loss",
    "lengths, unused without a window": "max_sequence_length n_ctx max_window_layers use_sliding_window layer_types use_mrope",
    "what is returned": "output_attentions output_hidden_states output_scores return_dict return_dict_in_generate",
    "other tasks": "id2label label2id problem_type finetuning_task task_specific_params prefix n_special"
    " predict_special_tokens summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj",
    "generation": "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature"
    " top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size"
    " bad_words_ids num_return_sequences remove_invalid_values exponential_decay_length_penalty suppress_tokens"
    " begin_suppress_tokens",
}
NEUTRAL = frozenset(name for names in _NEUTRAL.values() for name in names.split())
"""Keys of published configs (of Llama, Qwen2, Mistral, GPT-2, GPT-NeoX, and what every `transformers` config has) that change
neither the shape of a matrix nor the work of a training step. `layer_types` and the window's switch are judged by `refused`."""


def is_neutral(key: str) -> bool:
    """Whether a key changes no cost; one with a leading underscore is a library's own note, or somebody's comment."""
    return key in NEUTRAL or key.startswith("_")


def refused(values: Mapping[str, Any], assumed: Mapping[str, Any]) -> Iterator[Fault]:
    """One fault for each feature that is on, in `values` or because the family assumes it."""
    effective = dict(assumed) | dict(values)
    rotary = values.get("rope_parameters")
    if isinstance(rotary, Mapping) and "partial_rotary_factor" in rotary and "rotary_pct" not in values:
        effective["rotary_pct"] = rotary["partial_rotary_factor"]
    if "use_sliding_window" in values and not values["use_sliding_window"]:
        effective["sliding_window"] = None
    told: set[str] = set()
    for refusal in REFUSALS:
        value = effective.get(refusal.key)
        if refusal.applies(value) and refusal.feature not in told:
            told.add(refusal.feature)
            given = shown(value) if refusal.key in values else f"not given, which means {shown(value)}"
            problem = f"{given}: {refusal.feature} is not modelled yet; {refusal.fix}"
            yield Fault(path=refusal.key, problem=problem)
    yield from _mixed_layers(values.get("layer_types"))


def _mixed_layers(kinds: Any) -> Iterator[Fault]:
    others = [kind for kind in kinds if kind != FULL_ATTENTION] if isinstance(kinds, list) else []
    if others:
        problem = f"{shown(others[0])}: only layers of {FULL_ATTENTION} are modelled yet; use a model without others"
        yield Fault(path="layer_types", problem=problem)
