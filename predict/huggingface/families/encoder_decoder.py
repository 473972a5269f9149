"""Encoder–decoders: T5 with relative positions, and Whisper, whose encoder reads frames of sound through two convolutions.

A block of their decoders has attention to its own tokens, attention to what the encoder makes, and an MLP; it is counted as two layers, of
which the first is attention alone. Encoder and decoder stand in one `config.json`, of which each reads its own keys.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from predict.huggingface.families.family import (
    MOST_LAYERS,
    NO_BIAS,
    PLAIN_ACTIVATIONS,
    PLAIN_BLOCK,
    Family,
    LayerPattern,
    Tower,
    activation,
    first_of_two,
    size,
    switch,
)
from predict.model.patches import Patches, Stem
from predict.model.spec import CROSS
from sampling.cells.matrices import Matrix
from sampling.files.schema import Key, Scalar

DECODER: Mapping[str, Scalar] = {"cross.tokens": 0, "cross.normed": False}
BLOCKS_OF_DECODER = LayerPattern(mixer=CROSS, full=first_of_two, alone=first_of_two)
ENCODER: Mapping[str, Scalar] = {"vocab": 0, "tied": True, "bidirectional": True}


def two_layers_a_block(fields: dict[str, Scalar]) -> None:
    """Makes two layers of each block: those of the decoder where the config states its number, else as many as the encoder has."""
    blocks = fields.get("pattern.decoder", fields.get("layers"))
    if isinstance(blocks, int):
        fields["layers"] = 2 * blocks


# T5

T5: Mapping[str, Key] = {
    "layers": size("num_layers", default=6, maximum=MOST_LAYERS),
    "hidden": size("d_model", default=512),
    "heads": size("num_heads", default=8),
    "head_dim": size("d_kv", default=64),
    "ffn": size("d_ff", default=2048),
    "relative_buckets": size("relative_attention_num_buckets", default=32),
}
T5_BLOCK: Mapping[str, Scalar] = {**NO_BIAS, "norm": "rms", "rope": False, "no_positions": True}
T5_CHOICES: Mapping[str, Mapping[str | bool | None, Mapping[str, Scalar]]] = {
    "feed_forward_proj": {
        "relu": {"gated": False, "relu": True},
        "gelu": {"gated": False},
        "gated-gelu": {"gated": True},
        "gated-silu": {"gated": True},
        None: {"gated": False, "relu": True},
    }
}
T5_NEUTRAL = frozenset(
    [
        *("dense_act_fn", "dropout_rate", "initializer_factor", "is_encoder_decoder", "is_gated_act", "n_positions"),
        *("output_past", "relative_attention_max_distance", "scale_decoder_outputs"),
    ]
)
T5_DECODER = Family(
    keys={
        **T5,
        "pattern.decoder": size("num_decoder_layers", required=False, nullable=True, maximum=MOST_LAYERS),
        "vocab": size("vocab_size", default=32128),
        "tied": switch("tie_word_embeddings", True),
    },
    fixed={**T5_BLOCK, **DECODER},
    pattern=BLOCKS_OF_DECODER,
    adjust=two_layers_a_block,
    choices=T5_CHOICES,
    neutral=T5_NEUTRAL,
)
MT5: Mapping[str, Key] = {
    "layers": size("num_layers", default=8, maximum=MOST_LAYERS),
    "heads": size("num_heads", default=6),
    "ffn": size("d_ff", default=1024),
}
MT5_VOCABULARY = 250112
MT5_CHOICES = {"feed_forward_proj": {**T5_CHOICES["feed_forward_proj"], None: {"gated": True}}}
MT5_DECODER = replace(
    T5_DECODER,
    keys={**T5_DECODER.keys, **MT5, "vocab": size("vocab_size", default=MT5_VOCABULARY)},
    choices=MT5_CHOICES,
)


def _t5_patches(fields: Mapping[str, Any], text: int) -> Patches:
    """Tokens of the decoder's own embedding."""
    return Patches(
        pixels=0,
        bias=False,
        table=int(fields["patches.table"]),
        merged=1,
        of_sequences=True,
        joins_text=False,
        attended=True,
        projectors=(),
    )


T5_ENCODER = Tower(
    family=Family(
        keys={**T5, "patches.table": size("vocab_size", default=32128)},
        fixed={**T5_BLOCK, **ENCODER},
        choices=T5_CHOICES,
        neutral=T5_NEUTRAL | {"num_decoder_layers", "tie_word_embeddings"},
    ),
    patches=_t5_patches,
    section="",
)
MT5_ENCODER = replace(
    T5_ENCODER,
    family=replace(
        T5_ENCODER.family,
        keys={**T5_ENCODER.family.keys, **MT5, "patches.table": size("vocab_size", default=MT5_VOCABULARY)},
        choices=MT5_CHOICES,
    ),
)


# Whisper

KERNEL, STRIDE = 3, 2
"""Of its two convolutions, and of the second one (transformers, modeling_whisper.py, `WhisperEncoder`)."""
WHISPER: Mapping[str, Key] = {
    "hidden": size("d_model", default=384),
    "activation": activation("activation_function", PLAIN_ACTIVATIONS, "gelu"),
}
WHISPER_BLOCK: Mapping[str, Scalar] = {
    **PLAIN_BLOCK,
    "rope": False,
    "attention_bias": True,
    "key_bias": False,
    "queries_by_head": True,
}
WHISPER_NEUTRAL = frozenset(
    [
        *("activation_dropout", "alignment_heads", "apply_spec_augment", "classifier_proj_size", "decoder_layerdrop"),
        *(
            "dropout",
            "encoder_layerdrop",
            "forced_decoder_ids",
            "init_std",
            "is_encoder_decoder",
            "lang_detection_threshold",
        ),
        *("lang_detection_segments", "mask_feature_length", "mask_feature_min_masks", "mask_feature_prob"),
        *("mask_time_length", "mask_time_min_masks", "mask_time_prob", "median_filter_width", "num_hidden_layers"),
        *("scale_embedding", "use_weighted_layer_sum"),
    ]
)
OF_ENCODER: Mapping[str, Key] = {
    "layers": size("encoder_layers", default=4, maximum=MOST_LAYERS),
    "heads": size("encoder_attention_heads", default=6),
    "ffn": size("encoder_ffn_dim", default=1536),
    "patches.channels": size("num_mel_bins", default=80),
    "patches.positions": size("max_source_positions", default=1500),
}
OF_DECODER: Mapping[str, Key] = {
    "layers": size("decoder_layers", default=4, maximum=MOST_LAYERS),
    "heads": size("decoder_attention_heads", default=6),
    "ffn": size("decoder_ffn_dim", default=1536),
    "vocab": size("vocab_size", default=51865),
    "max_positions": size("max_target_positions", default=448),
    "tied": switch("tie_word_embeddings", True),
}
WHISPER_DECODER = Family(
    keys={**WHISPER, **OF_DECODER},
    fixed={**WHISPER_BLOCK, **DECODER},
    pattern=BLOCKS_OF_DECODER,
    adjust=two_layers_a_block,
    neutral=WHISPER_NEUTRAL | {key.name for key in OF_ENCODER.values()},
)


def _whisper_patches(fields: Mapping[str, Any], text: int) -> Patches:
    """Frames of as many channels as the spectrum has; the table of positions, which is not trained, counts among the parameters."""
    hidden, tokens = int(fields["hidden"]), int(fields["patches.positions"])
    second = Matrix(product="stem", outputs=hidden, inputs=KERNEL * hidden, bias=True)
    return Patches(
        pixels=KERNEL * int(fields["patches.channels"]),
        bias=True,
        positions=tokens,
        stem=Stem(second=second, kernel=KERNEL, stride=STRIDE),
        merged=1,
        tokens=tokens,
        of_sequences=True,
        joins_text=False,
        attended=True,
        projectors=(),
    )


WHISPER_ENCODER = Tower(
    family=Family(
        keys={**WHISPER, **OF_ENCODER},
        fixed={**WHISPER_BLOCK, **ENCODER, "no_positions": True},
        neutral=WHISPER_NEUTRAL | {key.name for key in OF_DECODER.values()},
    ),
    patches=_whisper_patches,
    section="",
)

FAMILIES: Mapping[str, Family] = {"t5": T5_DECODER, "mt5": MT5_DECODER, "whisper": WHISPER_DECODER}
TOWERS: Mapping[str, Tower] = {"t5": T5_ENCODER, "mt5": MT5_ENCODER, "whisper": WHISPER_ENCODER}
