"""What a `config.json` may say that is well-formed but not modelled yet, so that none of it is silently ignored."""

from __future__ import annotations

import re
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
NEUTRAL = re.compile(
    r"_.*|.*(token_id|dropout|pdrop|_eps|epsilon|dtype|init|initializer_range|init_method|_version|_type|_map)"
    r"|(rope|summary|id2label|label2id|scale_attn|output|return|unsloth)_?.*"
    r"|architectures|use_cache|pretraining_tp|max_sequence_length|max_window_layers|use_mrope|use_sliding_window"
    r"|tokenizer_class|task_specific_params|n_ctx|n_special|predict_special_tokens|reorder_and_upcast_attn"
    r"|gradient_checkpointing|is_decoder|rotary_emb_base|chunk_size_feed_forward|attn_implementation|use_flash_attention.*"
    r"|layer_types|logits_to_keep|finetuning_task|prefix|name_or_path|torchscript"
)
"""Keys of published configs that change neither the shape of a matrix nor the work of a training step."""


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
