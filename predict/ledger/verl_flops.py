"""verl's convention: the estimators of verl/utils/flops_counter.py by model type, as at commit 1dda039b9 (August 2026).

Departures from an exact count, kept because verl reports them:

- half of a sequence's square is counted for attention, without its diagonal; a sliding layer counts its whole window for every token;
- the embedding look-up counts as a product like the head, whether or not they share a weight;
- mixtures have neither shared experts (qwen2_moe) nor dense layers (qwen2_moe, qwen3_moe, hy_v3), even where the config has them;
- qwen2_vl, qwen2_5_vl and qwen3_vl take the head's width from hidden_size, whatever `head_dim` says;
- the recurrence of Gated DeltaNet is 15 FLOPs per element of its state, one token at a time, however it is chunked;
- a key that config.json leaves out has the estimator's own default, not the one of transformers, which fills it in a real run: gpt_oss
  without `layer_types` has full attention everywhere;
- vision towers count all pairs of their tokens, twice what text layers count.

verl itself reports 0 for a model type it has no estimator for; here that is a ConfigError.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from predict.huggingface.config_json import with_model_type
from predict.ledger.conventions import ConfigKeys, require_batch, require_lengths
from sampling.errors import UserError
from sampling.files.faults import Fault, config_error, did_you_mean, shown
from sampling.hardware.cluster import Gpu
from sampling.number_text import plain

Lengths = Sequence[int]


def verl(config: Mapping[str, Any], lengths: Lengths, *, images_seqlens: Lengths = ()) -> float:
    """FLOPs as verl counts them; a third of it is what verl takes for a forward pass alone.

    `images_seqlens` are the vision tokens of each picture, which only models with a vision tower here count (qwen2_vl,
    qwen2_5_vl, qwen3_vl, qwen3_vl_moe, qwen3_5, qwen3_5_moe); verl ignores them elsewhere. Raises ConfigError for a model type
    without an estimator, and for keys that its estimator needs and the config lacks.
    """
    require_batch(lengths)
    require_lengths(images_seqlens, name="images_seqlens")
    model_type = with_model_type(config).get("model_type")
    estimate = ESTIMATORS.get(model_type) if isinstance(model_type, str) else None
    if estimate is None:
        problem = (
            "missing; add it" if model_type is None else f"verl has no estimator for {shown(model_type)} and reports 0"
        )
        problem += f"; it knows {', '.join(ESTIMATORS)}{did_you_mean(model_type, ESTIMATORS)}"
        raise config_error([Fault(path="model_type", problem=problem)], {"": "model"})
    keys = ConfigKeys(config)
    flops = estimate(keys, lengths)
    if images_seqlens and model_type in WITH_VISION:
        flops += _vision(keys.section("vision_config"), images_seqlens)
    keys.require_sound()
    return float(flops)


def _squares(lengths: Lengths) -> int:
    return sum(length * length for length in lengths)


def _flops(*, weights: int, lengths: Lengths, pairs: int, width: int) -> int:
    """6 per weight and token, and 6 per pair of tokens and element of `width`: half of scores and values, three passes."""
    return 6 * weights * sum(lengths) + 6 * pairs * width


def _ends(keys: ConfigKeys) -> int:
    """Weights of embedding and head."""
    return 2 * keys.size("vocab_size") * keys.size("hidden_size")


def _widths(keys: ConfigKeys, *, own_head_dim: bool = True) -> tuple[int, int]:
    """Output features of the queries, and of the keys."""
    heads = keys.size("num_attention_heads")
    head_dim = keys.size("hidden_size") // heads or 1  # an unsound hidden_size reads as 1, which is its own fault
    if own_head_dim:
        head_dim = keys.size("head_dim", head_dim)
    return heads * head_dim, keys.size("num_key_value_heads", heads) * head_dim


def _decoder(
    keys: ConfigKeys,
    lengths: Lengths,
    *,
    feed_forward: Callable[[ConfigKeys], int],
    pairs: Callable[[ConfigKeys, Lengths], int] | None = None,
    own_head_dim: bool = True,
) -> int:
    """Layers of one kind of feed-forward, all of full attention unless `pairs` counts those of all layers together."""
    queries, key_width = _widths(keys, own_head_dim=own_head_dim)
    layers = keys.size("num_hidden_layers")
    layer = feed_forward(keys) + 2 * keys.size("hidden_size") * (queries + key_width)
    counted = pairs(keys, lengths) if pairs else layers * _squares(lengths)
    return _flops(weights=layers * layer + _ends(keys), lengths=lengths, pairs=counted, width=queries)


def _swiglu(keys: ConfigKeys) -> int:
    return 3 * keys.size("hidden_size") * keys.size("intermediate_size")


def _experts(
    keys: ConfigKeys, *, count: str = "num_experts", ffn: str = "moe_intermediate_size", shared: int = 0
) -> int:
    """Router, and the experts a token is sent to with `shared` more."""
    seen = keys.size("num_experts_per_tok") + shared
    return keys.size("hidden_size") * (keys.size(count) + 3 * seen * keys.size(ffn))


def _dense(keys: ConfigKeys, lengths: Lengths) -> int:
    return _decoder(keys, lengths, feed_forward=_swiglu)


def _mixture(keys: ConfigKeys, lengths: Lengths) -> int:
    return _decoder(keys, lengths, feed_forward=_experts)


def _vision_language(keys: ConfigKeys, lengths: Lengths) -> int:
    return _decoder(keys.section("text_config"), lengths, feed_forward=_swiglu, own_head_dim=False)


def _vision_language_mixture(keys: ConfigKeys, lengths: Lengths) -> int:
    return _mixture(keys.section("text_config"), lengths)


def _apertus(keys: ConfigKeys, lengths: Lengths) -> int:
    def two_matrices_and_norms(keys: ConfigKeys) -> int:
        hidden = keys.size("hidden_size")
        return 2 * hidden * keys.size("intermediate_size") + hidden + _widths(keys)[1]

    return _decoder(keys, lengths, feed_forward=two_matrices_and_norms)


def _gemma3(keys: ConfigKeys, lengths: Lengths) -> int:
    return _decoder(keys, lengths, feed_forward=_swiglu, pairs=_gemma3_pairs)


def _gemma3_pairs(keys: ConfigKeys, lengths: Lengths) -> int:
    layers = keys.size("num_hidden_layers")
    window = _window(keys, 1024)
    types = keys.layer_types()
    pattern = keys.size("sliding_window_pattern", 0 if "sliding_window_pattern" in keys.values else 6, least=0)
    if not types and window and pattern and keys.values.get("layer_types") is None:
        types = ["full_attention" if (layer + 1) % pattern == 0 else "sliding_attention" for layer in range(layers)]
    return _pairs([*types, *["full_attention"] * layers][:layers], lengths, window)


def _gpt_oss(keys: ConfigKeys, lengths: Lengths) -> int:
    def experts(keys: ConfigKeys) -> int:
        return _experts(keys, count="num_local_experts", ffn="intermediate_size")

    def pairs(keys: ConfigKeys, lengths: Lengths) -> int:
        types = keys.layer_types() or ["full_attention"] * keys.size("num_hidden_layers")
        return _pairs(types, lengths, _window(keys, 128))

    return _decoder(keys, lengths, feed_forward=experts, pairs=pairs)


def _window(keys: ConfigKeys, default: int) -> int:
    """Keys that a token of a sliding layer sees; 0, no limit, where the config says null."""
    return keys.size("sliding_window", 0 if "sliding_window" in keys.values else default, least=0)


def _pairs(types: Sequence[str], lengths: Lengths, window: int) -> int:
    sliding = sum(each == "sliding_attention" for each in types) if window else 0
    within = sum(length * min(length, window) for length in lengths)
    return (len(types) - sliding) * _squares(lengths) + sliding * within


def _hy_v3(keys: ConfigKeys, lengths: Lengths) -> int:
    keys.size("head_dim")  # required there: no default from hidden_size

    def experts(keys: ConfigKeys) -> int:
        standard = keys.values.get("moe_intermediate_size") is not None
        ffn = "moe_intermediate_size" if standard else "expert_hidden_dim"
        return _experts(keys, ffn=ffn, shared=keys.size("num_shared_experts", least=0))

    return _decoder(keys, lengths, feed_forward=experts)


def _deepseek_v3(keys: ConfigKeys, lengths: Lengths) -> int:
    hidden, heads = keys.size("hidden_size"), keys.size("num_attention_heads")
    layers, dense = keys.size("num_hidden_layers"), keys.size("first_k_dense_replace", least=0)
    nope, rope, values = (keys.size(key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    queries, kv_rank = heads * (nope + rope), keys.size("kv_lora_rank")
    has_q_rank = "q_lora_rank" not in keys.values or keys.values["q_lora_rank"] is not None
    attention = keys.size("q_lora_rank") * (hidden + queries) if has_q_rank else hidden * queries
    attention += hidden * (kv_rank + rope) + heads * (nope + values) * kv_rank + heads * values * hidden
    mixture = _experts(keys, count="n_routed_experts", shared=keys.size("n_shared_experts", least=0))
    weights = layers * attention + (layers - dense) * mixture + _ends(keys)
    weights += dense * _swiglu(keys) if dense else 0
    tokens = sum(lengths)
    return 6 * weights * tokens + 3 * layers * _squares(lengths) * heads * (nope + rope + values)


def _qwen3_5(keys: ConfigKeys, lengths: Lengths) -> int:
    keys = keys.section("text_config") if "text_config" in keys.values else keys
    hidden, layers = keys.size("hidden_size"), keys.size("num_hidden_layers")
    full, linear = _full_and_linear(keys, layers)
    queries, key_width = _widths(keys)
    state = keys.size("linear_key_head_dim") * keys.size("linear_value_head_dim") * keys.size("linear_num_value_heads")
    weights = layers * _qwen3_5_feed_forward(keys) + _ends(keys)
    weights += full * hidden * (3 * queries + 2 * key_width) + linear * _delta_net(keys)
    attention = _flops(weights=weights, lengths=lengths, pairs=full * _squares(lengths), width=queries)
    return attention + 15 * state * sum(lengths) * linear


def _qwen3_5_feed_forward(keys: ConfigKeys) -> int:
    if "num_experts" not in keys.values:
        return _swiglu(keys)
    shared = 3 * keys.size("shared_expert_intermediate_size", least=0) + 1
    return _experts(keys) + keys.size("hidden_size") * shared


def _full_and_linear(keys: ConfigKeys, layers: int) -> tuple[int, int]:
    types = keys.layer_types()
    if types:
        return types.count("full_attention"), types.count("linear_attention")
    full = layers // keys.size("full_attention_interval", 4)
    return full, layers - full


def _delta_net(keys: ConfigKeys) -> int:
    """Weights of a linear layer's projections and convolution."""
    key_width = keys.size("linear_num_key_heads") * keys.size("linear_key_head_dim")
    value_heads = keys.size("linear_num_value_heads")
    value_width = value_heads * keys.size("linear_value_head_dim")
    projections = keys.size("hidden_size") * (2 * key_width + 3 * value_width + 2 * value_heads)
    return projections + keys.size("linear_conv_kernel_dim") * (2 * key_width + value_width)


def _vision(keys: ConfigKeys, images_seqlens: Lengths) -> int:
    """The vision tower of Qwen3-VL: patches, layers without a gate, one merger and one per layer of its deep stack."""
    width, depth = keys.size("hidden_size"), keys.size("depth")
    heads = keys.size("num_heads")
    merged = width * keys.size("spatial_merge_size") ** 2
    mergers = 1 + keys.entries("deepstack_visual_indexes")
    patch = width * keys.size("in_channels") * keys.size("temporal_patch_size") * keys.size("patch_size") ** 2
    layer = 2 * width * keys.size("intermediate_size") + 4 * width * width
    weights = patch + depth * layer + mergers * merged * (keys.size("out_hidden_size") + merged)
    pairs = 2 * depth * _squares(images_seqlens)
    return _flops(weights=weights, lengths=images_seqlens, pairs=pairs, width=width // heads * heads)


ESTIMATORS: Mapping[str, Callable[[ConfigKeys, Lengths], int]] = {
    **dict.fromkeys(
        ("qwen2", "llama", "qwen3", "mistral", "seed_oss", "mimo", "glm4v", "minicpmv", "minicpmo"), _dense
    ),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe"), _mixture),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl"), _vision_language),
    "qwen3_vl_moe": _vision_language_mixture,
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), _qwen3_5),
    "deepseek_v3": _deepseek_v3,
    "gemma3_text": _gemma3,
    "gpt_oss": _gpt_oss,
    "apertus": _apertus,
    "hy_v3": _hy_v3,
}
WITH_VISION = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"})
"""Model types whose estimator counts the vision tower too."""


TFLOPS: Mapping[str, float] = {
    "CPU": 0.448,
    "GB200": 2500,
    "B200": 2250,
    "MI300X": 1307,
    "MI350X": 2300,
    "MI355X": 2500,
    "H100": 989,
    "H800": 989,
    "H200": 989,
    "A100": 312,
    "A800": 312,
    "L40S": 362.05,
    "L40": 181.05,
    "A40": 149.7,
    "L20": 119.5,
    "H20": 148,
    "RTX 3070 Ti": 21.75,
}
"""Dense 16-bit TFLOP/s by a part of the device's name; the first part that the name contains counts. CPU stands for every
CPU, whatever its cores."""
MOST_OFF = 0.15
"""Share by which the table may differ from the device's own 16-bit peak; beyond it the name stands for another board."""


def verl_peak_flops_per_us(gpu: Gpu) -> float:
    """The peak that verl divides by for a device.

    UserError for a device that the table lacks, for which verl divides by infinity and reports 0, and for one that it takes for
    another board of a similar name (an H100 PCIe for an H100 SXM).
    """
    part = next((part for part in TFLOPS if part in gpu.name), None)
    if part is None:
        raise UserError(f"cluster.hardware: verl's table of peaks has no {gpu.name}, so that verl reports an MFU of 0")
    own_tflops = gpu.peak_tflops.get("bf16", TFLOPS[part])
    if gpu.kind != "cpu" and abs(TFLOPS[part] - own_tflops) > MOST_OFF * own_tflops:
        raise UserError(
            f"cluster.hardware: verl takes {gpu.name} for {part} of {plain(TFLOPS[part])} TFLOP/s in bf16; its own peak is {plain(own_tflops)}"
        )
    return TFLOPS[part] * 1e6
