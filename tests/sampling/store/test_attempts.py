"""Calls that ended a session while they were timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampling.errors import UserError
from sampling.operators.gemm import Gemm
from sampling.store.journal import BEGUN, FAILED, attempting, blame, given_up, seconds_begun

CALL = Gemm(dtype="fp32", m=1, n=2, k=3)


def test_a_call_that_is_timed_leaves_no_trace(tmp_path: Path) -> None:
    with attempting(tmp_path, CALL, 2):
        assert (tmp_path / BEGUN).is_file()
    assert list(tmp_path.iterdir()) == []
    assert given_up(tmp_path) == {}


def test_an_error_is_the_calls_fault_with_its_first_line(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), attempting(tmp_path, CALL, 2):
        raise RuntimeError("CUDA error: misaligned address\nand advice")
    assert given_up(tmp_path) == {(CALL, 2): "RuntimeError: CUDA error: misaligned address"}


@pytest.mark.parametrize("error", [UserError("disk full"), KeyboardInterrupt()])
def test_what_is_not_the_calls_fault_is_not_noted(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)), attempting(tmp_path, CALL, 2):
        raise error
    assert given_up(tmp_path) == {}


def killed_while_timing(directory: Path) -> None:
    """What a kill leaves: the call is begun and nothing else is known."""
    attempt = attempting(directory, CALL, 2)
    attempt.__enter__()
    content = (directory / BEGUN).read_bytes()
    attempt.__exit__(None, None, None)
    (directory / BEGUN).write_bytes(content)
    blame(directory, "")


def test_a_kill_is_not_a_calls_fault_and_a_second_one_is(tmp_path: Path) -> None:
    killed_while_timing(tmp_path)
    assert given_up(tmp_path) == {}
    killed_while_timing(tmp_path)
    assert given_up(tmp_path) == {(CALL, 2): "2 sessions ended while it was timed"}


def test_a_line_that_a_kill_cut_short_is_passed_over(tmp_path: Path) -> None:
    with pytest.raises(TypeError), attempting(tmp_path, CALL, 1):
        raise TypeError("no")
    with (tmp_path / FAILED).open("a") as file:
        file.write('{"call": "gemm", "fie')
    assert list(given_up(tmp_path)) == [(CALL, 1)]


def test_how_long_a_call_is_begun(tmp_path: Path) -> None:
    assert seconds_begun(tmp_path) == 0.0
    with attempting(tmp_path, CALL, 1):
        assert seconds_begun(tmp_path) >= 0.0
    blame(tmp_path, "nothing is begun")
    assert given_up(tmp_path) == {}
