"""NVIDIA's Nemotron-H and Nemotron 3: each layer is one part, Mamba-2, attention, an MLP or a mixture of experts."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    ATTENTION_BIAS,
    MOST_LAYERS,
    MOST_PREDICTED_AHEAD,
    SIZES,
    Family,
    LayerPattern,
    activation,
    size,
    switch,
    unused,
)
from predict.model.spec import NO_MIXER, LayerKind

MAMBA = LayerKind(mixer="mamba", has_feed_forward=False)
ATTENTION = LayerKind(has_feed_forward=False)
MLP = LayerKind(mixer=NO_MIXER)
EXPERTS = LayerKind(mixer=NO_MIXER, sparse=True)

FAMILIES: Mapping[str, Family] = {
    "nemotron_h": Family(
        keys={
            **SIZES,
            "layers": size("num_hidden_layers", required=False, nullable=True, maximum=MOST_LAYERS),
            "kv_heads": size("num_key_value_heads", default=8, nullable=True),
            "head_dim": size("head_dim", default=128, nullable=True),
            "activation": activation("mlp_hidden_act", ("relu2",), "relu2"),
            "tied": switch("tie_word_embeddings", False),
            "attention_bias": ATTENTION_BIAS,
            "mlp_bias": switch("mlp_bias", False),
            "mamba.heads": size("mamba_num_heads", default=128),
            "mamba.head_dim": size("mamba_head_dim", default=64),
            "mamba.groups": size("n_groups", default=8),
            "mamba.state": size("ssm_state_size", default=128),
            "mamba.conv": size("conv_kernel", default=4),
            "mamba.conv_bias": switch("use_conv_bias", True),
            "mamba.chunk": size("chunk_size", default=128),
            "experts.count": size("n_routed_experts", default=8, nullable=True, minimum=0),
            "experts.topk": size("num_experts_per_tok", default=2, nullable=True, minimum=0),
            "experts.ffn": size("moe_intermediate_size", default=7688, nullable=True),
            "experts.shared_ffn": size("moe_shared_expert_intermediate_size", default=7688, nullable=True, minimum=0),
            "experts.latent": size("moe_latent_size", required=False, nullable=True),
            "mtp_layers": size("num_nextn_predict_layers", default=0, minimum=0, maximum=MOST_PREDICTED_AHEAD),
        },
        fixed={"gated": False, "norm": "rms", "rope": False, "no_positions": True, "scales_in_fp32": True},
        pattern=LayerPattern(
            blocks={
                **dict.fromkeys(("M", "mamba", "linear_attention"), MAMBA),
                **dict.fromkeys(("*", "attention", "full_attention"), ATTENTION),
                **dict.fromkeys(("-", "mlp"), MLP),
                **dict.fromkeys(("E", "moe"), EXPERTS),
            }
        ),
        neutral=unused("nemotron_h"),
    ),
}
