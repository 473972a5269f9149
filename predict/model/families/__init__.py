"""The architectures that a Hugging Face `config.json` may describe, by `model_type`: one file per family, found by standing
here.

Names and defaults are those of the `transformers` configuration classes. Dropout is taken as 0, as pre-training sets it. Of
a vision-language model the text decoder is read (`text_config`), and its vision tower is ignored.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from predict.model.families.family import Family


def _found() -> dict[str, Family]:
    families: dict[str, Family] = {}
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        families |= getattr(module, "FAMILIES", {})
    return families


FAMILIES: Mapping[str, Family] = _found()
