"""Logs of nanochat, and of its offspring autoresearch.

Source: scripts/base_train.py of github.com/karpathy/nanochat (`step 00050/21400 (0.23%) | loss: 6.1 | … | dt: 498.11ms | tok/sec: 1,052,630
| mfu: 47.24 | total time: 0.33m`), steps from 0, and what it prints before it starts (`Tokens / micro-batch / rank: 32 x 2048 = 65,536`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from predict.measured_runs.logs import figure, times
from predict.measured_runs.steady_state import LoggedStep, Stated
from sampling.units import MIB

FRAMEWORK = "nanochat"
STEP = re.compile(r"\bstep (\d+)(?:/\d+)? .*\|\s*dt: ([\d.]+)ms \|")
MICRO = re.compile(r"Tokens / micro-batch / rank: (\d+) x (\d+) =")
OF_ALL = re.compile(r"Tokens / micro-batch: ([\d,]+)")
TOTAL = re.compile(r"Total batch size ([\d,]+) =>")
SIZES: Mapping[str, str] = {
    "num_layers": "layers",
    "model_dim": "hidden",
    "num_heads": "heads",
    "Vocab size": "vocab",
}
"""Line of the model's sizes → size; keys and values have as many heads as queries."""
INNER = 4
"""Inner width of its MLP over the hidden one (nanochat/gpt.py)."""


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    batch = seq_len = None
    for line in lines:
        if found := MICRO.search(line):
            seq_len = int(found[2])
        elif (found := TOTAL.search(line)) and seq_len:
            batch = _number(found[1]) // seq_len
        elif found := STEP.search(line):
            yield LoggedStep(
                step=int(found[1]) + 1, time_us=float(found[2]) * 1e3 or None, batch=batch, seq_len=seq_len
            )


def peak_bytes(line: str) -> float | None:
    return times(figure(line, r"Peak memory usage"), MIB)


def stated(lines: Sequence[str]) -> Stated:
    """Batch, ranks and the sizes of the model."""
    settings: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for line in lines:
        if STEP.search(line):
            break
        if (found := MICRO.search(line)) and int(found[1]) * int(found[2]):
            settings |= {"batch.micro": int(found[1]), "batch.seq_len": int(found[2])}
        elif (found := OF_ALL.search(line)) and settings:
            settings["plan.dp"] = _number(found[1]) // (settings["batch.micro"] * settings["batch.seq_len"])
        elif (found := TOTAL.search(line)) and settings:
            settings["batch.global"] = _number(found[1]) // settings["batch.seq_len"]
        elif found := re.match(rf"({'|'.join(SIZES)}): ([\d,]+)\s*$", line):
            sizes[SIZES[found[1]]] = _number(found[2])
    if len(sizes) < len(SIZES):
        return Stated(settings=settings)
    settings |= {"model": gpt_of(**sizes), "precision": "bf16", "execution.framework": "nanochat"}
    return Stated(
        settings=settings, uncertain=("model: ReLU² and norms without weights stand as GPT-NeoX's GELU and norms",)
    )


def gpt_of(*, layers: int, hidden: int, heads: int, vocab: int) -> dict[str, Any]:
    """The config.json of a GPT with rotary embeddings and an MLP of two matrices, which its ReLU² is as far as products go."""
    return {
        "model_type": "gpt_neox",
        "hidden_size": hidden,
        "intermediate_size": INNER * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": vocab,
        "rotary_pct": 1.0,
        "use_parallel_residual": False,
        "attention_bias": False,
    }


def _number(text: str) -> int:
    return int(text.replace(",", ""))
