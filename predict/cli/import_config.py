"""`predict import-config`: other tools' files of a run, or its log or trace, as a run config."""

import argparse
from pathlib import Path

from predict import import_config, infer_config
from predict.cli.options import add_json, add_settings, print_json, require_writable, write_file
from predict.config.document import Document
from predict.convert.import_files import require_none_accepted
from predict.kinds import kind
from predict.measured_runs.infer import is_measured
from predict.reports.inferred import inferred_json, inferred_lines
from predict.serialise import version_of
from sampling.command_line import log
from sampling.errors import UserError
from sampling.files.faults import counted

EXAMPLES = """\
examples:
  predict import-config docs/examples/other_tools/pretrain.sh --set cluster.hardware=h100
  predict import-config docs/examples/other_tools/llama3_70b.toml --set cluster.hardware=h100 --set cluster.nodes=8
  predict import-config docs/examples/other_tools/primus.yaml --set cluster.hardware=mi300x --set cluster.nodes=1 --output out/run.yml
  predict import-config train.log --set cluster.hardware=h100     what a log states of its run
  predict import-config out/traces                                 what traces of several ranks show
"""
DESCRIPTION = """\
Read another tool's files of a run as a run config.

Launch scripts (bash, Slurm, torchrun, accelerate, ray), YAML, TOML, JSON and Python of Megatron-LM, Megatron-Bridge, Megatron-DeepSpeed,
Primus, torchtitan, DeepSpeed, accelerate, transformers and TRL, Axolotl, LLaMA-Factory, torchtune, verl, slime, prime-rl, vLLM and SGLang;
several files of one run make one config. --set gives what they do not say, such as the GPUs. A key that changes time or memory and is
not understood is an error, unless --accept names it; those that change nothing here are counted on stderr.

Of a log alone, or of a trace or a folder of ranks' traces (torch.profiler, Nsight Systems' sqlite, rocprofv3), the config is as far as it
states or shows it: what it measured, what is uncertain and what is missing stands on stderr.
"""

MOST_NAMED = 6
"""Settings that change nothing and are named."""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="script, arguments, YAML, TOML or JSON; or one log or trace"
    )
    add_settings(command)
    command.add_argument(
        "--accept",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY",
        help="keys of the files that may be left out though they change time or memory; * stands for any letters",
    )
    command.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the config there instead of stdout")
    add_json(command)


def run(options: argparse.Namespace) -> None:
    require_writable("--output", options.output)
    measured = [file for file in options.files if is_measured(file)]
    if measured:
        _print_inferred(options, measured[0])
        return
    read = import_config(options.files, options.overrides, accept=options.accept)
    if options.output is not None:
        write_file("--output", options.output, read.document.as_yaml())
        log(f"wrote {options.output}")
    if options.json:
        print_json(
            {
                "version": version_of("import-config"),
                "config": dict(read.document.content),
                "notes": list(read.notes),
                "not_read": dict(read.not_read),
                "accepted": dict(read.accepted),
            }
        )
        return
    for note in read.notes:
        log(f"note: {note}")
    if read.not_read:
        named = ", ".join(list(read.not_read)[:MOST_NAMED])
        more = f" and {len(read.not_read) - MOST_NAMED} more" if len(read.not_read) > MOST_NAMED else ""
        log(f"{counted(len(read.not_read), 'setting')} without effect here: {named}{more}")
    if options.output is None:
        print(read.document.as_yaml(), end="")


def _print_inferred(options: argparse.Namespace, file: Path) -> None:
    """The config that a log or a trace shows, completed by --set."""
    if len(options.files) > 1:
        raise UserError(f"{file}: is a log or a trace, which is read alone; give the other files without it")
    require_none_accepted(options.accept)
    read = infer_config(file)
    found = read.with_settings(options.overrides)
    made = Document(name=file.stem.partition(".")[0], content=read.document, sources={"": str(file)})
    document = made.with_settings(options.overrides)
    if not found.missing:
        kind(found.kind).load(document, ())  # ConfigError for a plan that cannot run
    if options.output is not None:
        write_file("--output", options.output, document.as_yaml())
        log(f"wrote {options.output}")
    if options.json:
        print_json({"version": version_of("import-config"), "config": found.document, **inferred_json(found)})
        return
    for line in inferred_lines(found):
        log(line)
    if options.output is None:
        print(document.as_yaml(), end="")
