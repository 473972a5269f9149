"""Files checked against the dataclass that declares their keys."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest

from sampling.errors import ConfigError, SamplesError
from sampling.files import disk as regular
from sampling.files.faults import Fault
from sampling.files.schema import Count, Key, Share, Text, build, field_docs, one_of, read


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    low: float
    high: float
    share: Share = 1.0

    def contradictions(self) -> Iterator[Fault]:
        if self.low > self.high:
            yield Fault(path="low", problem=f"{self.low} is above high = {self.high}; swap them")


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    HEADER: ClassVar[Mapping[str, Any]] = {"format": "example", "version": 2}

    name: Text
    """What reports call it,
    in one line."""
    global_: int
    part: Part
    """Its part."""
    kind: Annotated[str, one_of("red", "green", pattern=r"#\d+")] = "red"
    held: Count = 0
    parts: tuple[Part, ...] = ()
    by_dtype: Mapping[Literal["bf16", "fp8"], Annotated[float, Key(meaning="TFLOP/s")]] = field(default_factory=dict)
    limit: int | None = None
    anything: Any = None


SOUND: dict[str, Any] = {
    "format": "example",
    "version": 2,
    "name": "one",
    "global": 3,
    "part": {"low": 1, "high": 2.5},
}


def written(folder: Path, content: Any) -> Path:
    path = folder / "example.json"
    path.write_text(json.dumps(content))
    return path


def test_a_sound_file_becomes_an_instance(tmp_path: Path) -> None:
    content = {**SOUND, "parts": [{"low": 1, "high": 1}], "by_dtype": {"bf16": 1e3}, "limit": None, "kind": "#12"}
    made = read(Example, written(tmp_path, content))
    part = Part(low=1, high=2.5)
    assert made == Example(
        name="one", global_=3, part=part, kind="#12", parts=(Part(low=1, high=1),), by_dtype={"bf16": 1e3}
    )


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name: '' is too short; give text"),
    ({"global": True}, "global: true is not a whole number; give a whole number from 1 to 2,147,483,647"),
    ({"globl": 3}, "globl: unknown key; did you mean 'global'?"),
    ({"part": 3}, "part: 3 is not a mapping; give a mapping of low, high, share"),
    ({"part": {"low": 1}}, "part.high: missing; add high: a number above 0, it has no default"),
    ({"part": {"low": 3, "high": 2}}, "part.low: 3 is above high = 2; swap them"),
    ({"part": {"low": 1, "high": 2, "share": 1.5}}, "part.share: 1.5 is out of range; give a number from 0 to 1"),
    ({"kind": "gren"}, "kind: 'gren' is not known; give one of red, green; did you mean 'green'?"),
    (
        {"parts": [{"low": 1, "high": 2}, {"low": 0, "high": 2}]},
        "parts[1].low: 0 is out of range; give a number above 0",
    ),
    ({"by_dtype": {"bf61": 1}}, "by_dtype.bf61: unknown key; did you mean 'bf16'?"),
    ({"by_dtype": {"bf16": "fast"}}, "by_dtype.bf16: 'fast' is not a number; give a number above 0: TFLOP/s"),
    ({"held": 1.5}, "held: 1.5 is not a whole number; give a whole number of 0 or more"),
    (
        {"part": {"low": 1, "high": 10**400}},
        "part.high: an integer of 1329 bits is out of range; give a number above 0",
    ),
    ({"part": {"low": 1, "high": float("inf")}}, "part.high: inf is out of range; give a number above 0"),
    ({"version": 1}, "version: 1, but this version reads 2; give a file with version: 2"),
]


@pytest.mark.parametrize(("changes", "fault"), FAULTS)
def test_a_fault_is_reported_with_file_key_value_and_what_is_allowed(
    tmp_path: Path, changes: dict[str, Any], fault: str
) -> None:
    path = written(tmp_path, SOUND | changes)
    with pytest.raises(ConfigError) as error:
        read(Example, path)
    assert str(error.value) == f"{path}: {fault}"


def test_all_faults_are_reported_in_one_error_with_the_fix_at_its_end(tmp_path: Path) -> None:
    path = written(tmp_path, {**SOUND, "name": 3, "part": {"low": "x", "hihg": 1}, "parts": [0] * 100})
    with pytest.raises(SamplesError) as error:
        read(Example, path, error=SamplesError, fix="write it anew")
    lines = str(error.value).splitlines()
    assert [line.removeprefix(f"{path}: ").split(": ")[0] for line in lines] == [
        "name",
        "part.hihg",
        "part.low",
        "part.high",
        *(f"parts[{index}]" for index in range(5)),
    ]
    assert lines[-1].endswith("; write it anew")


def test_a_file_of_another_kind_reports_that_alone() -> None:
    made, faults = build(Example, {"version": 2, "surprise": 1})
    assert made is None
    assert [fault.path for fault in faults] == ["format"]


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular, "MOST_BYTES", 10)
    with pytest.raises(ConfigError, match=r"example\.json: holds .* MB, more than"):
        read(Example, written(tmp_path, SOUND))


def test_the_docstring_of_a_field_is_its_text() -> None:
    assert field_docs(Example) == {"name": "What reports call it, in one line.", "part": "Its part."}
