"""The timeline as a picture: what is in it, that it is always the same, and that a large one stays moderate."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from predict.reports.palette import fill
from predict.reports.pictures import schedule_plot
from predict.reports.pictures.schedule_plot import save_plot
from predict.schedules import registry
from predict.schedules.engine.order import Action, Order, loop
from predict.schedules.engine.timing import ChunkTimes, Timeline, simulate
from sampling.errors import UserError

TIMES = ChunkTimes(forward=1.0, backward_input=1.0, backward_weight=1.0)


def one_f_one_b(ranks: int = 4, microbatches: int = 8) -> Timeline:
    return simulate(registry.order("1f1b", ranks=ranks, chunks=1, microbatches=microbatches), TIMES)


def split_in_two_chunks() -> Timeline:
    actions = (
        *(Action("F", 0, chunk) for chunk in (0, 1)),
        *(Action(kind, 0, chunk) for chunk in (1, 0) for kind in ("B", "W")),
    )
    return simulate(Order.of((actions,), microbatches=1, placement=loop(1, 2)), TIMES)


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


def test_chunks_have_shades_of_their_own(tmp_path: Path) -> None:
    svg = picture(split_in_two_chunks(), tmp_path)
    assert boxes(svg) == {f"{kind} chunk {chunk}": 1 for kind in "FBW" for chunk in (0, 1)}
    assert all(fill(name[0], int(name[-1]), 2) in content for name, content in groups(svg).items())  # type: ignore[arg-type]


def test_ranks_numbers_title_and_makespan_are_written(tmp_path: Path) -> None:
    svg = picture(one_f_one_b(), tmp_path, title="1F1B & more")
    written = Counter(re.findall(r"<text [^>]*>([^<]*)</text>", svg))
    assert [written[f"rank {rank}"] for rank in range(5)] == [1, 1, 1, 1, 0]
    assert written["6"] == 8, "a forward and a backward on each rank"
    assert written["1F1B &amp; more"] == written["makespan 33, bubble 27.3%"] == written["time"] == 1
    assert written["F  forward"] == written["BW  backward"] == written["idle"] == 1


def test_rank_0_is_on_top(tmp_path: Path) -> None:
    path = re.search(r'<path d="M ([\d.]+) ([\d.]+)', groups(picture(one_f_one_b(), tmp_path))["F chunk 0"])
    other = re.search(r'<g id="rank 3">\s*<path d="M ([\d.]+) ([\d.]+)', picture(one_f_one_b(), tmp_path))
    assert path
    assert other
    assert float(path[2]) < float(other[2])


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


def test_what_is_scheduled_stands_below_the_title_in_lines_that_fit(tmp_path: Path) -> None:
    about = "a-model, tp 2 · pp 4 · dp 8, " * 5
    save_plot(one_f_one_b(), tmp_path / "plot.svg", title="1f1b", about=about)
    written = re.findall(r"<text [^>]*>([^<]*)</text>", (tmp_path / "plot.svg").read_text())
    lines = written[written.index("1f1b") + 1 : written.index("makespan 33, bubble 27.3%")]
    assert len(lines) == 2
    assert " ".join(lines).split() == about.split()


def test_numbers_are_left_out_of_boxes_too_small(tmp_path: Path) -> None:
    order = registry.order("afab", ranks=2, chunks=1, microbatches=110)
    svg = picture(simulate(order, TIMES), tmp_path)
    assert boxes(svg) == {"F chunk 0": 220, "BW chunk 0": 220}
    assert svg.count(">77</text>") == 2, "in the backwards alone, which are twice as long"
    assert ">107</text>" not in svg


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
