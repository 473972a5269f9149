"""Scripts of tab completion: every command with its options, in the words of each shell."""

import re
import subprocess

import pytest

from predict.cli import parser
from predict.cli.completion import completion
from predict.cli.table import COMMANDS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_has_every_command_and_its_options(shell: str) -> None:
    script = completion(shell, parser())
    assert _first_words(shell, script) == [command.name for command in COMMANDS]
    assert "plan.tp=" in script
    assert "llama3-8b" in script
    assert ("-l trace" if shell == "fish" else "--trace") in script


def _first_words(shell: str, script: str) -> list[str]:
    """The words that complete the first one."""
    if shell == "fish":
        return re.findall(r"__fish_use_subcommand -a (\S+)", script)
    (words,) = re.findall(r"COMP_CWORD\" -eq 1 \]; then\n +words='([^']*)'", script)
    return str(words).split()


def test_bash_completes_a_command_and_an_option() -> None:
    script = completion("bash", parser())
    asked = '\nCOMP_WORDS=(predict diag); COMP_CWORD=1; _predict; echo "${COMPREPLY[@]}"'
    asked += '\nCOMP_WORDS=(predict diagnose --tra); COMP_CWORD=2; _predict; echo "${COMPREPLY[@]}"'
    told = subprocess.run(["bash", "-c", script + asked], capture_output=True, text=True, check=True, cwd="/").stdout
    assert told.split() == ["diagnose", "--trace"]
