"""A call in a few words: its name and the sizes that set it apart."""

from __future__ import annotations

from sampling.call import Call

MUTE = (0, False, "", None)
"""Values of a field that say nothing."""


def call_text(call: Call) -> str:
    """`gemm fp8 m=2048 n=576 k=7168`."""
    given = {name: value for name, value in call.fields().items() if name != "dtype" and value not in MUTE}
    told = [name if value is True else f"{name}={value}" for name, value in given.items()]
    return " ".join([call.NAME, *filter(None, [call.fields().get("dtype")]), *told])
