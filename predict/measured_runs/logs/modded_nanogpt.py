"""Logs of modded-nanogpt, which begin with the whole code of the run.

Source: github.com/KellerJordan/modded-nanogpt (`step:125/15258 train_loss:5.1402 train_time:197807ms step_avg:1720.06ms`; seconds in
track 3). `train_time` is the time since the warm-up without validation. Successive steps take unlike times, since some
optimizers work on every other one, so that a step here is the mean of a stretch of them, by its difference.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from predict.measured_runs.logs.nanochat import gpt_of
from predict.measured_runs.steady_state import LoggedStep, Stated
from sampling.units import MIB

FRAMEWORK = "modded-nanogpt"
STEP = re.compile(r"^step:(\d+)/\d+ .*?\btrain_time:([\d.]+)(m?s)\b(?:.*?\bstep_avg:([\d.]+)ms)?")
STRETCHES = 40
"""Stretches that a log is divided into, at most."""
SHORTEST = 2
"""Fewest steps of a stretch: optimizers of matrices may work on every second one."""


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    states = [*_states(lines)]
    if not states:
        return
    least = max(SHORTEST, states[-1][0] // STRETCHES)
    step, at_us = states[0]
    for next_step, next_us in states[1:]:
        if next_step < step or next_us < at_us:  # begun anew
            step, at_us = next_step, next_us
        elif next_step - step >= least and next_us > at_us:
            yield LoggedStep(step=next_step, time_us=(next_us - at_us) / (next_step - step))
            step, at_us = next_step, next_us


def _states(lines: Iterable[str]) -> Iterator[tuple[int, float]]:
    """(steps done, µs of training) of each line."""
    for line in lines:
        if found := STEP.match(line):
            yield int(found[1]), float(found[2]) * (1e3 if found[3] == "ms" else 1e6)


def peak_bytes(line: str) -> float | None:
    found = re.match(r"peak memory (?:allocated|consumption): (\d+) MiB", line)
    return float(found[1]) * MIB if found else None


# What the code in the log says of the run.

SIZES: Mapping[str, str] = {
    "layers": r"\b(?:n_layer|num_layers)=(\d+)",
    "hidden": r"\b(?:n_embd|model_dim)=(\d+)",
    "heads": r"\b(?:n_head|num_heads)=(\d+)",
    "vocab": r"\b(?:vocab_size|num_vocab)\s*=\s*(\d+)",
}
"""Size → how the code writes it; the last time counts, which is the call that makes the model."""
NUMBERS: Mapping[str, str] = {
    "batch": r"^\s*batch_size\s*(?::\s*int\s*)?=\s*(\d+(?: *\* *\d+)*)\b(?! *\*)",
    "micro": r"^\s*(?:device_batch_size|mbs)\s*(?::\s*int\s*)?=\s*(\d+(?: *\* *\d+)*)\b(?! *\*)",
    "length": r"\b(?:sequence_length|seq_len)\s*(?::\s*int\s*)?=\s*(\d+(?: *\* *\d+)*)\b(?! *\*)",
}
DEVICE = re.compile(r"^\|\s+\d+\s+(NVIDIA [^|]+?)\s+O(?:n|ff)\s+\|")
"""A device's line of nvidia-smi."""
HEAD_DIM = 128
"""Width of a head where the code fixes it in its attention."""
NEAREST = "nanochat"
"""The framework that ships and runs most alike."""
LONGEST = 1 << 16
"""Batch from which on it counts tokens and not sequences."""


def stated(lines: Sequence[str]) -> Stated:
    first = next((place for place, line in enumerate(lines) if STEP.match(line)), len(lines))
    code, settings = "\n".join(lines[:first]), dict[str, Any]()
    sizes = {name: int(found[-1]) for name, pattern in SIZES.items() if (found := re.findall(pattern, code))}
    numbers = {
        name: prod(map(int, number[1].split("*")))
        for name, pattern in NUMBERS.items()
        if (number := re.search(pattern, code, re.MULTILINE))
    }
    if {"layers", "hidden", "vocab"} <= sizes.keys():
        settings |= {"model": gpt_of(**{"heads": sizes["hidden"] // HEAD_DIM, **sizes}), "precision": "bf16"}
    if {"batch", "length"} <= numbers.keys():
        of_tokens = numbers["batch"] >= LONGEST
        settings["batch.global"] = numbers["batch"] // (numbers["length"] if of_tokens else 1)
        settings["batch.seq_len"] = numbers["length"]
        settings |= {"batch.micro": numbers["micro"]} if "micro" in numbers else {}
    if devices := [device[1] for line in lines[:first] if (device := DEVICE.match(line))]:
        settings |= {"cluster.hardware": devices[0], "cluster.nodes": 1, "cluster.gpus_per_node": len(devices)}
        settings |= {"plan.tp": 1, "plan.pp": 1, "plan.cp": 1}
    if "Muon(" in code and "torch.compile(" in code:
        settings["execution.framework"] = NEAREST
    notes = {
        "model": "model: a GPT of these sizes with ReLU² and norms without weights; the code in the log may add to it",
        "execution.framework": f"execution.framework: {NEAREST} compiles whole replicas with Muon too",
    }
    return Stated(settings=settings, uncertain=tuple(note for key, note in notes.items() if key in settings))
