"""The figures of a config have a mark for each of its figures, and are refused with a word where they cannot be."""

from pathlib import Path

import pytest

import predict
from sampling.errors import UserError
from tests.predict.command import Command

DEMO = "configs/runs/demo.yml"


def test_a_kind_is_a_figure_in_python_too(tmp_path: Path, command: Command) -> None:
    assert predict.plot("waterfall", DEMO).axes
    with pytest.raises(UserError, match="did you mean 'waterfall'"):
        predict.plot("waterfal", DEMO)
    assert ".svg" in command.refused("plot", "memory", DEMO, "-o", str(tmp_path / "x.pdf"))
