"""The architectures that a Hugging Face `config.json` may describe, by `model_type`: one file per family, found by being in
this folder.

Names and defaults are those of the `transformers` configuration classes. Dropout is taken as 0, as pre-training sets it. Of
a vision-language model the text decoder is read (`text_config`), and its vision tower is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from predict.huggingface.families.family import Family
from sampling.additions import add, modules_of


def _found() -> dict[str, Family]:
    families: dict[str, Family] = {}
    for module in modules_of(__name__):
        for model_type, family in getattr(module, "FAMILIES", {}).items():
            add(families, model_type, family, "model families")
    return families


FAMILIES: Mapping[str, Family] = _found()
