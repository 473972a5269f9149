"""Kimi K2, whose architecture is DeepSeek-V3's (its `config.json` names DeepseekV3ForCausalLM)."""

from collections.abc import Mapping

from predict.huggingface.families.deepseek import DEEPSEEK_FAMILY
from predict.huggingface.families.family import Family

FAMILIES: Mapping[str, Family] = {"kimi_k2": DEEPSEEK_FAMILY}
AROUND_DECODERS: Mapping[str, str] = {"kimi_k25": "kimi_k2"}
