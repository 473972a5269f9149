"""Lines of a text in a narrow terminal."""

import pytest

from sampling.wrapping import wrapped

TEXT = "No samples of profile x: run `make sample RUNS=a.yml` and wait at most 16 minutes, or take ±4 % more; 4 × 8,192 tokens"


@pytest.mark.parametrize("width", [40, 41, 47, 60, 80])
def test_a_command_and_a_figure_with_its_unit_stay_in_one_line(width: int) -> None:
    lines = wrapped(TEXT, width).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(line.strip() for line in lines) == TEXT
    for whole in ("`make sample RUNS=a.yml`", "16 minutes", "±4 %", "4 × 8,192 tokens"):
        assert sum(whole in line for line in lines) == 1
    assert not lines[0].startswith(" ") and all(line.startswith("  ") and line[2] != " " for line in lines[1:])


def test_a_word_that_no_line_has_room_for_is_cut_and_loses_nothing() -> None:
    lines = wrapped("  error: " + "x" * 100, 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert "".join(lines).count("x") == 100


def test_lines_of_a_text_stay_lines() -> None:
    assert wrapped("a\n\n  b", 40) == "a\n\n  b"
