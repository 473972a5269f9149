"""A file that cannot be read as a module: one line that names the operation and the line of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from predict.bounds.read_module import read_module
from sampling.errors import UserError
from tests.predict.bounds.modules import forward, write

INPUT = "torch.randn(4, 8)"
CASES = {
    "no Model": (
        "class Modle: pass\ndef get_inputs(): return []",
        r"module.py: Model: missing; did you mean 'Modle'\?",
    ),
    "no class": ("Model = 3\ndef get_inputs(): return []", r"module.py: Model: not callable; define class Model"),
    "no inputs": ("class Model(nn.Module): pass", r"get_inputs: missing; define"),
    "no module": ("class Model: pass\ndef get_inputs(): return []", r"Model makes a Model; make it a torch.nn.Module"),
    "no list of inputs": ("class Model(nn.Module): pass\ndef get_inputs(): return 3", r"get_inputs\(\) returns int;"),
    "arguments of Model": (
        "class Model(nn.Module):\n    def __init__(self, a): pass\ndef get_inputs(): return []",
        r"Model\(\*get_init_inputs\(\)\) failed: TypeError",
    ),
    "no Python": ("class Model(nn.Module)\n", r"module.py:4: not valid Python"),
    "a missing library": ("import notthere\n", r"module.py:4: running it failed: ModuleNotFoundError"),
    "rows by value": (
        forward("x[torch.nonzero(x)[:, 0]]", INPUT),
        r"module.py:10: nonzero cannot be counted: the size",
    ),
    "a choice by value": (
        forward("x if x.sum() > 0 else -x", INPUT),
        r"module.py:10: `return x if .* cannot be exported: the size",
    ),
    "a size by value": (
        forward("torch.zeros(int(x.max().item()))", INPUT),
        r"module.py:10: .* cannot be exported: the size",
    ),
    "sizes that differ": (
        forward("self.a(x)", INPUT, parts="self.a = nn.Linear(7, 3)"),
        r"module.py:10: `return self.a\(x\)`",
    ),
    "a graph of its own": (
        forward("torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))", INPUT),
        r"module.py:10: cond is not read",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_line_of_what_cannot_be_read_is_told(case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body, told = CASES[case]
    with pytest.raises(UserError, match=told) as caught:
        read_module(write(tmp_path, body), "bf16")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_what_a_file_prints_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read_module(write(tmp_path, f"print('hello')\n{forward('x + 1', INPUT)}"), "bf16")
    assert capsys.readouterr() == ("", "hello\n")


def test_no_weight_takes_memory(tmp_path: Path) -> None:
    graph = read_module(
        write(tmp_path, forward("self.a(x)", "torch.randn(1, 2**20)", parts="self.a = nn.Linear(2**20, 2**20)")), "bf16"
    )
    assert sum(tensor.size_bytes for tensor in graph.weights) > 2**41


def test_there_is_such_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        read_module(tmp_path / "nothing.py", "bf16")
