"""Reads the plain part of YAML that the shipped files are written in, for a machine without PyYAML.

Read are block mappings, flow mappings and lists, quoted and plain scalars, and comments, with the values that PyYAML (YAML 1.1) gives
them. Everything else (block lists and texts, anchors, tags, dates, several documents) is refused, never guessed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from sampling.files.faults import Fault, join, key_name

DEEPEST = 100
"""Most mappings and lists inside each other."""
WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((each for word in ("true", "yes", "on") for each in (word, word.title(), word.upper())), True),
    **dict.fromkeys((each for word in ("false", "no", "off") for each in (word, word.title(), word.upper())), False),
}
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
FLOAT = re.compile(r"[-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9]+([eE][-+][0-9]+)?")
NOT_PLAIN = re.compile(
    r"[&*!|>%@`#?,\[\]{}\"']|- |-$|---|\.\.\.|=$|<<$"
    r"|[-+]?0[xob_0-9]|[-+]?[0-9][0-9_]*:|\d{4}-\d|[-+]?\.(inf|Inf|INF|nan|NaN|NAN)$"
)
"""Beginnings of scalars that are not plain, or to which YAML 1.1 gives another type than those above."""
LINE = re.compile(r"(?P<indent> *)(?P<rest>.*)")
KEY = re.compile(r"""(?P<key>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s:{}\[\],#&*!|>%@`"'][^:{}\[\],]*?)\s*:(?=\s|$)""")


class NotYamlError(ValueError):
    """A text that is not YAML, too large, or beyond the part that is read: where and what is wrong, to follow `not valid YAML`."""


def parse_plain(text: str) -> tuple[Any, list[Fault]]:
    """The mapping of a text (or the value of one flow collection or scalar) and its duplicate keys; NotYamlError for what is not plain."""
    reader = _Reader(lines=text.split("\n"))
    value = reader.document()
    return value, reader.faults


@dataclass(slots=True)
class _Reader:
    lines: list[str]
    at: int = 0
    """The line that is read."""
    column: int = 0
    depth: int = 0
    faults: list[Fault] = field(default_factory=list)

    def document(self) -> Any:
        indent = self._next_indent()
        if indent is None:
            return None
        self.column = indent
        value = self._block(indent, "") if KEY.match(self._here()) else self._value("", "")
        if self._next_indent() is not None:
            raise self._refused("a second value, or a line indented unlike those above it")
        return value

    def _block(self, indent: int, path: str) -> dict[Any, Any]:
        """The mapping whose keys all stand at `indent`."""
        self._deeper()
        made: dict[Any, Any] = {}
        lines: dict[Any, int] = {}
        while self._next_indent() == indent:
            self.column = indent
            key = self._key()
            here, line = join(path, key_name(str(key))), self.at + 1
            if key in made:
                self.faults.append(Fault(path=here, problem=f"given twice, on lines {lines[key]} and {line}; keep one"))
            lines.setdefault(key, line)
            self._skip_spaces()
            if self.column < len(self.lines[self.at]):
                made[key] = self._value(here, "")
                continue
            self._next_line()
            deeper = self._next_indent()
            made[key] = self._block(deeper, here) if deeper is not None and deeper > indent else None
        if (self._next_indent() or 0) > indent:
            raise self._refused("a line indented unlike those above it")
        self.depth -= 1
        return made

    def _value(self, path: str, ends: str) -> Any:
        """The value at this place; a plain scalar ends at one of `ends`, a comment, or the end of the line."""
        opening = self._here()[:1]
        if opening and opening in "{[":
            value = self._collection(path)
        elif opening and opening in "\"'":
            value = self._quoted()
        else:
            return self._plain(ends)
        if not ends:
            self._skip_spaces()
            if self.column < len(self.lines[self.at]):
                raise self._refused("text after a value")
            self._next_line()
        return value

    def _collection(self, path: str) -> Any:
        self._deeper()
        is_mapping, closing = (True, "}") if self._take(1) == "{" else (False, "]")
        mapping: dict[Any, Any] = {}
        items: list[Any] = []
        while True:
            self._skip_lines()
            if self._here().startswith(closing):
                self._take(1)
                self.depth -= 1
                return mapping if is_mapping else items
            if is_mapping:
                key = self._key()
                here = join(path, key_name(str(key)))
                if key in mapping:
                    self.faults.append(
                        Fault(path=here, problem=f"given twice, on lines {self.at + 1} and {self.at + 1}; keep one")
                    )
                self._skip_lines()
                mapping[key] = self._value(here, ",}]")
            else:
                items.append(self._value(path, ",}]"))
            self._skip_lines()
            if self._here().startswith(","):
                self._take(1)
            elif not self._here().startswith(closing):
                raise self._refused(f"no comma or {closing} where one belongs")

    def _key(self) -> Any:
        found = KEY.match(self._here())
        if not found:
            raise self._refused("no key with a colon where one belongs")
        written = found["key"]
        self.column += found.end()
        return self._unquoted(written) if written[0] in "\"'" else self._scalar(written)

    def _quoted(self) -> str:
        found = re.match(r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'""", self._here())
        if not found:
            raise self._refused("a quoted text that does not end on its line")
        return self._unquoted(self._take(found.end()))

    def _unquoted(self, written: str) -> str:
        if written[0] == "'":
            return written[1:-1].replace("''", "'")
        try:
            return str(json.loads(written))
        except ValueError:
            raise self._refused("an escape that JSON does not have") from None

    def _plain(self, ends: str) -> Any:
        here = self._here()
        stop = re.search(rf"[{re.escape(ends)}]|\s#|:\s|:$" if ends else r"\s#|:\s|:$", here)
        if stop and stop.group().startswith(":"):
            raise self._refused("a colon inside a value; quote it")
        written = here[: stop.start()] if stop else here
        if ends:
            self.column += len(written)
        else:
            self._next_line()
            self._refuse_continuation()
        return self._scalar(written.strip())

    def _refuse_continuation(self) -> None:
        """A plain scalar may go on in deeper lines, which is not read: the line after it must start a key."""
        if self._next_indent() is not None and not KEY.match(self._here().lstrip()):
            raise self._refused("a value that goes on in the next line; quote it, on one line")

    def _scalar(self, written: str) -> Any:
        if written in WORDS:
            return WORDS[written]
        if INTEGER.fullmatch(written):
            return int(written.replace("_", ""))
        if FLOAT.fullmatch(written):
            return float(written.replace("_", ""))
        if NOT_PLAIN.match(written):
            raise self._refused(f"{written[:40]!r}, which is not plain")
        return written

    def _here(self) -> str:
        return self.lines[self.at][self.column :] if self.at < len(self.lines) else ""

    def _take(self, count: int) -> str:
        taken = self._here()[:count]
        self.column += count
        return taken

    def _skip_spaces(self) -> None:
        here = self._here()
        rest = here.lstrip(" ")
        if rest.startswith("#") and (self.column == 0 or len(rest) < len(here)):
            rest = ""
        self.column += len(here) - len(rest)

    def _skip_lines(self) -> None:
        """Skip to the next value of a flow collection, which may be some lines below."""
        self._skip_spaces()
        while self.column >= len(self.lines[self.at]):
            if self.at + 1 >= len(self.lines):
                raise self._refused("a collection that does not end")
            self._next_line()
            self._skip_spaces()

    def _next_line(self) -> None:
        self.at, self.column = self.at + 1, 0

    def _next_indent(self) -> int | None:
        """The indentation of the next line that holds anything, which becomes the line that is read; None at the end."""
        while self.at < len(self.lines):
            found = LINE.fullmatch(self.lines[self.at])
            if not found:
                raise self._refused("an odd character")
            if found["rest"].strip() and not found["rest"].startswith("#"):
                if "\t" in self.lines[self.at]:
                    raise self._refused("a tab")
                return len(found["indent"])
            self._next_line()
        return None

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self._refused(f"more than {DEEPEST} mappings and lists inside each other")

    def _refused(self, what: str) -> NotYamlError:
        return NotYamlError(
            f" at line {self.at + 1}: {what}; write it plainly, or install PyYAML, which reads all of it"
        )
