"""The architectures that a Hugging Face `config.json` may describe, by `model_type`: one file per family, found by being in
this folder.

Names and defaults are those of the `transformers` configuration classes. Dropout is taken as 0, as pre-training sets it. Of
a vision-language model the text decoder is read (`text_config`), and its vision tower where TOWERS has the model.
"""

from collections.abc import Mapping
from typing import Any

from predict.huggingface.families.family import Family, Tower
from sampling.additions import add, modules_of


def _found(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in modules_of(__name__):
        for model_type, value in getattr(module, name, {}).items():
            add(found, model_type, value, "model families")
    return found


FAMILIES: Mapping[str, Family] = _found("FAMILIES")
TOWERS: Mapping[str, Tower] = _found("TOWERS")
"""`model_type` of a vision-language model → its tower."""
AROUND_DECODERS: Mapping[str, str] = _found("AROUND_DECODERS")
"""The `model_type` of a vision-language model that may hold a decoder of any family under `text_config` → the decoder's where that names
none."""
