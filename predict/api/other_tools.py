"""Run configs as other tools' files, and those files as run configs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from predict.api.path import load

if TYPE_CHECKING:
    from predict.config.draft import Document
    from predict.convert.arguments import LaunchArguments
    from predict.convert.import_files import ImportedConfig


def launch_arguments(config: Path | str | Document, tool: str, overrides: Sequence[str] = ()) -> LaunchArguments:
    """The files with which another tool runs a config, megatron-lm, nemo, torchtitan or deepspeed, and what they do not express.

    UserError for another tool, and for `plan.schedule: best`; ConfigError lists every fault of the config.
    """
    from predict.convert.launch import launch_arguments as write

    return write(load(config, overrides), tool)


def import_config(files: Sequence[Path | str], overrides: Sequence[str] = ()) -> ImportedConfig:
    """The run config that other tools' files of one run make: Megatron-LM's arguments (script, list or YAML), torchtitan's TOML,
    DeepSpeed's JSON, Primus' YAML. `overrides` such as `cluster.hardware=h100` add what they do not say.

    `.document` is a config for every function here, `.not_read` the settings that change nothing or are unknown. ConfigError
    lists every fault, and all that is missing.
    """
    from predict.convert.import_files import import_config as read

    return read([Path(file) for file in files], overrides)
