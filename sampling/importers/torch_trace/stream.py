"""Events of a trace read piece by piece, so that a file of hundreds of megabytes never lies in memory as text or as JSON."""

import codecs
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sampling.files.disk import GZIP, NotReadError, cannot_be_read, require_regular
from sampling.number_text import count

EVENTS = "traceEvents"
PIECE = 1 << 20
"""Bytes read at a time."""
AHEAD = 1 << 16
"""Characters known beyond the start of a value before it is decoded, so that no number is cut in two."""
MANY = 1 << 20
"""Characters of elements that are decoded at once."""
TRIES = 4
"""Places at which elements that are decoded at once may end, the last first."""
SPACE = " \t\r\n"


class JsonPieces:
    """The values of a JSON text that arrives in pieces, decoded one after the other; ValueError for what is not JSON."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._text = ""
        self._at = 0
        self._whole = False
        self._singly = False
        self._decode = json.JSONDecoder().raw_decode

    def next_sign(self) -> str:
        """The next character that is not space, which stays to be read; '' at the end."""
        while True:
            self._fill()
            while self._at < len(self._text) and self._text[self._at] in SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if self._whole:
                return ""

    def take(self, sign: str) -> bool:
        """Whether the next character is `sign`, which is then read."""
        if self.next_sign() != sign:
            return False
        self._at += 1
        return True

    def value(self) -> Any:
        """The next value, whole."""
        self.next_sign()
        while True:
            try:
                found, self._at = self._decode(self._text, self._at)
                return found
            except ValueError:
                if self._whole:
                    raise
                self._fill(len(self._text) - self._at + PIECE)

    def elements(self) -> Iterator[Any]:
        """The elements of a list whose opening bracket was read."""
        while not self.take("]"):
            if many := self._many():
                yield from many
            else:
                yield self.value()
            _require(self.take(",") or self.next_sign() == "]", "an element that is cut short")

    def _many(self) -> list[Any]:
        """The next elements up to the last that ends within MANY characters, decoded at once, which is faster than one by one; none where
        they are not objects, or only the last is left. What decodes as a whole list ends where an element ends."""
        if self._singly:
            return []
        self._fill(MANY)
        stop = self._at + MANY
        for _ in range(TRIES):
            stop = self._text.rfind("},", self._at, stop)
            if stop < 0:
                break
            try:
                found: list[Any] = json.loads(f"[{self._text[self._at : stop + 1]}]")
            except ValueError:  # ended within an element
                continue
            self._at = stop + 1
            return found
        self._singly = True
        return []

    def _fill(self, ahead: int = AHEAD) -> None:
        if len(self._text) - self._at >= ahead or self._whole:
            return
        parts = [self._text[self._at :]]
        known = len(parts[0])
        while known < ahead:
            piece = next(self._pieces, None)
            if piece is None:
                self._whole = True
                break
            parts.append(piece)
            known += len(piece)
        self._text, self._at = "".join(parts), 0


def stream_trace(path: Path, *, most_bytes: int, header: dict[str, Any]) -> Iterator[Any]:
    """The events of a trace, .json or .json.gz, one by one; its other keys are put into `header`, which is whole at the end.

    ValueError for a file that is not JSON, NotReadError for one that cannot be read, is empty, or unpacks to more than `most_bytes`. A file
    that is not an object with a list of events yields nothing, and its header has no events.
    """
    text = JsonPieces(_pieces(path, most_bytes))
    if not text.take("{"):
        if not (text.next_sign() and text.value()):
            raise NotReadError("it is empty")
        return
    if text.next_sign() == "}":
        raise NotReadError("it is empty")
    while not text.take("}"):
        key = text.value()
        _require(text.take(":"), "a key without a value")
        if key == EVENTS and text.take("["):
            header[EVENTS] = True
            yield from text.elements()
        else:
            header[str(key)] = text.value()
        _require(text.take(",") or text.next_sign() == "}", "an object that is cut short")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _pieces(path: Path, most_bytes: int) -> Iterator[str]:
    """The text of a file, unpacked if it is gzipped; bytes that are not UTF-8 are replaced, as names may be cut within a letter."""
    require_regular(path, most_bytes=most_bytes)
    left = most_bytes
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == GZIP
            unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            letters = codecs.getincrementaldecoder("utf-8")(errors="replace")
            while raw := file.read(PIECE):
                piece = unpacker.decompress(raw, left + 1) if packed else raw
                left -= len(piece)
                if left < 0:
                    raise NotReadError(
                        f"unpacks to more than the {count(most_bytes / 1e6)} MB that are read; give a smaller file"
                    )
                yield letters.decode(piece)
            yield letters.decode(b"", final=True)
            if packed and not unpacker.eof:
                raise NotReadError("is cut short; fetch the file again")
    except OSError as error:
        raise cannot_be_read(error) from None
    except zlib.error as error:
        raise NotReadError(f"is not whole gzip ({error}); fetch the file again") from None
