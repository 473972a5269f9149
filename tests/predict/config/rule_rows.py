"""The rows of test_rules.py, from the YAML file beside this one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DENSE, MOE, MLA, LITTLE = "llama3-70b", "qwen3-30b-a3b", "deepseek-v3", "llama3-8b"


@dataclass(frozen=True, kw_only=True)
class Row:
    """Settings that break `rule` and nothing else, the key that is blamed, and what mends them."""

    rule: str
    settings: Mapping[str, Any]
    path: str
    mended: Mapping[str, Any]
    model: str


ROWS = [
    Row(**{"model": LITTLE, **entry})
    for entry in yaml.load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
]
