"""Rows of samples that nobody timed, and ranges of small shapes to draw."""

from typing import Any

from sampling.call import Call, Phase
from sampling.choosing.ranges import ShapeRanges
from sampling.store.sample import Sample


def row(call: Call, phase: Phase = "forward", time_us: float = 1.0, *, spread: float = 0.0, **fields: Any) -> Sample:
    """A good row of one session whose bounds lie `spread`, as a share, from its time."""
    usual = {"threads": 0, "busy_ranks": 1, "repeats": 9, "quarantine": "", "session": 0}
    bounds = {"low_us": (1 - spread) * time_us, "high_us": (1 + spread) * time_us}
    return Sample(call=call, phase=phase, time_us=time_us, **{**usual, **bounds, **fields})


def small_ranges(**changes: Any) -> ShapeRanges:
    """Shapes that a CPU runs in milliseconds."""
    tokens = {"tokens": (32, 64), "seq_len": (16, 32), "message_bytes": (1024, 4096)}
    model = {"hidden": (64, 128), "head_dims": (16,), "ffn_ratio": (2.0, 3.0), "vocab": (128, 256), "layers": (2, 2)}
    return ShapeRanges(**{"dtype": "fp32", **tokens, **model, **changes})
