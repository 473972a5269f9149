"""Logs of torchtitan.

Source: `MetricsProcessor.log` of torchtitan/components/metrics.py (`step: 10  loss: …  memory: 47.24GiB(49.73%)  tps: 6,012  tflops:
350.15  mfu: 35.40%`; `wps` before 2025), tokens per second and GPU since the line before; `Training starts at step 1, with local batch
size 1, global batch size 8, sequence length 8192` of its trainer.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from predict.convert.torchtitan import COMPILED, EAGER
from predict.measured_runs.logs import NUMBER, figure, times
from predict.measured_runs.steady_state import LoggedStep, Stated, usual_nodes
from sampling.units import GIB

FRAMEWORK = "torchtitan"
STEP = re.compile(r"\bstep:\s*(\d+)\s+.*\b(?:tps|wps):")
STARTS = re.compile(r"Training starts at step \d+.*global batch size (\d+)(?:.*sequence length (\d+))?")
MEMORY = re.compile(rf"\bmemory:\s*{NUMBER}\s*GiB")


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    batch = seq_len = None
    for line in lines:
        if found := STARTS.search(line):
            batch, seq_len = int(found[1]), int(found[2]) if found[2] else None
        if found := STEP.search(line):
            yield LoggedStep(
                step=int(found[1]),
                tokens_per_s_per_gpu=figure(line, r"\b(?:tps|wps)"),
                tflops_per_gpu=figure(line, r"\btflops"),
                batch=batch,
                seq_len=seq_len,
            )


def peak_bytes(line: str) -> float | None:
    found = MEMORY.search(line) if STEP.search(line) else None
    return times(float(found[1].replace(",", "")), GIB) if found else None


# What its lines before the first step say of the run.

STARTED = re.compile(r"Training starts at step \d+, with local batch size (\d+)")
DEVICE = re.compile(r"CUDA capacity: (.+?) with [\d.]+GiB memory")
MODEL = re.compile(r"(?:Building|Model) (\w+) ([\w.]*\d[\w.]*[BMK]) (?:with|size:)")
MESH = re.compile(r"Building \d+-D device mesh with \[([^\]]+)\], \[([^\]]+)\]")
DEGREES = re.compile(r"Building device mesh with parallelism: (.+)")
RECOMPUTE = re.compile(r"Applied (\w+) activation checkpointing")
COMPILES = "Compiling each"


def stated(lines: Sequence[str]) -> Stated:
    """Model, device, degrees and batch; the tool's own defaults hold for what it does not print."""
    first = next((place for place, line in enumerate(lines) if STEP.search(line)), len(lines))
    text = "\n".join(lines[:first])
    settings: dict[str, Any] = {}
    uncertain: list[str] = []
    if device := DEVICE.search(text):
        settings |= {"cluster.hardware": device[1], "precision": "bf16"}
    if model := MODEL.search(text):
        settings["model"] = f"{model[1]}-{model[2]}"
    if micro := STARTED.search(text):
        settings["batch.micro"] = int(micro[1])
    degrees = _degrees(text)
    if degrees:
        settings |= _plan(degrees)
        world = settings["plan.tp"] * settings["plan.pp"] * settings["plan.cp"] * settings["plan.dp"]
        nodes = usual_nodes(world)
        settings |= nodes
        if nodes["cluster.nodes"] > 1:
            uncertain.append(
                f"cluster.gpus_per_node: {nodes['cluster.gpus_per_node']} is assumed of {world} GPUs, which is all that the mesh says"
            )
    if settings:
        settings["execution.framework"] = COMPILED if COMPILES in text else EAGER
    if recompute := RECOMPUTE.search(text):
        settings["plan.recompute"] = "full" if recompute[1] == "full" else "ops"
        if recompute[1] != "full":
            uncertain.append(
                "plan.recompute: selective, of operators or of every n-th layer, which the log does not say"
            )
    return Stated(settings=settings, uncertain=tuple(uncertain))


def _degrees(text: str) -> dict[str, int]:
    """Degree by its name; those of 1 may be left out."""
    if found := MESH.search(text):
        names, sizes = (each.replace("'", "").split(",") for each in found.groups())
        return {name.strip(): int(size) for name, size in zip(names, sizes, strict=False)}
    found = DEGREES.search(text)
    return {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", found[1])} if found else {}


def _plan(degrees: dict[str, int]) -> dict[str, Any]:
    """The plan of a mesh: FSDP over `dp_shard`, copies of it over `dp_replicate`."""
    shard, replicas = degrees.get("dp_shard", 1), degrees.get("dp_replicate", 1)
    plan: dict[str, Any] = {f"plan.{name}": degrees.get(name, 1) for name in ("tp", "pp", "cp")}
    plan |= {"plan.dp": max(1, shard * replicas), "plan.zero": 0 if shard == 1 and plan["plan.cp"] == 1 else 3}
    if plan["plan.pp"] > 1 and plan["plan.zero"]:
        plan["plan.zero"] = 2  # it does not gather again in a pipeline
    if plan["plan.tp"] > 1:
        plan["plan.sp"] = True
    if replicas > 1 and shard > 1:
        plan["plan.shard"] = shard * plan["plan.cp"]
    if degrees.get("ep", 1) > 1:
        plan["plan.ep"] = degrees["ep"]
    return plan
