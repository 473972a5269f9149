"""The docstrings under a dataclass's fields, read from its source when help or a schema is asked for."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path


@cache
def field_docs(cls: type) -> Mapping[str, str]:
    """Field → the text of the docstring that follows it, on one line; the `_` of `global_` is left out as in its key."""
    source = Path(str(sys.modules[cls.__module__].__file__)).read_text(encoding="utf-8")
    body = next(
        node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    docs = {}
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            docs[field.target.id.rstrip("_")] = " ".join(str(ast.literal_eval(after.value)).split())
    return docs
