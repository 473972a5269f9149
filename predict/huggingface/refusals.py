"""Features of a `config.json` that are well-formed but not modelled; they are refused, never silently ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from predict.huggingface.families import FAMILIES
from predict.huggingface.families.family import FULL_ATTENTION, LAYER_TYPES, Family
from sampling.files.faults import Fault, shown

UNMODELLED: Mapping[str, str] = {
    "bart": "an encoder with a decoder",
    "vit": "a vision encoder without a decoder",
    "siglip_vision_model": "a vision encoder without a decoder",
    "clip": "a vision encoder without a decoder",
    "mamba": "state-space layers",
    "mamba2": "state-space layers",
    "falcon_mamba": "state-space layers",
    "jamba": "state-space layers",
    "zamba2": "state-space layers",
    "bloom": "positions by ALiBi",
    "mpt": "positions by ALiBi",
    "phi": "an output head with a bias",
    "gemma3n": "layers that share keys and values",
    "kimi_linear": "Kimi delta attention",
    "olmo": "norms without weights",
    "minimax": "lightning attention",
}
"""Architectures that are known, and what of them is missing here."""

OTHER_NAMES: Mapping[str, str] = {
    "num_hidden_layers": "layers",
    "num_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "num_query_groups": "kv_heads",
    "kv_channels": "head_dim",
    "intermediate_size": "ffn",
    "ffn_hidden_size": "ffn",
    "max_position_embeddings": "max_positions",
    "hidden_act": "activation",
    "block_ff_dim": "ffn",
    "tie_embedding": "tied",
    "num_local_experts": "experts.count",
    "num_experts": "experts.count",
    "n_routed_experts": "experts.count",
    "num_experts_per_tok": "experts.topk",
    "experts_per_token": "experts.topk",
    "moe_router_topk": "experts.topk",
    "moe_ffn_hidden_size": "experts.ffn",
    "moe_shared_expert_intermediate_size": "experts.shared_ffn",
    "num_mtp_layers": "mtp_layers",
    "mtp_num_layers": "mtp_layers",
}
"""Names that stand for a family's own: those that `transformers` maps (`attribute_map`), and Megatron's."""


class Refusal(NamedTuple):
    """A feature that is off when its key is missing, null, false, 0, one of `off` or a list of these.

    A refusal without a `fix` is for a feature that other families have; a family that reads the key is not refused.
    """

    key: str
    feature: str
    fix: str = ""
    off: tuple[Any, ...] = ()

    def applies(self, value: Any) -> bool:
        each_is_off = all(each in self.off for each in (value if isinstance(value, list) else [value]))
        return value not in (None, False, 0, {}) and not each_is_off


ELSEWHERE: Mapping[str, str] = {
    "num_local_experts": "a mixture of experts",
    "num_experts": "a mixture of experts",
    "n_routed_experts": "a mixture of experts",
    "num_experts_per_tok": "a mixture of experts",
    "moe_intermediate_size": "a mixture of experts",
    "n_shared_experts": "a shared expert",
    "shared_expert_intermediate_size": "a shared expert",
    "first_k_dense_replace": "a mixture of experts",
    "kv_lora_rank": "multi-head latent attention",
    "q_lora_rank": "multi-head latent attention",
    "qk_rope_head_dim": "multi-head latent attention",
    "qk_nope_head_dim": "multi-head latent attention",
    "v_head_dim": "multi-head latent attention",
    "mlp_only_layers": "a choice of dense layers",
    "linear_num_key_heads": "linear attention",
    "linear_num_value_heads": "linear attention",
    "linear_key_head_dim": "linear attention",
    "linear_value_head_dim": "linear attention",
    "linear_conv_kernel_dim": "linear attention",
    "sliding_window": "sliding-window attention",
    "use_parallel_residual": "attention and MLP side by side",
    "num_nextn_predict_layers": "multi-token prediction",
    "mtp_num_hidden_layers": "multi-token prediction",
    "attn_logit_softcapping": "a bound on the logits of attention",
    "final_logit_softcapping": "a bound on the output logits",
    "attention_bias": "biases in attention",
    "mlp_bias": "biases in the MLP",
}
"""Keys of some families, by the names that published configs give them → the feature they stand for."""
STATE_SPACE = ("ssm_cfg", "state_size", "mamba_d_state", "mamba_num_heads", "ssm_state_size")
VISION_ONLY = ("image_size", "patch_size", "num_channels")
REFUSALS = (
    *(Refusal(key=key, feature=feature) for key, feature in ELSEWHERE.items()),
    *(
        Refusal(key=key, feature="a partial rotary embedding", fix="set it to 1.0 to rotate whole heads", off=(1,))
        for key in ("rotary_pct", "partial_rotary_factor")
    ),
    *(
        Refusal(key=key, feature="a state-space layer", fix="use a model of attention or linear attention")
        for key in STATE_SPACE
    ),
    *(Refusal(key=key, feature="a vision encoder", fix="use the config of a text decoder") for key in VISION_ONLY),
    Refusal(
        key="moe_num_experts", feature="a mixture of experts", fix="use the config of a family whose mixture is read"
    ),
    *(
        Refusal(key=key, feature="dense layers between sparse ones", fix="set it to 1", off=(1,))
        for key in ("moe_layer_freq", "decoder_sparse_step")
    ),
    Refusal(
        key="mtp_use_dedicated_embeddings",
        feature="an embedding of multi-token prediction's own",
        fix="set it to false",
    ),
    Refusal(key="use_bidirectional_attention", feature="attention to later tokens", fix="set it to false"),
    Refusal(key="alibi", feature="positions by ALiBi", fix="use a model with rotary or learnt positions"),
    Refusal(key="add_cross_attention", feature="cross-attention", fix="set it to false"),
    Refusal(key="cross_attention_layers", feature="cross-attention", fix="use a model without it"),
    Refusal(key="is_encoder_decoder", feature="an encoder with a decoder", fix="use a decoder-only model"),
    Refusal(
        key="quantization_config",
        feature="training of quantised weights",
        fix="remove it to train the unquantised weights in the run's precision",
    ),
    Refusal(key="use_bias", feature="a bias on every product", fix="set it to false"),
    Refusal(key="conv_bias", feature="biases around short convolutions", fix="set it to false"),
    Refusal(key="block_ffn_dim_multiplier", feature="a factor on the width of the MLP", fix="set it to 1", off=(1,)),
    Refusal(key="mamba_proj_bias", feature="a bias on the products of Mamba", fix="set it to false"),
    Refusal(key="moe_latent_size", feature="experts of a compressed width", fix="use a model without it"),
    Refusal(key="attention_out_bias", feature="a bias on attention's output alone", fix="set it to false"),
    Refusal(key="use_qk_norm", feature="a norm on queries and keys", fix="set it to false"),
    *(
        Refusal(
            key=key,
            feature="an indexer that picks keys for other layers too",
            fix="use a model in which each layer has its own (GLM-5)",
            off=(1, "full"),
        )
        for key in ("indexer_types", "index_topk_freq", "index_topk_pattern")
    ),
)
REFUSED_KEYS = frozenset(refusal.key for refusal in REFUSALS)

_NEUTRAL = {
    "the file itself": "model_type architectures auto_map transformers_version dtype torch_dtype name_or_path tokenizer_class"
    " is_llama_config unsloth_fixed unsloth_version base_config_key",
    "tokens": "bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id cls_token_id mask_token_id"
    " decoder_start_token_id forced_bos_token_id forced_eos_token_id",
    "starting values and numerics": "initializer_range rms_norm_eps layer_norm_eps layer_norm_epsilon scale_attn_weights"
    " scale_attn_by_inverse_layer_idx reorder_and_upcast_attn use_bfloat16 query_pre_attn_scalar mamba_ssm_dtype",
    "dropout, taken as 0": "attention_dropout hidden_dropout classifier_dropout attn_pdrop embd_pdrop resid_pdrop"
    " attention_probs_dropout_prob hidden_dropout_prob",
    "angles of the rotary embedding": "rope_theta rope_scaling rope_parameters rope_interleaved rope_interleave"
    " rotary_emb_base rope_local_base_freq",
    "which experts a token goes to, and the loss that evens them out": "output_router_logits router_aux_loss_coef"
    " router_jitter_noise norm_topk_prob routed_scaling_factor scoring_func topk_method n_group topk_group aux_loss_alpha"
    " seq_aux ep_size",
    "how it runs": "use_cache pretraining_tp gradient_checkpointing attn_implementation use_flash_attention"
    " use_flash_attention_2 chunk_size_feed_forward logits_to_keep num_logits_to_keep torchscript is_decoder"
    " tie_encoder_decoder pruned_heads cross_attention_hidden_size tf_legacy_loss cache_implementation",
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
"""Keys of published configs (of the families read here, and what every `transformers` config has) that change neither the
shape of a matrix nor the work of a training step. `layer_types` and the window's switch are judged by `refused`."""


def is_neutral(key: str) -> bool:
    """Whether a key changes no cost; one with a leading underscore is a library's own note, or somebody's comment."""
    return key in NEUTRAL or key.startswith("_")


def refused(values: Mapping[str, Any], family: Family | None) -> Iterator[Fault]:
    """A fault for each feature that is on and that the family does not have; for an unknown family, that no family has."""
    read = frozenset(family.reads()) if family else frozenset()
    effective = dict(values)
    rotary = values.get("rope_parameters")
    if isinstance(rotary, Mapping) and "partial_rotary_factor" in rotary:
        effective.setdefault("partial_rotary_factor", rotary["partial_rotary_factor"])
    if "use_sliding_window" in values and not values["use_sliding_window"]:
        effective["sliding_window"] = None
    reported: set[str] = set()
    for refusal in REFUSALS:
        value = effective.get(refusal.key)
        if refusal.key in read or not refusal.applies(value) or refusal.feature in reported:
            continue
        if family is None and not refusal.fix:
            continue
        reported.add(refusal.feature)
        yield Fault(path=refusal.key, problem=f"{shown(value)}: {_advice(refusal, values)}")
    if LAYER_TYPES not in read and family:
        yield from _mixed_layers(values.get(LAYER_TYPES))


def _advice(refusal: Refusal, values: Mapping[str, Any]) -> str:
    if refusal.fix:
        return f"{refusal.feature} is not modelled yet; {refusal.fix}"
    having = ", ".join(name for name, family in FAMILIES.items() if refusal.key in family.reads())
    own = values.get("model_type", "this model")
    return f"{refusal.feature} is not part of {own} and not modelled there; remove it, or set model_type to one of {having}"


def _mixed_layers(kinds: Any) -> Iterator[Fault]:
    others = [kind for kind in kinds if kind != FULL_ATTENTION] if isinstance(kinds, list) else []
    if others:
        having = ", ".join(name for name, family in FAMILIES.items() if family.pattern.typed)
        problem = f"{shown(others[0])}: only layers of {FULL_ATTENTION} are modelled here; remove it, or set model_type"
        yield Fault(path=LAYER_TYPES, problem=f"{problem} to one of {having}")
