"""Logs of Megatron-LM, and of Megatron-Bridge and Megatron-DeepSpeed, which write the same line.

Source: `training_log` of megatron/training/training.py, and of megatron/bridge/training/utils/train_utils.py, which writes its
TFLOP/s into a line `Step Time` before. Megatron-DeepSpeed of BigScience states seconds, and samples and TFLOPs behind them; GPT-NeoX has
`samples/sec` before and `approx flops per GPU` behind them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.megatron import FLASH
from predict.convert.tool import ForeignFile, Reading, Source, read_with
from predict.convert.tools import tool_of
from predict.measured_runs.logs import figure, times, whole
from predict.measured_runs.steady_state import LoggedStep, Stated, usual_nodes
from sampling.units import GB, MIB

FRAMEWORK = "Megatron"
STEP = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|")
TFLOPS = r"(?:throughput per GPU \(TFLOP/s/GPU\)|compute per GPU \(TFLOP/s/GPU\)|\bTFLOPs|approx flops per GPU)"
TOKENS = (
    r"(?:[Tt]okens per second per GPU \(Tok/s/GPU\)|tokens per GPU \(tokens/s/GPU\)|tokens per gpu per second \(tgs\))"
)
BRIDGE = re.compile(r"Step Time\s*:.*GPU utilization:\s*([\d.]+)\s*(?:MODEL_)?TFLOP/s/GPU")


def read(lines: Iterable[str]) -> Iterator[LoggedStep]:
    before: float | None = None
    for line in lines:
        if found := BRIDGE.search(line):
            before = float(found[1]) or None
        if found := STEP.search(line):
            yield LoggedStep(
                step=int(found[1]),
                time_us=times(figure(line, r"elapsed time per iteration \(ms\)"), 1e3)
                or times(figure(line, r"elapsed time per iteration \(s\)"), 1e6),
                samples_per_s=figure(line, r"(?:samples per second|samples/sec)"),
                tokens_per_s_per_gpu=figure(line, TOKENS),
                tflops_per_gpu=figure(line, TFLOPS) or before,
                batch=whole(line, "global batch size"),
                skipped=bool(whole(line, "number of skipped iterations") or whole(line, "number of nan iterations")),
            )
            before = None


def peak_bytes(line: str) -> float | None:
    """The line is `[Rank 0] (after 2 iterations) memory (MB) | … | max allocated: …`, in MiB; Megatron-Bridge states GB."""
    if "iterations) memory (" not in line:
        return None
    return times(figure(line, r"\bmax allocated"), MIB) or times(figure(line, "mem-max-allocated-gigabytes"), GB)


# What Megatron prints of all its arguments before it starts (`_print_args` of megatron/training/arguments.py), as `predict import-config` reads
# them from a script.

ARGUMENT = re.compile(r"^(?:\[?\w*\d+\]?:)?\s{1,4}(\w+) \.{3,} (.+?)\s*$")
END = "end of arguments"
NEGATED: Mapping[str, str] = {
    "add_bias_linear": "disable_bias_linear",
    "gradient_accumulation_fusion": "no_gradient_accumulation_fusion",
    "masked_softmax_fusion": "no_masked_softmax_fusion",
}
"""Argument that is printed → the flag that makes it false."""
PROGRAM = "pretrain_gpt.py"
ATTENTION = "execution.attention"


def stated(lines: Sequence[str]) -> Stated:
    printed = _printed(lines)
    if "num_layers" not in printed:
        return _degrees(lines)
    read = _read_as_script(printed, {})
    if "model" not in read.sections and "padded_vocab_size" in printed:
        read = _read_as_script(printed, {"vocab_size": printed["padded_vocab_size"]})
    settings: dict[str, Any] = {}
    for section, values in read.sections.items():
        if section == "model" or not isinstance(values, Mapping):
            settings[section] = values
        elif section != "usual":
            settings |= {f"{section}.{key}": value for key, value in values.items()}
    uncertain = [f"{fault.path}: {fault.problem}" for fault in read.faults]
    if settings.get(ATTENTION) == FLASH:
        del settings[ATTENTION]
        uncertain.append(f"{ATTENTION}: flash, of a version that is not printed; --set {ATTENTION}=fa2 or fa3 names it")
    world = printed.get("world_size")
    degrees = {"plan.tp": 1, "plan.pp": 1, "plan.cp": 1, **settings}
    if isinstance(world, int) and world > 0:
        inside = degrees["plan.tp"] * degrees["plan.pp"] * degrees["plan.cp"]
        settings = {**degrees, "plan.dp": max(1, world // inside), **usual_nodes(world)}
        uncertain.append(_assumed_nodes(world))
    return Stated(settings=settings, uncertain=tuple(uncertain))


WORLD = re.compile(r"\busing world size: (\d+), data-parallel[ -]size: (\d+)")
"""The line of `validate_args` on the ranks, which logs keep that begin behind the arguments."""
DEGREES: Mapping[str, re.Pattern[str]] = {
    "plan.tp": re.compile(r"(?<![-\w])tensor-model-parallel size: (\d+)"),
    "plan.pp": re.compile(r"(?<![-\w])pipeline-model-parallel size: (\d+)"),
    "plan.cp": re.compile(r"(?<![-\w])context-parallel size: (\d+)"),
}


def _degrees(lines: Iterable[str]) -> Stated:
    """The ranks and degrees, where a log has no more of the arguments."""
    for line in lines:
        if ranks := WORLD.search(line):
            found = {key: pattern.search(line) for key, pattern in DEGREES.items()}
            world, dp = int(ranks[1]), int(ranks[2])
            degrees = {key: int(degree[1]) if degree else 1 for key, degree in found.items()}
            settings = {**degrees, "plan.dp": dp, **usual_nodes(world)}
            return Stated(settings=settings, uncertain=(_assumed_nodes(world),))
    return Stated()


def _assumed_nodes(world: int) -> str:
    per_node = usual_nodes(world)["cluster.gpus_per_node"]
    return f"cluster.gpus_per_node: {per_node} is assumed of a world of {world} GPUs, which is all that is printed"


def _printed(lines: Iterable[str]) -> dict[str, Any]:
    """The arguments that are set, by their name."""
    found: dict[str, Any] = {}
    for line in lines:
        if END in line and found:
            break
        if argument := ARGUMENT.match(line):
            found.setdefault(argument[1], _value(argument[2]))
    off = {flag: True for name, flag in NEGATED.items() if found.get(name) is False}
    return {name: value for name, value in (found | off).items() if value is not None and value is not False}


def _value(text: str) -> Any:
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _read_as_script(printed: Mapping[str, Any], more: Mapping[str, Any]) -> ForeignFile:
    """The arguments as those of a script are read; what changes time and is not modelled is left out."""
    values = {**printed, **more}
    source = Source(values=values, program=PROGRAM, form="command")
    tool = tool_of(source)
    assert tool is not None
    return read_with(tool, Reading(given=Arguments(values=values), source=source), ["*"])
