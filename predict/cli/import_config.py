"""`predict import-config`: other tools' files of a run, as a run config."""

from __future__ import annotations

import argparse
from pathlib import Path

from predict import import_config
from predict.cli.options import add_json, add_settings, log, log_not_read, print_json, require_writable, write_file
from predict.serialise import version_of

EXAMPLES = """\
examples:
  predict import-config docs/examples/other_tools/pretrain.sh --set cluster.hardware=h100
  predict import-config docs/examples/other_tools/llama3_70b.toml --set cluster.hardware=h100 --set cluster.nodes=8
  predict import-config docs/examples/other_tools/primus.yaml --set cluster.hardware=mi300x --set cluster.nodes=1 --output out/run.yml
"""
DESCRIPTION = """\
Read another tool's files of a run as a run config.

Megatron-LM's arguments (a launch script, a list of arguments or YAML), torchtitan's TOML, DeepSpeed's JSON with the script of
Megatron-DeepSpeed, and Primus' YAML; several files of one run make one config. --set gives what they do not say, such as the
GPUs. Settings that change nothing here, and unknown ones, are listed on stderr.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", nargs="+", type=Path, metavar="FILE", help="script, arguments, YAML, TOML or JSON")
    add_settings(command)
    command.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the config there instead of stdout")
    add_json(command)


def run(options: argparse.Namespace) -> None:
    require_writable("--output", options.output)
    read = import_config(options.files, options.overrides)
    if options.output is not None:
        write_file("--output", options.output, read.document.as_yaml())
        log(f"wrote {options.output}")
    if options.json:
        config, not_read = dict(read.document.content), dict(read.not_read)
        print_json(
            {"version": version_of("import-config"), "config": config, "notes": list(read.notes), "not_read": not_read}
        )
        return
    for note in read.notes:
        log(f"note: {note}")
    log_not_read(read.not_read)
    if options.output is None:
        print(read.document.as_yaml(), end="")
