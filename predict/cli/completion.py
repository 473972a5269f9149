"""Tab completion: a script for bash, zsh or fish that completes commands, their options, keys of --set, and names of models."""

import argparse
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from predict.cli.table import COMMANDS

BASH = """\
_predict() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words={commands}
  else
    case "$before" in
{values}
    esac
    if [ -z "$words" ]; then
      case "${{COMP_WORDS[1]}}" in
{options}
      esac
    fi
  fi
  COMPREPLY=( $(compgen -W "$words" -- "$current") $(compgen -f -- "$current") )
}}
complete -o filenames -F _predict predict
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def completion(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script of a shell, by the parser of all commands. Load it with `eval "$(predict --completion bash)"`, or in fish with
    `predict --completion fish | source`."""
    options, values = dict(_options(parser)), _values()
    if shell == "fish":
        return "".join(f"{line}\n" for line in _fish(options, values))
    script = BASH.format(
        commands=_words(options),
        values=_cases({"|".join(flags): words for flags, words in values.items()}, indent=6),
        options=_cases(options, indent=8),
    )
    return ZSH + script if shell == "zsh" else script


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """Each command with its options."""
    subcommands = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    for command in COMMANDS:
        own: argparse.ArgumentParser = subcommands.choices[command.name]
        yield command.name, [flag for action in own._actions for flag in action.option_strings if flag.startswith("--")]


def _values() -> Mapping[tuple[str, ...], list[str]]:
    """Options → the words that may follow them."""
    from predict.config.draft import SECTIONS
    from predict.model.shipped import shipped_models

    keys = [f"{section}.{key.name}=" for section, own in SECTIONS.items() for key in own]
    return {("--set", "--vary"): [*keys, "model=", "precision="], ("--model",): list(shipped_models())}


def _words(words: Any) -> str:
    return shlex.quote(" ".join(words))


def _cases(words: Mapping[str, list[str]], *, indent: int) -> str:
    return "\n".join(f"{' ' * indent}{name}) words={_words(each)};;" for name, each in words.items())


def _fish(options: Mapping[str, list[str]], values: Mapping[tuple[str, ...], list[str]]) -> Iterator[str]:
    following = {flag: words for flags, words in values.items() for flag in flags}
    for command in COMMANDS:
        yield f"complete -c predict -n __fish_use_subcommand -a {command.name} -d {shlex.quote(command.purpose)}"
        for flag in options[command.name]:
            words = f" -x -a {_words(following[flag])}" if flag in following else ""
            yield f"complete -c predict -n '__fish_seen_subcommand_from {command.name}' -l {flag.removeprefix('--')}{words}"
