"""The command `predict`: its parser, made from the table of commands, and main()."""

import argparse
import atexit
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from predict.cli.table import COMMANDS, Command
from sampling.arguments import JSON, Parser
from sampling.command_line import WIDTH_VARIABLE, exit_code_of
from sampling.errors import UserError
from sampling.files.places import DATA_VARIABLE

DESCRIPTION = "Predict how long a training step takes, with an error bar and a ledger of where the time goes."
EXAMPLES = """\
examples:
  predict one-batch configs/runs/demo.yml
  predict one-batch configs/runs/demo.yml --set plan.pp=1 --set plan.tp=2 --json
  predict schedule --pp 8 --microbatches 32      compare pipeline schedules
  predict memory configs/runs/llama3-70b-64xh100.yml   does it fit, and what would make it fit
  predict measure configs/runs/demo.yml          run the same step for real
  predict benchmark configs/runs/demo.yml --gpus 1 --output out/bench.json
  predict one-batch configs/runs/demo.yml --benchmark out/bench.json
  predict validate this-machine                  predict, then measure, a dozen runs
  predict one-batch --model llama3-70b --gpus 64xh100   without a config
  predict sweep configs/runs/llama3-70b-64xh100.yml --vary batch.micro=1,2,4   what if
  predict doctor                                 what is installed, and what is stale
"""
LEAST_WIDTH = 40
OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Objects after which garbage is looked for, in place of Python's 700: nearly all that a command makes it keeps to its end, and looking
through it so often takes a quarter of a cold start."""


class _Version(argparse.Action):
    """The option --version, which looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from predict.checkup import PROGRAM, program_version

        print(PROGRAM, program_version())
        parser.exit()


class _Width(argparse.Action):
    """The option --width, which is in use as soon as it is read, so that faults of the command line have it too."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, value: Any, *_: object) -> None:
        if value < LEAST_WIDTH:
            raise UserError(f"--width: {value} columns are too few for a table; give {LEAST_WIDTH} or more")
        os.environ[WIDTH_VARIABLE] = str(value)


class _Completion(argparse.Action):
    """The option --completion, which prints a shell's script."""

    def __call__(self, own: argparse.ArgumentParser, namespace: object, value: Any, *_: object) -> None:
        from predict.cli.completion import completion

        print(completion(value, parser()), end="")
        own.exit()


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of the command line `words`: of its command alone where it starts with one, else of all commands, of which the one that
    is named has its options. Without `words`, of all commands with their options."""
    named = [word for word in words or () if not word.startswith("-")][:1]
    predict = Parser(
        prog="predict",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    predict.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    predict.add_argument(
        "--completion",
        action=_Completion,
        choices=("bash", "zsh", "fish"),
        help='print a script for tab completion and exit; load it with: eval "$(predict --completion bash)"',
    )
    subcommands = predict.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in [each for each in COMMANDS if words and each.name == words[0]] or COMMANDS:
        own = subcommands.add_parser(
            command.name, help=command.help, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        own.commands_with = _commands_with
        if words is None or command.name in named:
            _complete(own, command)
    return predict


def _commands_with(option: str) -> list[str]:
    """The commands that have an option."""
    (subcommands,) = (each for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    return [name for name, command in subcommands.choices.items() if option in command._option_string_actions]


def _complete(parser: argparse.ArgumentParser, command: Command) -> None:
    """Give a command's parser what its module declares; the module is imported for it."""
    module = import_module(command.module)
    parser.description = getattr(module, "DESCRIPTION", f"{command.purpose[0].upper()}{command.purpose[1:]}.")
    parser.epilog = module.EXAMPLES
    module.add_options(parser)
    parser.add_argument(
        "--width",
        action=_Width,
        type=int,
        metavar="N",
        help="columns of the answer and of notes (default: the terminal's, 140 in a pipe)",
    )
    parser.set_defaults(run=module.run)


def use_data(options: argparse.Namespace) -> None:
    """Make --data, where it was given, the user's own data in this process and those that it starts."""
    folder: Path | None = getattr(options, "data", None)
    if folder is None:
        return
    if not folder.is_dir() and (folder.exists() or not getattr(options, "makes_data", False)):
        raise UserError(
            f"--data: {str(folder)!r} is not a folder; give the one that holds your samples/, regressors/ and runs/"
        )
    os.environ[DATA_VARIABLE] = str(folder.absolute())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    # else Python looks through every object once more before it ends: a tenth of a cold start
    atexit.register(gc.freeze)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal or pipe that is not UTF-8 shows ? for what it lacks
    words = sys.argv[1:] if arguments is None else arguments

    def work() -> int:
        options = parser(words).parse_args(words)
        use_data(options)
        options.run(options)
        return 0

    return exit_code_of(work, as_json=JSON in words)
