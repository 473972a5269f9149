"""Sessions of this machine's CPU that time a few small calls: a box of shapes, and a file of named calls."""

import json
from pathlib import Path

BOX = """
{dtype: fp32, tokens: [32, 32], seq_len: [16, 16], hidden: [64, 64], head_dims: [16], ffn_ratio: [2.0, 2.0],
 vocab: [128, 128], layers: [1, 1], message_bytes: [1024, 1024]}
"""


def calls_file(path: Path, hardware: str = "CPU core", ranks: int = 2) -> Path:
    """One operator and one collective on two ranks."""
    gemm = {"call": "gemm", "fields": {"dtype": "fp32", "m": 64, "n": 64, "k": 64}, "phases": ["forward"]}
    reduce = {
        "call": "all_reduce",
        "fields": {"size_bytes": 4096, "ranks": 2, "ranks_per_node": 2},
        "phases": ["forward"],
    }
    calls = [{"ranks_per_node": ranks, **entry} for entry in (gemm, reduce)]
    path.write_text(json.dumps({"version": 2, "hardware": hardware, "calls": calls}))
    return path


def arguments_in(folder: Path) -> list[str]:
    """Options of `python -m sampling` for the box and the named calls, with all that it reads and writes in the folder."""
    (folder / "box.yml").write_text(BOX)
    files = ["--ranges", str(folder / "box.yml"), "--calls", str(calls_file(folder / "calls.json"))]
    return ["--profile", "test", "--hardware", "cpu", "--data", str(folder), *files]
