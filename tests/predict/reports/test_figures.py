"""The figures of a config have a mark for each of its figures, and are refused with a word where they cannot be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import predict
from predict.cli import main
from predict.ledger.waterfall import waterfall
from sampling.errors import UserError

DEMO = "configs/runs/demo.yml"


def marks(kind: str) -> list[str]:
    """Names of groups that the drawing of a kind has, at least."""
    prediction = predict.one_batch(DEMO)
    return {
        "waterfall": [*(bar.name for bar in waterfall(prediction)), "step"],
        "memory": [f"rank {rank} {term}" for rank in (0, 1) for term in ("parameters", "activations")],
        "heatmap": [f"FITS {length} {micro}" for length in (128, 256, 512) for micro in (1, 2, 4)],
        "pareto": ["plan this plan", "plan micro 1"],
        "timeline": ["F chunk 0", "BW chunk 0"],
    }[kind]


@pytest.mark.parametrize("kind", ["waterfall", "memory", "heatmap", "pareto", "timeline"])
def test_a_figure_has_its_marks_and_a_page_of_its_own(kind: str, tmp_path: Path) -> None:
    drawn, page = tmp_path / "x.svg", tmp_path / "x.html"
    assert main(["plot", kind, DEMO, "-o", str(drawn)]) == 0
    ids = set(re.findall(r'id="([^"]+)"', drawn.read_text(encoding="utf-8")))
    assert set(marks(kind)) <= ids
    assert main(["plot", kind, DEMO, "-o", str(page)]) == 0
    assert '"sections":["headline"' in page.read_text(encoding="utf-8")


def test_a_kind_is_a_figure_in_python_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert predict.plot("waterfall", DEMO).axes
    with pytest.raises(UserError, match="did you mean 'waterfall'"):
        predict.plot("waterfal", DEMO)
    assert main(["plot", "memory", DEMO, "-o", str(tmp_path / "x.pdf")]) == 2
    assert ".svg" in capsys.readouterr().err
