"""Diffusion transformers by their class in diffusers: DiT, Wan 2.1, which attends to a text, and Flux, whose text is in its sequence."""

from collections.abc import Mapping
from math import prod
from typing import Any

from predict.huggingface.families.family import MOST_LAYERS, Family, LayerPattern, first_of_two, size, switch
from predict.model.patches import Conditioning, Patches, Projector, chain
from predict.model.spec import CROSS
from sampling.files.schema import LARGEST, Key, Scalar

BLOCK: Mapping[str, Scalar] = {
    "vocab": 0,
    "tied": False,
    "bidirectional": True,
    "gated": False,
    "norm": "layer",
    "norm_scale": False,
    "norm_shift": False,
    "mlp_bias": True,
}
SIZES: Mapping[str, Key] = {
    "layers": size("num_layers", maximum=MOST_LAYERS),
    "heads": size("num_attention_heads"),
    "head_dim": size("attention_head_dim"),
    "patches.channels": size("in_channels"),
    "patches.out": size("out_channels", required=False, nullable=True),
}
FREQUENCIES = 256
"""Sines and cosines that stand for a time (Peebles and Xie, DiT, models.py, TimestepEmbedder; `freq_dim` of Wan)."""
NEUTRAL = frozenset(["sample_size", "dropout", "norm_eps", "norm_elementwise_affine", "eps", "rope_max_seq_len"])


def width_of_heads(fields: dict[str, Scalar]) -> None:
    """The width, which configs of diffusers give by heads, and DiT's MLP, four times as wide."""
    heads, head_dim = fields.get("heads"), fields.get("head_dim")
    if isinstance(heads, int) and isinstance(head_dim, int):
        fields["hidden"] = min(heads * head_dim, LARGEST)
        fields.setdefault("ffn", min(4 * heads * head_dim, LARGEST))


def two_parts_a_block(fields: dict[str, Scalar]) -> None:
    """Wan's blocks attend to the sequence, and then to the text: each is counted as two layers."""
    width_of_heads(fields)
    layers = fields.get("layers")
    if isinstance(layers, int):
        fields["layers"] = 2 * layers


def _dit_patches(fields: Mapping[str, Any]) -> Patches:
    """The ends of DiT's own code (facebookresearch/DiT, models.py); diffusers has the embeddings of time and class in every block."""
    hidden, side = int(fields["hidden"]), int(fields["patches.side"])
    out = side**2 * int(fields.get("patches.out") or fields["patches.channels"])
    times = chain((FREQUENCIES, hidden, hidden), bias=True)
    return Patches(
        pixels=side**2 * int(fields["patches.channels"]),
        bias=True,
        merged=1,
        conditioning=Conditioning(
            matrices=(*times, *chain((hidden, 2 * hidden), bias=True)),
            tables=int(fields["patches.classes"]) + 1,
        ),
        joins_text=False,
        projectors=(Projector(matrices=chain((hidden, out), bias=True)),),
    )


def _wan_patches(fields: Mapping[str, Any]) -> Patches:
    """The ends of Wan's own code (Wan-Video/Wan2.1, wan/modules/model.py)."""
    hidden, patch = int(fields["hidden"]), prod(fields["patches.sides"])
    out = patch * int(fields.get("patches.out") or fields["patches.channels"])
    times = chain((int(fields["patches.frequencies"]), hidden, hidden, 6 * hidden), bias=True)
    return Patches(
        pixels=patch * int(fields["patches.channels"]),
        bias=True,
        merged=1,
        conditioning=Conditioning(
            matrices=times,
            text=chain((int(fields["patches.text"]), hidden, hidden), bias=True),
            tokens=int(fields["cross.tokens"]),
            tables=2,
        ),
        joins_text=False,
        projectors=(Projector(matrices=chain((hidden, out), bias=True)),),
    )


TEXT_TOKENS = 512
"""Tokens of Flux's text (diffusers, pipelines/flux/pipeline_flux.py, `max_sequence_length`), which no config states."""


def blocks_of_both_sorts(fields: dict[str, Scalar]) -> None:
    """Blocks of two streams, and then those of one."""
    width_of_heads(fields)
    double, single = fields.get("layers"), fields.get("pattern.single")
    if isinstance(double, int) and isinstance(single, int):
        fields["layers"] = double + single
    if "ffn" in fields:
        fields["single.ffn"] = fields["ffn"]


def in_two_streams(index: int, fields: Mapping[str, Any]) -> bool:
    return index < int(fields["layers"]) - int(fields["pattern.single"])


def in_one_stream(index: int, fields: Mapping[str, Any]) -> bool:
    return not in_two_streams(index, fields)


def _flux_patches(fields: Mapping[str, Any]) -> Patches:
    """The ends of FluxTransformer2DModel (diffusers, models/transformers/transformer_flux.py)."""
    hidden, channels = int(fields["hidden"]), int(fields["patches.channels"])
    out = int(fields["patches.side"]) ** 2 * int(fields.get("patches.out") or channels)
    times = chain((FREQUENCIES, hidden, hidden), bias=True) * (2 if fields["patches.guided"] else 1)
    pooled = chain((int(fields["patches.pooled"]), hidden, hidden), bias=True)
    return Patches(
        pixels=channels,
        bias=True,
        merged=1,
        text_tokens=TEXT_TOKENS,
        conditioning=Conditioning(
            matrices=(*times, *pooled, *chain((hidden, 2 * hidden), bias=True)),
            text=chain((int(fields["patches.joint"]), hidden), bias=True),
            tokens=TEXT_TOKENS,
        ),
        joins_text=False,
        projectors=(Projector(matrices=chain((hidden, out), bias=True)),),
    )


FAMILIES: Mapping[str, Family] = {
    "FluxTransformer2DModel": Family(
        keys={
            **SIZES,
            "layers": size("num_layers", default=19, maximum=MOST_LAYERS),
            "pattern.single": size("num_single_layers", default=38, minimum=0, maximum=MOST_LAYERS),
            "heads": size("num_attention_heads", default=24),
            "head_dim": size("attention_head_dim", default=128),
            "patches.channels": size("in_channels", default=64),
            "patches.side": size("patch_size", default=1),
            "patches.joint": size("joint_attention_dim", default=4096),
            "patches.pooled": size("pooled_projection_dim", default=768),
            "patches.guided": switch("guidance_embeds", False),
        },
        fixed={
            **BLOCK,
            "rope": True,
            "attention_bias": True,
            "qk_norm": True,
            "modulation": "product",
            "streams": 2,
        },
        pattern=LayerPattern(mixer="single", full=in_two_streams, alone=in_one_stream),
        adjust=blocks_of_both_sorts,
        neutral=NEUTRAL | {"axes_dims_rope"},
        patches=_flux_patches,
    ),
    "DiTTransformer2DModel": Family(
        keys={
            **SIZES,
            "patches.side": size("patch_size", default=2),
            "patches.classes": size("num_embeds_ada_norm", default=1000),
            "attention_bias": switch("attention_bias", True),
        },
        fixed={**BLOCK, "rope": False, "no_positions": True, "modulation": "product"},
        adjust=width_of_heads,
        choices={"activation_fn": {"gelu-approximate": {}, None: {}}, "norm_type": {"ada_norm_zero": {}, None: {}}},
        neutral=NEUTRAL | {"upcast_attention", "norm_num_groups"},
        patches=_dit_patches,
    ),
    "WanTransformer3DModel": Family(
        keys={
            **SIZES,
            "ffn": size("ffn_dim"),
            "patches.sides": Key(
                name="patch_size",
                kind="list",
                element=Key(kind="integer", minimum=1, maximum=1024),
                default=(1, 2, 2),
            ),
            "patches.frequencies": size("freq_dim", default=FREQUENCIES),
            "patches.text": size("text_dim", default=4096),
            "cross.tokens": size("text_len", default=512),
            "cross.normed": switch("cross_attn_norm", True),
        },
        fixed={
            **BLOCK,
            "rope": True,
            "attention_bias": True,
            "qk_norm": True,
            "qk_norm_all_heads": True,
            "modulation": "table",
            "modulates_in_fp32": True,
        },
        pattern=LayerPattern(mixer=CROSS, full=first_of_two, alone=first_of_two),
        adjust=two_parts_a_block,
        choices={
            "qk_norm": {"rms_norm_across_heads": {}, None: {}},
            "image_dim": {None: {}},
            "added_kv_proj_dim": {None: {}},
            "pos_embed_seq_len": {None: {}},
        },
        neutral=NEUTRAL | {"window_size"},
        patches=_wan_patches,
    ),
}
