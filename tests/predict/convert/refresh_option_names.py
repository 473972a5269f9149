"""Refreshes `option_names.json` from clones: `PYTHONPATH=. python tests/predict/convert/refresh_option_names.py TORCHTITAN DEEPSPEED`.

The fields of the classes below become the names of their sections, and those that are a Literal its values.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LIST = Path(__file__).parent / "option_names.json"
CLASSES = {
    "torchtitan": (
        "torchtitan/config/job_config.py",
        {
            "model": "Model",
            "optimizer": "Optimizer",
            "training": "Training",
            "parallelism": "Parallelism",
            "activation_checkpoint": "ActivationCheckpoint",
            "compile": "Compile",
            "float8": "Float8",
            "mx": "MX",
        },
    ),
    "deepspeed": ("deepspeed/runtime/zero/config.py", {"zero_optimization": "DeepSpeedZeroConfig"}),
}
"""Tool → the file of its classes, and section → class."""


def fields_of(node: ast.ClassDef) -> dict[str, tuple[str, ...]]:
    """Field → the words of its Literal; an alias that DeepSpeed's pydantic reads stands for the field."""
    found: dict[str, tuple[str, ...]] = {}
    for each in node.body:
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
            continue
        keywords = each.value.keywords if isinstance(each.value, ast.Call) else []
        alias = next(
            (word.value.value for word in keywords if word.arg == "alias" and isinstance(word.value, ast.Constant)),
            None,
        )
        is_literal = "Literal" in ast.unparse(each.annotation)
        words = [one.value for one in ast.walk(each.annotation) if isinstance(one, ast.Constant)] if is_literal else []
        found[str(alias or each.target.id)] = tuple(str(word) for word in words if word is not None)
    return found


def refreshed(known: dict[str, Any], tool: str, clone: Path) -> dict[str, Any]:
    file, classes = CLASSES[tool]
    tree = ast.parse((clone / file).read_text())
    nodes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    commit = subprocess.run(
        ["git", "-C", str(clone), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True
    )
    names, values = dict(known["names"]), dict(known["values"])
    for section, name in classes.items():
        fields = fields_of(nodes[name])
        names[section] = " ".join(fields)
        values |= {f"{section}.{field}": " ".join(words) for field, words in fields.items() if words}
    return {"source": f"{file} at {commit.stdout.strip()}", "names": names, "values": values}


if __name__ == "__main__":
    content = json.loads(LIST.read_text())
    for tool, clone in zip(CLASSES, map(Path, sys.argv[1:]), strict=True):
        content[tool] = refreshed(content[tool], tool, clone)
    LIST.write_text(json.dumps(content, indent=1) + "\n")
