"""EXAONE 4."""

from collections.abc import Mapping

from predict.huggingface.families.family import (
    LLAMA_BLOCK,
    LLAMA_LIKE,
    NO_BIAS,
    Family,
    LayerPattern,
    last_of_interval,
    size,
)
from sampling.files.schema import Key, Scalar

INTERVAL = Key(
    name="sliding_window_pattern",
    kind="string",
    takes_number=True,
    pattern=r"L*G|[1-9]\d{0,8}",
    default="4",
    nullable=True,
    meaning="one layer in how many has full attention, as 4, or LLLG for the same",
)


def whole_interval(fields: dict[str, Scalar]) -> None:
    """The number of layers of a pattern that is given as a number, or by a letter for each."""
    interval = str(fields.get("pattern.interval", INTERVAL.default))
    fields["pattern.interval"] = int(interval) if interval.isdigit() else len(interval)


FAMILIES: Mapping[str, Family] = {
    "exaone4": Family(
        keys={
            **LLAMA_LIKE,
            "kv_heads": size("num_key_value_heads", default=32, nullable=True),
            "pattern.window": size("sliding_window", default=4096, nullable=True, minimum=0),
            "pattern.interval": INTERVAL,
        },
        # two norms follow attention and MLP where Llama's precede them, as in OLMo 2
        fixed={**LLAMA_BLOCK, **NO_BIAS, "qk_norm": True},
        pattern=LayerPattern(mixer="sliding", full=last_of_interval, typed=True),
        adjust=whole_interval,
    ),
}
