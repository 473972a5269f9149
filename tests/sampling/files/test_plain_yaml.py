"""The reader for machines without PyYAML gives PyYAML's values or refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sampling.files.plain_yaml import NotYamlError, parse_plain

CLONE = Path(__file__).resolve().parents[3]
SHIPPED = sorted((CLONE / "configs").rglob("*.yml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(CLONE)))
def test_every_shipped_file_reads_as_it_does_with_pyyaml(path: Path) -> None:
    text = path.read_text()
    value, faults = parse_plain(text)
    assert repr(value) == repr(yaml.safe_load(text))
    assert not faults


@pytest.mark.parametrize(
    "text",
    [
        *("1e6", "1.5e+3", "12e03", "-5", "+3", ".5", "1.", "-.5", "1_000", "yes", "Off", "~", "", "x#y", "a b # c", "'d''e'"),
        *('"1f1b"', r'"a\u00b5\n"', "http://x", "[a b, c:d]", "[]", "{}", "{a: [1, {b: null}], c: 'x'} # c", "[1,\n 2]"),
        *("a:\n b:\n  c: 1\n\n # c\nd: 2", "a: [1, # one\n   2]\nb: 3", "'a b': 1", "a:", "1: x", "a: 'x: y'"),
    ],
)  # fmt: skip
def test_plain_texts_read_as_they_do_with_pyyaml(text: str) -> None:
    assert repr(parse_plain(text)[0]) == repr(yaml.safe_load(text))


@pytest.mark.parametrize(
    "text",
    [
        *("1:30", "0x10", "012", "0o7", "2024-01-01", ".inf", "- x", "x: >\n  a", "x: |\n  a", "a: x\n  y", "&a x", "a: *b"),
        *("!!int 3", "<<: {a: 1}", "a: =", "{a}", "[a: 1]", "a: b: c", "a: 1\n  b: 2", "a:\n  b: 1\n c: 2", "a: b\n---\nc: d"),
        *("[1, 2", "{a: 1", "a: 'x", "a: 'x' y", "a:\t1", r'"\x41"', "? a", "a: [" + "[" * 5000, "a: {b: 1} {c: 2}", "a: -"),
    ],
)  # fmt: skip
def test_what_is_not_plain_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(NotYamlError, match=r"at line \d: "):
        parse_plain(text)


def test_duplicate_keys_are_told() -> None:
    value, faults = parse_plain("a: 1\nb: {c: 1, c: 2}\na: 2\n")
    assert value == {"a": 2, "b": {"c": 2}}
    assert [(fault.path, fault.problem) for fault in faults] == [
        ("b.c", "given twice, on lines 2 and 2; keep one"),
        ("a", "given twice, on lines 1 and 3; keep one"),
    ]
