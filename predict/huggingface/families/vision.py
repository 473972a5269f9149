"""Vision towers: those of Qwen2-VL to Qwen3.5, SigLIP of Gemma 3, InternVL's, Pixtral of Mistral Small and Ministral, and those of
Llama 3.2 Vision and Llama 4."""

from collections.abc import Mapping
from typing import Any

from predict.huggingface.families.family import (
    GATED_ACTIVATIONS,
    MOST_LAYERS,
    PLAIN_ACTIVATIONS,
    SIZES,
    Family,
    LayerPattern,
    Tower,
    activation,
    never,
    size,
    switch,
    unused,
)
from predict.model.patches import Patches, Projector, chain
from sampling.files.schema import Key, Scalar

TOWER_BLOCK: Mapping[str, Scalar] = {
    "vocab": 0,
    "tied": True,
    "bidirectional": True,
    "gated": False,
    "norm": "layer",
    "rope": True,
    "attention_bias": True,
    "mlp_bias": True,
}
"""Full attention within each image, and no vocabulary. Learnt positions are a field of its patches."""
LEARNT_POSITIONS: Mapping[str, Scalar] = {"rope": False, "no_positions": True}
CHANNELS = size("num_channels", default=3)
WHOLE_IMAGES: Mapping[str, Key] = {
    "layers": SIZES["layers"],
    "hidden": SIZES["hidden"],
    "heads": SIZES["heads"],
    "ffn": SIZES["ffn"],
    "activation": activation("hidden_act", (*PLAIN_ACTIVATIONS, "quick_gelu"), "gelu"),
    "patches.image": size("image_size"),
    "patches.side": size("patch_size"),
    "patches.channels": CHANNELS,
}
"""Towers whose images all have one size."""
NEUTRAL = frozenset(["attention_probs_dropout_prob", "initializer_factor", "dropout", "projector_dropout", "norm_eps"])


def _patches_of_image(fields: Mapping[str, Any]) -> int:
    """Patches of an image whose size is fixed."""
    return (int(fields["patches.image"]) // int(fields["patches.side"])) ** 2


def _pixels(fields: Mapping[str, Any]) -> int:
    frames = int(fields.get("patches.frames", 1))
    return int(fields["patches.channels"]) * frames * int(fields["patches.side"]) ** 2


# Qwen: two frames to a patch, images of any size, two by two patches to a token.

QWEN: Mapping[str, Key] = {
    "layers": size("depth", maximum=MOST_LAYERS),
    "hidden": size("hidden_size"),
    "heads": size("num_heads"),
    "ffn": size("intermediate_size"),
    "activation": activation("hidden_act", (*GATED_ACTIVATIONS, *PLAIN_ACTIVATIONS), "silu"),
    "patches.out": size("out_hidden_size"),
    "patches.side": size("patch_size", default=14),
    "patches.channels": size("in_channels", default=3),
    "patches.frames": size("temporal_patch_size", default=2),
    "patches.merge": size("spatial_merge_size", default=2),
}
QWEN_BLOCK: Mapping[str, Scalar] = {**TOWER_BLOCK, "joint_qkv": True}
QWEN_NEUTRAL = NEUTRAL | {"in_chans", "spatial_patch_size", "tokens_per_second"}


def windows_in_patches(fields: dict[str, Scalar]) -> None:
    """The patches of a window, which the config gives by the pixels of its side (transformers, modeling_qwen2_5_vl.py,
    `get_vision_window_index`)."""
    side, patch = fields.get("pattern.window"), fields.get("patches.side")
    if isinstance(side, int) and isinstance(patch, int):
        fields["pattern.window"] = max(1, side // patch) ** 2


def wider_by_ratio(fields: dict[str, Scalar]) -> None:
    """The MLP of Qwen2-VL, whose config gives its width by a ratio."""
    hidden, ratio = fields.get("hidden"), fields.get("patches.ratio")
    if isinstance(hidden, int) and isinstance(ratio, int):
        fields["ffn"] = ratio * hidden


def _qwen_patches(fields: Mapping[str, Any], text: int, *, bias: bool = False, further: int = 0) -> Patches:
    """`further` projectors like the first, each with a norm over the merged patches, read the stream between layers."""
    merged = int(fields["patches.merge"]) ** 2
    width = merged * int(fields["hidden"])
    matrices = chain((width, width, int(fields["patches.out"])), bias=True)
    return Patches(
        pixels=_pixels(fields),
        bias=bias,
        positions=int(fields.get("patches.positions", 0)),
        interpolates="patches.positions" in fields,
        merged=merged,
        projectors=(
            Projector(matrices=matrices),
            *(Projector(matrices=matrices, norm="layer", reads_stream=True),) * further,
        ),
    )


def _deep_patches(fields: Mapping[str, Any], text: int) -> Patches:
    return _qwen_patches(fields, text, bias=True, further=len(fields["patches.deep"]))


QWEN2_VL = Tower(
    family=Family(
        keys={
            **{name: key for name, key in QWEN.items() if name != "ffn"},
            "hidden": size("embed_dim", default=1280),
            "patches.ratio": size("mlp_ratio", default=4),
            "patches.out": size("hidden_size"),
            "activation": activation("hidden_act", (*PLAIN_ACTIVATIONS, "quick_gelu"), "quick_gelu"),
        },
        fixed=QWEN_BLOCK,
        adjust=wider_by_ratio,
        neutral=QWEN_NEUTRAL,
    ),
    patches=_qwen_patches,
)
QWEN2_5_VL = Tower(
    family=Family(
        keys={**QWEN, "pattern.window": size("window_size", default=112)},
        fixed={**QWEN_BLOCK, "gated": True, "norm": "rms"},
        pattern=LayerPattern(mixer="chunked", full=never, full_named="fullatt_block_indexes"),
        adjust=windows_in_patches,
        neutral=QWEN_NEUTRAL,
    ),
    patches=_qwen_patches,
)


def _qwen3(*, deep: tuple[int, ...]) -> Tower:
    """The tower of Qwen3-VL, or of Qwen3.5, which has no projectors between layers (transformers, modular_qwen3_5.py,
    Qwen3_5VisionModel)."""
    own = {
        "patches.side": size("patch_size", default=16),
        "patches.positions": size("num_position_embeddings", default=2304),
        "patches.deep": Key(
            name="deepstack_visual_indexes",
            kind="list",
            element=Key(kind="integer", minimum=0),
            default=deep,
        ),
        "activation": activation("hidden_act", PLAIN_ACTIVATIONS, "gelu_pytorch_tanh"),
    }
    return Tower(family=Family(keys={**QWEN, **own}, fixed=QWEN_BLOCK, neutral=QWEN_NEUTRAL), patches=_deep_patches)


QWEN3_VL, QWEN3_5 = _qwen3(deep=(8, 16, 24)), _qwen3(deep=())


# Gemma 3: SigLIP over images of 896 pixels, whose patches are pooled.


def _gemma_patches(fields: Mapping[str, Any], text: int) -> Patches:
    patches, tokens = _patches_of_image(fields), int(fields["mm_tokens_per_image"])
    return Patches(
        pixels=_pixels(fields),
        bias=True,
        positions=patches,
        merged=max(1, patches // tokens),
        tokens=tokens,
        projectors=(Projector(matrices=chain((int(fields["hidden"]), text), bias=False), norm="rms", pools=True),),
    )


GEMMA = Tower(
    family=Family(
        keys={
            **WHOLE_IMAGES,
            "layers": size("num_hidden_layers", default=27),
            "hidden": size("hidden_size", default=1152),
            "heads": size("num_attention_heads", default=16),
            "ffn": size("intermediate_size", default=4304),
            "patches.image": size("image_size", default=896),
            "patches.side": size("patch_size", default=14),
        },
        fixed={**TOWER_BLOCK, **LEARNT_POSITIONS},
        choices={"vision_use_head": {False: {}, None: {}}},
        neutral=NEUTRAL,
    ),
    patches=_gemma_patches,
    beside=(size("mm_tokens_per_image", default=256),),
)


# InternVL: tiles of 448 pixels with a class token, two by two patches to a token.


def _intern_patches(fields: Mapping[str, Any], text: int) -> Patches:
    patches, tokens = _patches_of_image(fields), int(fields["image_seq_length"])
    merged = max(1, patches // tokens)
    width = merged * int(fields["hidden"])
    return Patches(
        pixels=_pixels(fields),
        bias=True,
        positions=patches + 1,
        class_tokens=1,
        merged=merged,
        tokens=tokens,
        projectors=(Projector(matrices=chain((width, text, text), bias=True), norm="layer"),),
    )


INTERN = Tower(
    family=Family(
        keys={
            **WHOLE_IMAGES,
            "attention_bias": switch("attention_bias", False),
            "qk_norm": switch("use_qk_norm", False),
        },
        fixed={
            **{name: value for name, value in TOWER_BLOCK.items() if name not in ("norm", "attention_bias")},
            **LEARNT_POSITIONS,
            "final_norm": False,
            "layer_scale": True,
            "qk_norm_all_heads": True,
        },
        choices={
            "norm_type": {"layer_norm": {"norm": "layer"}, "rms_norm": {"norm": "rms"}, None: {"norm": "layer"}},
            "use_mask_token": {False: {}, None: {}},
            "use_mean_pooling": {True: {}, None: {}},
            "use_absolute_position_embeddings": {True: {}, None: {}},
        },
        neutral=NEUTRAL | {"projection_dropout", "layer_scale_init_value"},
    ),
    patches=_intern_patches,
    beside=(size("image_seq_length", default=256),),
    neutral=unused("internvl"),
)


# Pixtral: images of any size, as many patches to a token as the config around it says.


def _pixtral_patches(fields: Mapping[str, Any], text: int) -> Patches:
    hidden, merged = int(fields["hidden"]), int(fields["spatial_merge_size"]) ** 2
    merging = chain((merged * hidden, hidden), bias=False)
    further = chain((hidden, text, text), bias=bool(fields["multimodal_projector_bias"]))
    return Patches(
        pixels=_pixels(fields),
        bias=False,
        merged=merged,
        projectors=(Projector(matrices=(*merging, *further), linear=1),),
    )


PIXTRAL = Tower(
    family=Family(
        keys={
            **WHOLE_IMAGES,
            "head_dim": size("head_dim", required=False, nullable=True),
            "patches.side": size("patch_size", default=16),
            "patches.image": size("image_size", default=1024),
            "activation": activation("hidden_act", (*GATED_ACTIVATIONS, *PLAIN_ACTIVATIONS), "gelu"),
        },
        fixed={
            **TOWER_BLOCK,
            "gated": True,
            "norm": "rms",
            "attention_bias": False,
            "mlp_bias": False,
            "embedding_norm": True,
        },
        neutral=NEUTRAL | {"vocab_size"},
    ),
    patches=_pixtral_patches,
    beside=(size("spatial_merge_size", default=2), switch("multimodal_projector_bias", False)),
    neutral=frozenset(["projector_hidden_act", "vision_feature_layer"]),
)


# Llama 4: tiles of one size, a class token, and pixels shuffled into fewer tokens.


def _llama_patches(fields: Mapping[str, Any], text: int) -> Patches:
    patches, merged = _patches_of_image(fields), round(fields["patches.ratio"] ** -2)
    shuffled = chain((int(fields["ffn"]), int(fields["patches.inner"])), bias=False)
    outer = int(fields["patches.outer"])
    return Patches(
        pixels=_pixels(fields),
        bias=False,
        positions=patches + 1,
        class_tokens=1,
        merged=merged,
        tokens=patches // merged,
        projectors=(Projector(matrices=(*shuffled, *chain((outer, outer, text), bias=False))),),
    )


LLAMA4 = Tower(
    family=Family(
        keys={
            **WHOLE_IMAGES,
            "patches.ratio": Key(name="pixel_shuffle_ratio", kind="number", default=0.5, maximum=1),
            "patches.inner": size("projector_input_dim", default=4096),
            "patches.outer": size("projector_output_dim", default=4096),
        },
        fixed={**TOWER_BLOCK, "embedding_norm": True},
        neutral=NEUTRAL
        | {"vision_output_dim", "multi_modal_projector_bias", "vision_feature_layer"}
        | {"vision_feature_select_strategy"},
    ),
    patches=_llama_patches,
)

# Llama 3.2 Vision: tiles of one size that attend to one another, with class tokens that stay; layers of the text attend to what comes of them.

MULTIPLE = 8
"""Patches of a tile are filled up to a multiple of this (transformers, modeling_mllama.py, `num_padding_patches`)."""
ENDS_GATED = 3
"""Numbers that gate positions: those of patches, and those of tiles before and after the first layers."""


def with_global_layers(fields: dict[str, Scalar]) -> None:
    """Layers and further, gated ones."""
    layers, further = fields.get("layers"), fields.get("pattern.global")
    if isinstance(layers, int) and isinstance(further, int):
        fields["layers"] = layers + further


def is_global(index: int, fields: Mapping[str, Any]) -> bool:
    return index >= int(fields["layers"]) - int(fields["pattern.global"])


def _mllama_patches(fields: Mapping[str, Any], text: int) -> Patches:
    """Tables of positions: of patches, of patches by the tile's place in each shape of image, and two of tiles (transformers,
    modeling_mllama.py)."""
    of_tile, tiles = _patches_of_image(fields) + 1, int(fields["patches.tiles"])
    places = (len(fields["patches.shapes"]) + 1) * tiles
    states = 1 + len(fields["patches.states"])
    return Patches(
        pixels=_pixels(fields),
        bias=False,
        positions=of_tile * (1 + places) + 2 * places + 1,
        kept_class_tokens=tiles,
        padding=tiles * (-of_tile % MULTIPLE),
        gates=ENDS_GATED,
        merged=1,
        tokens=tiles * of_tile,
        joins_text=False,
        attended=True,
        projectors=(Projector(matrices=chain((states * int(fields["hidden"]), text), bias=True)),),
    )


MLLAMA = Tower(
    family=Family(
        keys={
            **WHOLE_IMAGES,
            "layers": size("num_hidden_layers", default=32, maximum=MOST_LAYERS),
            "pattern.global": size("num_global_layers", default=8, minimum=0, maximum=MOST_LAYERS),
            "hidden": size("hidden_size", default=1280),
            "heads": size("attention_heads", default=16),
            "ffn": size("intermediate_size", default=5120),
            "patches.image": size("image_size", default=448),
            "patches.side": size("patch_size", default=14),
            "patches.tiles": size("max_num_tiles", default=4, maximum=1024),
            "patches.states": Key(
                name="intermediate_layers_indices",
                kind="list",
                element=Key(kind="integer", minimum=0),
                default=(3, 7, 15, 23, 30),
            ),
            "patches.shapes": Key(
                name="supported_aspect_ratios",
                kind="list",
                element=Key(kind="list", element=Key(kind="integer")),
                default=((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1)),
            ),
        },
        fixed={**TOWER_BLOCK, **LEARNT_POSITIONS, "attention_bias": False, "embedding_norm": True},
        pattern=LayerPattern(gated=is_global),
        adjust=with_global_layers,
        # the width of its output is that of the states that it is made of
        neutral=NEUTRAL | {"vision_output_dim"},
    ),
    patches=_mllama_patches,
)

TOWERS: Mapping[str, Tower] = {
    "mllama": MLLAMA,
    "qwen2_vl": QWEN2_VL,
    "qwen2_5_vl": QWEN2_5_VL,
    "qwen3_vl": QWEN3_VL,
    "qwen3_vl_moe": QWEN3_VL,
    "qwen3_5": QWEN3_5,
    "qwen3_5_moe": QWEN3_5,
    "gemma3": GEMMA,
    "internvl": INTERN,
    "mistral3": PIXTRAL,
    "llama4": LLAMA4,
}
