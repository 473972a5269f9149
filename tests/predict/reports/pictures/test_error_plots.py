"""The plots of errors: every configuration has a mark in each, medians are drawn, and other answers have none."""

from pathlib import Path
from typing import Any

import pytest

from predict.interval import Interval
from predict.reports.pictures.error_plots import FIGURES, NAMES, WIDEST, errors_figure
from predict.validation.published import Comparison
from predict.validation.published_row import PublishedRow
from tests.predict.command import Command

CELLS = {"gbs": "512", "seq_len": "8192", "n_gpus": "64", "precision": "BF16", "gpu": "H100"}


def compared(error: float, **cells: str) -> Comparison:
    return Comparison(
        row=PublishedRow(cells=CELLS | cells),
        predicted=Interval.from_log(1e6 * (1 + error), 0.1),
        measured=1e6,
        kind="dense",
        sources={},
        at_peak_us=1e5,
        microbatches=1,
    )


RUNS = [
    *(compared(error) for error in (-0.05, 0.01, 0.09)),
    compared(0.3, n_gpus="512", precision="FP8", gpu="B200"),
    compared(2.0, n_gpus="8", gbs=""),
]


def marks(figure: Any, name: str) -> list[tuple[float, float]]:
    return [
        tuple(place)
        for axes in figure.axes
        for drawn in axes.collections
        if (drawn.get_gid() or "").startswith(name)
        for place in drawn.get_offsets().tolist()
    ]


def test_each_configuration_is_drawn_over_all_that_is_known_of_it() -> None:
    pytest.importorskip("matplotlib")
    figure = errors_figure(RUNS)
    assert [axes.get_xlabel() for axes in figure.axes[:5]] == [*FIGURES, *NAMES]
    assert len(marks(figure, "sequences")) == 4  # one states no batch
    assert {x for x, _ in marks(figure, "GPUs")} == {8.0, 64.0, 512.0}
    assert max(y for _, y in marks(figure, "GPUs")) == WIDEST
    assert len(marks(figure, "precision True")) == 3
    assert [label.get_text() for label in figure.axes[4].get_xticklabels()] == ["B200", "H100"]
    (line,) = [each for each in figure.axes[2].lines if each.get_gid() == "median GPUs"]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([64.0], [pytest.approx(0.01)])


def test_a_plot_is_of_published_runs_alone(tmp_path: Path, command: Command) -> None:
    assert "published" in command.refused("validate", "memory", "--plot", str(tmp_path / "errors.svg"))
    assert ".svg" in command.refused("validate", "published", "--plot", str(tmp_path / "errors.pdf"))
