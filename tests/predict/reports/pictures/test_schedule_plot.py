"""The timeline as a picture: what is in it, that it is always the same, and that a large one stays moderate."""

import re
from pathlib import Path

import pytest

from predict.reports.palette import fill
from predict.reports.pictures import schedule_plot
from predict.reports.pictures.schedule_plot import save_plot
from predict.schedules import registry
from predict.schedules.engine.timing import ChunkTimes, Timeline, simulate
from sampling.errors import UserError

TIMES = ChunkTimes(forward=1.0, backward_input=1.0, backward_weight=1.0)


def one_f_one_b(ranks: int = 4, microbatches: int = 8) -> Timeline:
    return simulate(registry.order("1f1b", ranks=ranks, chunks=1, microbatches=microbatches), TIMES)


def picture(timeline: Timeline, tmp_path: Path, title: str = "a title") -> str:
    path = tmp_path / "plot.svg"
    save_plot(timeline, path, title=title)
    return path.read_text()


def groups(svg: str) -> dict[str, str]:
    """Name → content of the groups of boxes."""
    return dict(re.findall(r'<g id="(\w+ chunk \d+)">(.*?)</g>', svg, flags=re.DOTALL))


def boxes(svg: str) -> dict[str, int]:
    return {name: len(re.findall(r"\bz\b", content)) for name, content in groups(svg).items()}


def test_a_box_for_every_action_in_its_colour(tmp_path: Path) -> None:
    svg = picture(one_f_one_b(), tmp_path)
    assert boxes(svg) == {"F chunk 0": 32, "BW chunk 0": 32}
    assert fill("F", 0, 1) in groups(svg)["F chunk 0"]
    assert fill("BW", 0, 1) in groups(svg)["BW chunk 0"]


def test_an_svg_is_always_the_same(tmp_path: Path) -> None:
    first = picture(one_f_one_b(), tmp_path)
    assert picture(one_f_one_b(), tmp_path) == first
    assert "<dc:date>" not in first


def test_png(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "plot.PNG"
    save_plot(one_f_one_b(2, 2), path, title="")
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert [file.name for file in path.parent.iterdir()] == ["plot.PNG"]


@pytest.mark.parametrize("name", ["plot.jpg", "plot"])
def test_another_suffix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=rf"{name}.*\.svg or \.png"):
        save_plot(one_f_one_b(2, 2), tmp_path / name, title="")
    assert not list(tmp_path.iterdir())


def test_a_long_step_shows_one_period_of_its_steady_state_and_counts_the_others(tmp_path: Path) -> None:
    svg = picture(one_f_one_b(8, 1024), tmp_path)
    assert sum(boxes(svg).values()) < 200, "of 16,384 actions"
    assert "one period of 3, then 1,015 more like it" in svg
    assert ">1023</text>" in svg, "the cool-down is there"
    assert "one period" not in picture(one_f_one_b(8, 12), tmp_path), "a step that fits is drawn whole"


def test_thin_boxes_are_drawn_in_a_lane_per_kind(tmp_path: Path) -> None:
    order = registry.order("interleaved-1f1b", ranks=64, chunks=5, microbatches=640)
    svg = picture(simulate(order, TIMES), tmp_path)
    assert "one period of 960" in svg
    assert "a lane per kind" in svg
    assert sum(boxes(svg).values()) < 64 * 60
    first = [re.search(r"M [\d.]+ ([\d.]+)", groups(svg)[name]) for name in ("F chunk 0", "BW chunk 0")]
    assert first[0] and first[1] and float(first[0][1]) < float(first[1][1]), "forwards above backwards in a row"


def test_of_many_ranks_evenly_spread_ones_have_a_row(tmp_path: Path) -> None:
    svg = picture(one_f_one_b(300, 4), tmp_path)
    rows = [int(rank) for rank in re.findall(r">rank (\d+)</text>", svg)]
    assert len(rows) == schedule_plot.MOST_ROWS
    assert (rows[0], rows[-1]) == (0, 299)
    assert "64 of 300 ranks" in svg
