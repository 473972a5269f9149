"""What several commands share."""

from __future__ import annotations

import json
import sys
from typing import Any

from sampling.errors import UserError


def require_positive(option: str, value: int) -> None:
    if value < 1:
        raise UserError(f"{option}: {value} is not a positive number; give 1 or more")


def print_json(content: dict[str, Any]) -> None:
    print(json.dumps(content, indent=1))


def note(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
