"""The timeline as a picture: what is in it, that it is always the same, and that a large one stays moderate."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from predict.report.schedules import plot as schedule_plot
from predict.report.schedules.palette import fill
from predict.report.schedules.plot import save_plot
from predict.schedules import registry
from predict.schedules.engine.order import Action, Order, loop
from predict.schedules.engine.timeline import Timeline
from predict.schedules.engine.timing import ChunkTimes, simulate
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
    assert written["1F1B &amp; more"] == written["makespan 33"] == written["time"] == 1
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


def test_numbers_are_left_out_of_boxes_too_small(tmp_path: Path) -> None:
    svg = picture(one_f_one_b(2, 600), tmp_path)
    assert boxes(svg) == {"F chunk 0": 1200, "BW chunk 0": 1200}
    assert ">311</text>" not in svg


def test_many_actions_are_drawn_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = boxes(picture(one_f_one_b(), tmp_path))
    monkeypatch.setattr(schedule_plot, "MOST_BOXES", 10)
    by_columns = boxes(picture(one_f_one_b(), tmp_path))
    assert by_columns.keys() == exact.keys()
    assert by_columns["F chunk 0"] == 32 - 3 - 2 - 1, "neighbours of one colour are one box: the warm-ups of 4, 3 and 2"
