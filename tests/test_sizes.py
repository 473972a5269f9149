"""Code lines are those that hold code."""

from tests.sizes import code_lines, docstring_lines, import_lines

SOURCE = '''"""A module."""

from math import (
    exp,
    log,
)

RATE = 2.0
"""A rate."""


def twice(x: float) -> float:
    """Double a number."""
    # why not
    return """a text
of code""" and x * RATE  # doubled
'''


def test_blanks_comments_and_docstrings_are_no_code() -> None:
    assert code_lines(SOURCE) == {3, 4, 5, 6, 8, 12, 15, 16}


def test_imports_and_docstrings_are_found() -> None:
    assert import_lines(SOURCE) == {3, 4, 5, 6}
    assert docstring_lines(SOURCE) == {1, 9, 13}
