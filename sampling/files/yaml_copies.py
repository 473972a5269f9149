"""JSON copies of shipped YAML files, for a machine with a GPU that has no PyYAML: `python -m sampling.files.yaml_copies` writes them.

Those copied are what a session of one GPU reads.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from sampling.files.places import CONFIGS

COPIES = CONFIGS / "yaml-copies.json"
FOLDERS = ("hardware", "sampling")


def copied_value(path: Path, text: str) -> Any:
    """The value of a shipped YAML file by its copy; LookupError for a file that has none, or differs from it."""
    copy = json.loads(COPIES.read_text(encoding="utf-8"))[_name(path)]
    if copy["sha256"] != _digest(text):
        raise LookupError(path)
    return copy["value"]


def copies() -> str:
    """The text of the file of copies, a line for each."""
    import yaml

    made = {}
    for path in sorted(path for folder in FOLDERS for path in (CONFIGS / folder).glob("*.yml")):
        text = path.read_text(encoding="utf-8")
        made[_name(path)] = {"sha256": _digest(text), "value": yaml.safe_load(text)}
    lines = (f"{json.dumps(name)}: {json.dumps(copy, ensure_ascii=False)}" for name, copy in made.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _name(path: Path) -> str:
    """The path below configs/; '' for a file elsewhere."""
    whole = path.resolve()
    return whole.relative_to(CONFIGS).as_posix() if whole.is_relative_to(CONFIGS) else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    COPIES.write_text(copies(), encoding="utf-8")
