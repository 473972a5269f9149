"""`predict speed-of-light`: text, JSON and files of a module and of a step."""

import io
from pathlib import Path

import pytest
import yaml

from predict.cli import main
from tests.predict.command import Command

LAYER = "docs/examples/speed_of_light/transformer_layer.py"


def test_a_module_gives_text_files_and_json(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "results"
    answer = command.json("speed-of-light", LAYER, "--output", str(folder))
    assert answer["version"] == 1
    files = {path.name: yaml.safe_load(path.read_text()) for path in folder.iterdir()}
    assert files == {"analysis.yaml": answer["analysis"], "perf_h100-sxm.yaml": answer["perf"]}
    total = answer["analysis"]["total"]
    assert total["flops"] == 2 * total["macs"]
    assert total["unfused_elements"] == total["model_io_elements"] + total["intermediate_elements"]


class Terminal(io.StringIO):
    """A stdin at which somebody sits."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stdin", "options", "runs", "said"),
    [
        (io.StringIO(""), [], True, "running {} as Python, with your rights"),
        (Terminal("y\n"), [], True, "is run as Python, with your rights. Run it? [y/N]"),
        (Terminal("\n"), [], False, "not run; answer y where you trust it, or give --yes"),
        (Terminal(""), [], False, "not run"),
        (Terminal(""), ["--yes"], True, "running {} as Python"),
    ],
)
def test_a_file_is_run_after_it_was_said_and_agreed(
    stdin: io.StringIO,
    options: list[str],
    runs: bool,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "module.py"
    file.write_text("print('it runs')\n")
    monkeypatch.setattr("sys.stdin", stdin)
    assert main(["speed-of-light", str(file), *options]) == 2  # the file has no Model
    captured = capsys.readouterr()
    assert captured.out == ""
    before, ran, _ = captured.err.partition("it runs")
    assert bool(ran) == runs
    assert said.format(file) in before
