"""The figures of a config have a mark for each of its figures, and are refused with a word where they cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

import predict
from predict.cli import main
from sampling.errors import UserError

DEMO = "configs/runs/demo.yml"


def test_a_kind_is_a_figure_in_python_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert predict.plot("waterfall", DEMO).axes
    with pytest.raises(UserError, match="did you mean 'waterfall'"):
        predict.plot("waterfal", DEMO)
    assert main(["plot", "memory", DEMO, "-o", str(tmp_path / "x.pdf")]) == 2
    assert ".svg" in capsys.readouterr().err
