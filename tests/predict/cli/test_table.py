"""Every command of the table: its help, the kinds of config that it takes, and what `predict --help` loads."""

import inspect
import json
import subprocess
import sys

import pytest

import predict
from predict.cli import table
from predict.cli.table import ALL_KINDS, COMMANDS, RL, SERVING, TRAINING
from sampling.files.places import CONFIGS
from tests.predict.command import Command

BY_NAME = {command.name: command for command in COMMANDS}
OF_KIND = {
    TRAINING: str(CONFIGS / "runs" / "demo.yml"),
    SERVING: str(CONFIGS / "serving" / "llama3-8b-h100.yml"),
    RL: str(CONFIGS / "rl" / "this-machine" / "grpo.yml"),
}
OPERANDS = {
    "days": ["--tokens", "2T"],
    "job": ["--tokens", "2T"],
    "report": ["-o", "page.html"],
    "plot": ["-o", "plot.svg"],
    "trace": ["-o", "trace.json"],
    "export": ["--to", "nemo"],
    "benchmark": ["--gpus", "1"],
    "serving-step": ["--decodes", "4x800"],
    "calibrate": ["--measured", "1s", "--dry-run"],
    "explain": ["--trace", "traces"],
    "what-if": ["--trace", "traces"],
    "record": ["--log", "1s"],
}
"""What a command needs beside its config, if anything."""


def words(command: table.Command, config: str) -> list[str]:
    before = {"plot": ["waterfall"], "serving-fit": [OF_KIND[TRAINING], "--config"]}.get(command.name, [])
    after = [] if command.name == "serving-fit" else OPERANDS.get(command.name, [])
    return [command.name, *before, config, *after]


@pytest.mark.parametrize("each", COMMANDS, ids=lambda each: each.name)
def test_a_command_has_a_public_function_with_a_docstring(each: table.Command) -> None:
    assert each.function in predict.__all__
    assert inspect.isfunction(getattr(predict, each.function))
    assert getattr(predict, each.function).__doc__


@pytest.mark.parametrize(
    ("name", "kind"),
    [(each.name, kind) for each in COMMANDS if each.kinds for kind in ALL_KINDS if kind not in each.kinds],
)
def test_a_command_refuses_another_kind_of_config_and_names_one_that_takes_it(
    name: str, kind: str, command: Command, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    printed = command.refused(*words(BY_NAME[name], OF_KIND[kind]))
    article = "an RL" if kind == RL else f"a {kind}"
    assert f"{article} config; predict it with `predict " in printed


def test_the_help_of_all_commands_loads_none_of_them() -> None:
    program = (
        "import sys; from predict.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('predict.')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = ["predict.argument_types", "predict.cli", "predict.cli.table", "predict.kinds"]
    assert sorted(eval(done.stdout.splitlines()[-1])) == loaded


def test_a_command_loads_no_other_command() -> None:
    program = (
        "import sys; from predict.cli import main\n"
        "main(['days', sys.argv[1], '--tokens', '2T', '--json'])\n"
        "print([name for name in sys.modules if name in sys.argv[2].split()])"
    )
    modules = " ".join(command.module for command in COMMANDS)
    done = subprocess.run(
        [sys.executable, "-c", program, OF_KIND[TRAINING], modules], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "['predict.cli.days']"


@pytest.mark.parametrize("words", [("foo",), ("one-batch", "--jsno")], ids=" ".join)
def test_a_fault_of_the_command_line_is_json_too(words: tuple[str, ...], command: Command) -> None:
    printed = command.run(*words, "--json", code=2)
    assert json.loads(printed.out)["error"]["faults"] == [printed.err.removeprefix("error: ").rstrip()]
    assert "usage:" not in printed.err


def test_a_run_beside_itself_is_called_equal(command: Command) -> None:
    assert "equal: the same run" in command.text("compare", OF_KIND[TRAINING], OF_KIND[TRAINING])


def test_adapters_without_their_kind_are_one_fault(command: Command) -> None:
    said = command.refused("one-batch", OF_KIND[TRAINING], "--set", "adapters.base=nf4")
    assert "adapters.kind: missing" in said
    assert len(said.splitlines()) == 1
