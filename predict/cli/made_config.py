"""A config that takes the place of CONFIG, made for a model and some GPUs: its options, and the config itself."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from predict.cli.options import add_settings, given, refuse, require_positive, require_writable, write_file
from predict.plan_search.default_plan import RULE
from sampling.command_line import log
from sampling.errors import Checks, UserError

if TYPE_CHECKING:
    from predict.config.document import Document


def add_config_or_model(command: argparse.ArgumentParser) -> None:
    """CONFIG, or a model and GPUs for which a config is made."""
    command.add_argument(
        "config", metavar="CONFIG", nargs="?", help="run config (YAML); `predict schema` describes it; or give --model"
    )
    add_settings(command)
    made = command.add_argument_group(
        "without a CONFIG, a model on some GPUs", textwrap.fill(f"The plan is chosen by a rule: {RULE}.", 100)
    )
    made.add_argument(
        "--model", metavar="NAME", help="a shipped model, such as llama3-70b, or the path of a config.json"
    )
    made.add_argument("--gpus", metavar="NxHARDWARE", help="the number and the name of the device, such as 64xh100")
    made.add_argument("--batch", type=int, metavar="N", help="sequences per step (default: about 4 million tokens)")
    made.add_argument("--save-config", type=Path, metavar="FILE", help="write the config with the chosen plan there")


def make_config(options: argparse.Namespace) -> Document | None:
    """The config made for --model, which takes the place of CONFIG in `options`; None where CONFIG is given."""
    of_model = given(options, "model", "gpus", "batch", "save_config")
    if options.config is not None:
        refuse(of_model, f"cannot be combined with CONFIG; omit it, or change {options.config} with --set")
        return None
    with Checks() as checks:
        with checks.one():
            if not (options.model and options.gpus):
                lacking = "CONFIG, or --model with --gpus" if not of_model else "--gpus" if options.model else "--model"
                raise UserError(f"{lacking}: missing; give for example --model llama3-70b --gpus 64xh100")
        checks.run(require_positive, options, "batch")
        checks.run(require_writable, "--save-config", options.save_config)
    from predict import default_config

    made = default_config(options.model, options.gpus, batch=options.batch, overrides=options.overrides)
    log(
        "plan: the smallest tp · pp that fits in memory (--help has the whole rule, --save-config FILE writes the config); "
        "`predict search` with the same --model and --gpus finds the fastest"
    )
    log_part_of_node(made)
    if options.save_config:
        write_file("--save-config", options.save_config, made.with_settings(options.overrides).as_yaml())
        log(f"wrote {options.save_config}")
    options.config = made
    return made


def log_part_of_node(made: Document) -> None:
    """Log that a made config takes a part of the usual node, whose links are those of the whole."""
    cluster = made.content["cluster"]
    if whole := cluster.get("node_size"):
        part = cluster["gpus_per_node"]
        log(
            f"cluster: {part} of the {whole} GPUs of a node; --set cluster.node_size={part} where the machine has no more"
        )
