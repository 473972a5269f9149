"""Modules for the tests of bounds: files as a user writes them."""

from pathlib import Path

from predict.bounds.device import Device
from predict.bounds.kernels import Graph
from predict.bounds.read_module import read_module

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


def write(folder: Path, body: str) -> Path:
    path = folder / "module.py"
    path.write_text(HEAD + body)
    return path


def forward(expression: str, *inputs: str, parts: str = "pass") -> str:
    """A module whose forward is one expression of x, y, …, with the parts that it holds."""
    names = ", ".join(["x", "y", "z"][: len(inputs)])
    return f"""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {parts}
    def forward(self, {names}):
        return {expression}
def get_inputs():
    return [{", ".join(inputs)}]
"""


def graph_of(folder: Path, expression: str, *inputs: str, parts: str = "pass") -> Graph:
    return read_module(write(folder, forward(expression, *inputs, parts=parts)), "bf16")


def device(*, on_chip_bytes: float = 2**20, macs: float = 100.0, bytes_per_cycle: float = 1.0) -> Device:
    """A device of round numbers: a cycle is a nanosecond."""
    return Device(
        entry="round",
        name="round",
        clock_ghz=1.0,
        bytes_per_cycle=bytes_per_cycle,
        macs_per_cycle={"bf16": macs},
        vector_macs_per_cycle=1.0,
        on_chip_bytes=on_chip_bytes,
        memory_bytes=2**34,
    )
