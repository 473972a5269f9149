"""`predict export`: a run's launch arguments for another tool."""

import argparse
from pathlib import Path

from predict.cli.options import add_config, add_json, loaded, print_json, require_folder, write_file
from predict.convert.launch import arguments_of
from predict.serialise import version_of
from sampling.command_line import log

EXAMPLES = """\
examples:
  predict export configs/runs/llama3-70b-64xh100.yml --to megatron-lm
  predict export configs/runs/llama3-70b-64xh100.yml --to deepspeed --output out/launch
  predict export configs/runs/llama3-70b-64xh100.yml --to torchtitan --set plan.zero=3 --json
"""
DESCRIPTION = """\
Write a run's launch arguments for another tool.

megatron-lm: a script with its flags; nemo: a script with the overrides of a Megatron-Bridge recipe; torchtitan: its TOML file;
deepspeed: ds_config.json and a script with the flags of Megatron-DeepSpeed. Settings that the tool cannot express are listed on
stderr, and as comments in the file. Data, tokenizer and the optimizer's schedule are yours to add.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    add_config(command)
    command.add_argument("--to", required=True, metavar="TOOL", help="megatron-lm, nemo, torchtitan or deepspeed")
    command.add_argument("--output", type=Path, metavar="DIR", help="write the files there instead of stdout")
    add_json(command)


def run(options: argparse.Namespace) -> None:
    require_folder("--output", options.output)
    run = loaded(options)
    written = arguments_of(run, options.to)
    for note in run.notes:
        log(note)
    if options.output is not None:
        for name, text in written.files.items():
            write_file("--output", options.output / name, text)
            log(f"wrote {options.output / name}")
    if options.json:
        files, lost = dict(written.files), list(written.not_expressed)
        print_json({"version": version_of("export"), "tool": written.tool, "files": files, "not_expressed": lost})
        return
    for line in written.not_expressed:
        log(f"not expressed: {line}")
    if options.output is None:
        several = len(written.files) > 1
        print("\n".join(f"==> {name} <==\n{text}" if several else text for name, text in written.files.items()), end="")
