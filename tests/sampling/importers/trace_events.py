"""Events as torch's profiler writes them."""

from typing import Any


def op(name: str, start: float, duration: float, external: int, **arguments: Any) -> dict[str, Any]:
    place = {"pid": 1, "tid": 1, "ts": start, "dur": duration}
    return {"ph": "X", "cat": "cpu_op", "name": name, **place, "args": {**arguments, "External id": external}}
