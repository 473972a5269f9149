"""The shipped models, configs/models, by the names that people give them: `llama3-8b`, `Llama-3.1-8B`, `meta-llama/Llama-2-7b-hf`."""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from sampling.files.places import CONFIGS

FOLDER = CONFIGS / "models"
BEFORE = re.compile(r"^(.*/)?(meta-|nvidia-)?")
FEWER_BITS = r"fp4|nvfp4|mxfp4|awq|gptq|bnb|int[48]|w4a16|w8a16|w8a8|quantized\.w\w+|[48]bit"
BETWEEN = re.compile(
    r"-(hf|instruct|chat|it|base|pt|thinking|terminus|coder|math|fp8|bf16|dynamic|4k|8k|v0\.1|v1\.0|exp|\d{4}"
    rf"|{FEWER_BITS})(?=-|$)"
)
"""Words that repositories of weights add to the name of a model, whose sizes stay the same: what it was tuned for, the format of its
weights, its first version, a month."""
OF_ONE_SHAPE: Mapping[str, str] = {
    "qwen20.5b": "qwen2.5-0.5b",
    "qwen21.5b": "qwen2.5-1.5b",
    "qwen27b": "qwen2.5-7b",
    "qwen272b": "qwen2.5-72b",
    "deepseekr1": "deepseek-v3",
    "deepseekv3.1": "deepseek-v3",
    "deepseekr1distillqwen7b": "qwen2.5-7b",
    "deepseekr1distillqwen14b": "qwen2.5-14b",
    "deepseekr1distillqwen32b": "qwen2.5-32b",
    "deepseekr1distillllama8b": "llama3.1-8b",
    "deepseekr1distillllama70b": "llama3.3-70b",
    "glm5.1": "glm5",
    "minimaxm2.1": "minimax-m2",
    "minimaxm2.5": "minimax-m2",
}
"""A model, by its letters and digits → the shipped one whose sizes are its own, by the config.json that its publisher gives."""


def shipped_models() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def name_of_file(path: Path) -> str:
    """The name of a model by its file; every repository of Hugging Face calls it `config.json`, so that its folder has the name, or in
    the cache, `models--OWNER--NAME/snapshots/HASH`, the one above."""
    if path.name != "config.json":
        return path.stem
    folders = Path(os.path.abspath(path)).parent.parts  # noqa: PTH100  (resolve() reads the disk, and fails on odd names)
    cached = [folder.rpartition("--")[2] for folder in folders if folder.startswith("models--")]
    return cached[-1] if cached else Path(*folders).name or path.stem


def shipped_model(name: str) -> Path | None:
    """The file of the model that goes by this name, whatever its case and hyphens."""
    known, plain = _by_plain_name(FOLDER, FOLDER.stat().st_mtime_ns), _plain(name)
    stem = (
        known.get(plain)
        or known.get(plain.replace("llama3.1", "llama3"))
        or OF_ONE_SHAPE.get(plain)
        or OF_ONE_SHAPE.get(f"deepseek{plain}")
    )
    return FOLDER / f"{stem}.json" if stem else None


@lru_cache(maxsize=2)
def _by_plain_name(folder: Path, changed_ns: int) -> Mapping[str, str]:
    """The shipped models of the folder, listed again when a file comes or goes: every config that is read names one."""
    return {_plain(path.stem): path.stem for path in sorted(folder.glob("*.json"))}


def in_fewer_bits(name: str) -> bool:
    """Whether a repository's name says that its weights have fewer bits than those that are trained."""
    return re.search(rf"-({FEWER_BITS})(?=-|/|$)", name.lower().replace("_", "-")) is not None


def notes_on_name(name: str) -> list[str]:
    """The notes on a model's name in a config: that a shipped model stands for it, and that it is the text part alone."""
    return [f"model: {note}" for note in (read_as(name), text_alone(name)) if note]


def text_alone(name: str) -> str:
    """Says that a shipped model lacks the vision tower of its repository; empty for others."""
    path = shipped_model(name)
    sections = path.read_text() if path else ""
    if '"text_config"' not in sections or '"vision_config"' in sections:
        return ""
    return f"{name} is the text part alone: its vision tower is not known, and takes neither time nor memory here"


def read_as(name: str) -> str:
    """Says which shipped model stands for a repository's, whoever's it is; empty for a shipped name, a path and an unknown name."""
    path = shipped_model(name)
    if path is None or ("/" not in name and _plain(name) not in OF_ONE_SHAPE):
        return ""
    return f"{name} is read as the shipped {path.stem}, by its name alone; if its sizes differ, save its config.json and give the path"


def _plain(name: str) -> str:
    """Letters and digits alone, and the point of a version."""
    own = BETWEEN.sub("", BEFORE.sub("", name.lower().replace("_", "-")))
    return re.sub(r"[^a-z0-9.]", "", own)
