"""Calls files: round trips, other hardware, damaged content."""

import json
from pathlib import Path

import pytest

from sampling.call import Request
from sampling.choosing.calls_file import calls_file_content, read_calls_file
from sampling.errors import ConfigError
from sampling.operators.gemm import Gemm

GEMM = Gemm(dtype="fp32", m=8, n=16, k=32)


def test_a_calls_file_comes_back_as_it_went_out(tmp_path: Path) -> None:
    requests = {1: [Request(call=GEMM, phases=("forward",))], 2: [Request(call=GEMM, phases=("backward",))]}
    path = tmp_path / "calls.json"
    path.write_text(json.dumps(calls_file_content(requests, "abacus")))
    assert read_calls_file(path, "abacus") == requests


def test_calls_of_other_hardware_are_refused_with_both_names(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    path.write_text(json.dumps(calls_file_content({1: [Request(call=GEMM, phases=("forward",))]}, "abacus")))
    with pytest.raises(ConfigError, match=r"calls\.json: hardware: .*'abacus'.*'slide rule'.*--hardware"):
        read_calls_file(path, "slide rule")


ENTRY = {"ranks_per_node": 1, "call": "gemm", "fields": GEMM.fields(), "phases": ["forward"]}


@pytest.mark.parametrize(
    "entry",
    [
        3,
        {},
        ENTRY | {"fields": {"dtype": "fp32", "m": "many", "n": 1, "k": 1}},
        ENTRY | {"call": "gem"},
        ENTRY | {"phases": ["sideways"]},
        ENTRY | {"ranks_per_node": 0},
    ],
)
def test_an_entry_that_is_no_call_is_named_by_its_place(tmp_path: Path, entry: object) -> None:
    path = tmp_path / "calls.json"
    path.write_text(json.dumps({"version": 2, "hardware": "abacus", "calls": [ENTRY, entry]}))
    with pytest.raises(ConfigError, match=r"(?s)calls\.json: calls\[1\][.:].*predict calls"):
        read_calls_file(path, "abacus")


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"version": 0}', b'{"version": 2, "calls": 3}'],
)
def test_a_damaged_calls_file_names_itself_and_the_command_that_writes_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "calls.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"calls\.json.*predict calls"):
        read_calls_file(path, "abacus")


def test_a_missing_calls_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_calls_file(tmp_path / "none.json", "abacus")
