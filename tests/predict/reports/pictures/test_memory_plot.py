"""The picture of memory over a step: its title, its areas, and that it stays small without losing its peak."""

import re
from pathlib import Path

import numpy as np
import pytest

from predict import one_batch
from predict.reports.pictures import memory_plot
from predict.reports.pictures.memory_plot import save_memory_plot
from predict.step.prediction import Prediction
from sampling.files.places import CONFIGS
from sampling.number_text import percent


def picture(name: str, tmp_path: Path) -> tuple[str, Prediction]:
    found = one_batch(CONFIGS / "runs" / f"{name}.yml")
    path = tmp_path / "plot.svg"
    save_memory_plot(found.memory_timeline, found.memory, path, bubble_fraction=found.bubble_fraction)
    return path.read_text(), found


def test_model_plan_and_bubble_stand_above_a_path_per_term_in_a_small_file(tmp_path: Path) -> None:
    svg, found = picture("deepseek-v3-1024xh100", tmp_path)
    assert "deepseek-v3, tp 2 + sp · pp 8 × 4 · dp 64" in svg
    assert f"bubble {percent(found.bubble_fraction)}" in svg
    assert len(svg) < 300_000
    areas = re.findall(r'<g id="rank (\d+) (\w+)">\s*<path [^>]*/>\s*</g>', svg)
    assert len(areas) == 8 * 8


def test_a_curve_keeps_its_peak_and_its_ramps() -> None:
    found = one_batch(CONFIGS / "runs" / "deepseek-v3-1024xh100.yml")
    for course in found.memory_timeline:
        edges, tops = memory_plot._tops(course)
        assert tops[-1].max() * 2**30 == pytest.approx(course.total.max())
        total = np.repeat(course.total, 2) / 2**30
        times = np.stack([course.start_us, course.end_us], axis=1).ravel()
        drawn = tops[-1][np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(edges) - 2)]
        assert (drawn >= total - 1e-6 * total.max()).mean() > 0.95, "an outline lies above the curve"
        first = total[0]
        assert tops[-1][0] <= first + 0.2 * (total.max() - first), "the step starts where it starts"
