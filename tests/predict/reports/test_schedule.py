"""The timeline in a terminal: rows, marks, numbers, widths, with and without colour."""

import io
import itertools

import numpy as np
import pytest
from rich.console import Console

from predict.reports.palette import fill, ink, paint_codes
from predict.reports.schedule import IDLE_CODE, busiest, timeline_text
from predict.schedules import registry
from predict.schedules.engine.order import KINDS, Action, Order, loop
from predict.schedules.engine.timing import ChunkTimes, Timeline, simulate

WHOLE = ChunkTimes(forward=1.0, backward_input=1.0, backward_weight=1.0)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The width and colours of a common terminal, whatever the tests run in."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def one_f_one_b(ranks: int = 4, microbatches: int = 8, chunks: int = 1) -> Timeline:
    return simulate(registry.order("1f1b", ranks=ranks, chunks=chunks, microbatches=microbatches), WHOLE)


def split() -> Timeline:
    """One rank whose two microbatches have B and W apart, and a third with a BW."""
    actions = (
        *(Action(kind, microbatch, 0) for microbatch in (0, 1) for kind in ("F", "B", "W")),
        Action("F", 2, 0),
        Action("BW", 2, 0),
    )
    return simulate(Order.of((actions,), microbatches=3, placement=loop(1, 1)), WHOLE)


def two_chunks() -> Timeline:
    actions = (Action("F", 0, 0), Action("F", 0, 1), Action("BW", 0, 1), Action("BW", 0, 0))
    return simulate(Order.of((actions,), microbatches=1, placement=loop(1, 2)), WHOLE)


def drawn(timeline: Timeline, width: int, *, coloured: bool = False) -> list[str]:
    file = io.StringIO()
    system = "truecolor" if coloured else None
    console = Console(file=file, width=width, highlight=False, force_terminal=coloured, color_system=system)
    console.print(timeline_text(timeline, width=width))
    return file.getvalue().splitlines()


def test_a_row_a_rank_as_in_the_figure_of_1f1b() -> None:
    rows = drawn(one_f_one_b(ranks=2, microbatches=3), 7 + 4 * 12)[:2]
    assert rows == [
        "rank 0 F0──F1──········B0──────F2──B1──────····B2──────",
        "rank 1 ····F0──B0──────F1──B1──────F2──B2──────········",
    ]


@pytest.mark.parametrize("width", [12, 20, 30, 40, 41, 60, 97, 140, 300])
@pytest.mark.parametrize("coloured", [False, True])
def test_fits_the_width(width: int, coloured: bool) -> None:
    for timeline in (one_f_one_b(), one_f_one_b(12, 40), split(), two_chunks()):
        file = io.StringIO()
        system = "truecolor" if coloured else None
        console = Console(file=file, width=400, force_terminal=coloured, color_system=system)
        lines = console.render_lines(timeline_text(timeline, width=width), pad=False)
        lengths = [sum(segment.cell_length for segment in line) for line in lines]
        assert max(lengths) == width, "the rows use all of it, and nothing more"


def test_kinds_differ_without_colour() -> None:
    row = drawn(split(), 90)[0]
    assert [row.count(mark) for mark in "FBWX"] == [3, 2, 2, 1]
    assert row.index("F2") < row.index("X2")


def test_odd_chunks_are_lower_case_without_colour() -> None:
    lines = drawn(two_chunks(), 60)
    marks = [character for character in lines[0].removeprefix("rank 0") if character.isalpha()]
    assert marks == ["F", "f", "b", "B"]
    assert any("lower case: odd chunks" in line for line in lines)


def test_no_color_in_a_terminal_draws_as_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    in_terminal = drawn(split(), 90, coloured=True)
    assert "F0" in in_terminal[0]
    assert not any("48;2;" in line for line in in_terminal), "no backgrounds"


def test_colours_are_those_of_the_palette() -> None:
    console = Console(width=90, force_terminal=True, color_system="truecolor", file=io.StringIO())
    for timeline, chunks in ((split(), 1), (two_chunks(), 2)):
        row = console.render_lines(timeline_text(timeline, width=90))[0]
        backgrounds = {segment.style.bgcolor.name for segment in row if segment.style and segment.style.bgcolor}
        wanted = {fill(action.kind, action.chunk, chunks) for actions in timeline.order.actions for action in actions}
        assert backgrounds == wanted


def test_a_column_shows_its_busiest_kind_or_idle() -> None:
    lasting = np.array([0.2, 0.6, 0.2, 0.1, 0.4, 0.1])
    start, codes = np.array([0.0, 0.2, 0.8, 1.0, 2.5, 2.9]), np.array([0, 3, 0, 0, 3, 0])
    shown = busiest(start, start + lasting, codes, np.arange(4.0), chunks=1)
    assert shown.tolist() == [3, IDLE_CODE, 3]


def test_a_column_shows_the_busiest_chunk_of_the_busiest_kind() -> None:
    start, end = np.array([0.0, 0.4, 0.75]), np.array([0.4, 0.75, 1.0])
    backwards_of_two_chunks_and_a_longer_forward = np.array([0, 6, 7])
    shown = busiest(start, end, backwards_of_two_chunks_and_a_longer_forward, np.array([0.0, 1.0]), chunks=2)
    assert shown.tolist() == [6]


def test_busiest_agrees_with_adding_up() -> None:
    timeline = one_f_one_b(3, 30)
    edges = np.linspace(0, timeline.makespan, 38)
    for rank in range(3):
        start, end = timeline.start[rank], timeline.end[rank]
        codes = paint_codes(timeline.order, rank)
        shown = busiest(start, end, codes, edges, chunks=1)
        for column, (low, high) in enumerate(itertools.pairwise(edges)):
            inside = np.clip(np.minimum(end, high) - np.maximum(start, low), 0, None)
            busy = [inside[codes == code].sum() for code in range(len(KINDS))]
            if sum(busy) < (high - low) * 0.4999:
                assert shown[column] == IDLE_CODE
            elif sum(busy) > (high - low) * 0.5001:
                assert busy[shown[column]] == pytest.approx(max(busy))


@pytest.mark.parametrize("forward", [0.02, 0.2])
def test_a_pass_that_is_shorter_than_half_a_column_keeps_one(forward: float) -> None:
    times = ChunkTimes(forward=forward, backward_input=4.0, backward_weight=4.0)
    timeline = simulate(registry.order("1f1b", ranks=2, chunks=1, microbatches=2), times)
    rows = [row.removeprefix(f"rank {rank} ") for rank, row in enumerate(drawn(timeline, width=40)[:2])]
    assert [row.lstrip("·")[0] for row in rows] == ["F", "F"]
    assert [row.count("B") for row in rows] == [2, 2]


def test_ink_is_readable_on_every_colour() -> None:
    for kind, chunks in itertools.product(KINDS, (1, 2, 3, 8)):
        colours = [fill(kind, chunk, chunks) for chunk in range(chunks)]
        assert len(set(colours)) == chunks
        assert {ink(colour) for colour in colours} <= {"#000000", "#ffffff"}
    assert ink("#101010") == "#ffffff"
    assert ink("#f0f0f0") == "#000000"
