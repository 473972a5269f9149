"""The launch that TRL's commands make: `trl sft` hands accelerate the options that are not its trainer's, of its command and of its file
(trl, cli/commands/training.py and accelerate_config.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from predict.convert.sources import ACCELERATE
from predict.convert.tool import Source

NAMED = "accelerate_config"
"""Option that names a file of accelerate, or one of BUILT_IN."""
OPTIONS = (
    NAMED,
    "num_processes",
    "num_machines",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "mixed_precision",
)
IN_BF16: Mapping[str, Any] = {"mixed_precision": "bf16", "num_processes": 8}
BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    **{f"zero{stage}": {"distributed_type": "DEEPSPEED", "zero_stage": stage, **IN_BF16} for stage in (1, 2, 3)},
    **{
        f"fsdp{version}": {"distributed_type": "FSDP", "fsdp_reshard_after_forward": reshards, **IN_BF16}
        for version, reshards in ((1, "FULL_SHARD"), (2, True))
    },
    # its number of processes differs by version
    "multi_gpu": {"distributed_type": "MULTI_GPU", "mixed_precision": "bf16"},
    "single_gpu": {"distributed_type": "NO", "mixed_precision": "bf16", "num_processes": 1},
}
"""Name of a configuration that TRL brings along → what decides time or memory in it (trl, accelerate_configs)."""


def with_launch(source: Source) -> list[Source]:
    """A command of TRL as its trainer and, where options say something of it, the launch by accelerate; any other source as it is."""
    options = {name: value for name, value in source.values.items() if name in OPTIONS}
    if not source.program.startswith("trl ") or not options:
        return [source]
    named = options.pop(NAMED, None)
    of_file = BUILT_IN.get(str(named), {} if named is None else {"config_file": named})
    launch = replace(source, values={**of_file, **options}, program=ACCELERATE)
    return [
        launch,
        replace(source, values={name: source.values[name] for name in source.values if name not in OPTIONS}),
    ]
