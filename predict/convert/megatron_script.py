"""Megatron-LM's arguments as text: the launch script that is written, and the YAML that is read."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from predict.run.training_run import TrainingRun

FSDP = 2
"""ZeRO stage from which Megatron-FSDP shards."""
MANY_QUEUES = ("blackwell", "cpu")
"""Starts of the architectures on which Megatron-LM asks for nothing."""
WITH_UNDERSCORE = frozenset({"deepspeed_config"})
"""Arguments whose flag is not written with dashes."""


def script(run: TrainingRun, arguments: Mapping[str, Any], notes: Sequence[str], *, program: str) -> str:
    """A shell script that launches `program` on the run's nodes with the arguments; `notes` come first, as comments."""
    nodes, per_node = run.cluster.nodes, run.cluster.gpus_per_node
    comments = [f"# {line}" for note in notes for line in note.splitlines()]
    flags = [f"    {' '.join(flag_words(name, value))}" for name, value in arguments.items()]
    lines = [
        "#!/usr/bin/env bash",
        f"# {run.name} on {nodes} x {per_node} {run.cluster.gpu.name}; add your data, tokenizer and optimizer's schedule",
        *comments,
        *(["export CUDA_DEVICE_MAX_CONNECTIONS=1"] if _needs_one_queue(run) else []),
        "ARGS=(",
        *flags,
        ")",
        f"torchrun --nnodes {nodes} --nproc-per-node {per_node} {program} " + '"${ARGS[@]}" "$@"',
    ]
    return "\n".join(lines) + "\n"


def _needs_one_queue(run: TrainingRun) -> bool:
    """Whether Megatron-LM refuses to start without one queue to the device (arguments.py, `validate_args`), which orders messages before
    the products that hide them; FSDP needs several."""
    splits = run.plan.tp > 1 or run.plan.cp > 1
    return splits and run.plan.zero < FSDP and not run.cluster.gpu.architecture.startswith(MANY_QUEUES)


def flag_words(name: str, value: Any) -> list[str]:
    """The words of an argument on a command line: its flag, and its values where it is no switch."""
    flag = f"--{name if name in WITH_UNDERSCORE else name.replace('_', '-')}"
    if value is True:
        return [flag]
    values = value if isinstance(value, list) else [value]
    return [flag, *(shlex.quote(str(each)) for each in values)]


def read_mapping(document: Mapping[Any, Any]) -> dict[str, Any]:
    """Argument → value of a YAML file, flat or in sections, whose names may have dashes, as `--tensor-model-parallel-size`."""
    arguments: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            arguments |= read_mapping(value)
        else:
            arguments[str(key).lstrip("-").replace("-", "_")] = value
    return arguments
