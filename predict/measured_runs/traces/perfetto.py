"""Slices of a Perfetto trace file: the few messages of its protocol buffers that hold them, decoded by hand.

Source: protos/perfetto/trace/trace_packet.proto, track_event/track_event.proto, track_event/track_descriptor.proto and interned_data of
github.com/google/perfetto, and the wire format at protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sampling.files.disk import read_unzipped

# numbers of fields
PACKET = 1
TIMESTAMP, SEQUENCE, TRACK_EVENT, INTERNED, TRACK_DESCRIPTOR = 8, 10, 11, 12, 60
EVENT_TYPE, EVENT_CATEGORY_IDS, EVENT_NAME_ID, EVENT_TRACK, EVENT_CATEGORIES, EVENT_NAME = 9, 3, 10, 11, 22, 23
DESCRIPTOR_UUID, DESCRIPTOR_NAME = 1, 2
INTERNED_CATEGORIES, INTERNED_NAMES = 1, 2
ENTRY_ID, ENTRY_NAME = 1, 2
BEGIN, END = 1, 2
Fields = list[tuple[int, "int | bytes"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """A named stretch of a track."""

    name: str
    category: str
    track: str
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class _State:
    """Names and tracks that earlier packets have defined, and slices that are open."""

    names: dict[tuple[int, int], str] = field(default_factory=dict)
    categories: dict[tuple[int, int], str] = field(default_factory=dict)
    tracks: dict[int, str] = field(default_factory=dict)
    begun: dict[int, list[tuple[str, str, int]]] = field(default_factory=dict)


def slices_in(path: Path) -> Iterator[Slice]:
    """The slices of a file in the order of their ends. ValueError for a file that is no Perfetto trace."""
    state = _State()
    for number, packet in _fields(read_unzipped(path)):
        if number == PACKET and isinstance(packet, bytes):
            yield from _of_packet(_fields(packet), state)


def _of_packet(packet: Fields, state: _State) -> Iterator[Slice]:
    known = dict(packet)
    sequence, at_ns = _whole(known.get(SEQUENCE)), _whole(known.get(TIMESTAMP))
    if isinstance(interned := known.get(INTERNED), bytes):
        _intern(interned, sequence, state)
    if isinstance(descriptor := known.get(TRACK_DESCRIPTOR), bytes):
        about = dict(_fields(descriptor))
        state.tracks[_whole(about.get(DESCRIPTOR_UUID))] = _text(about.get(DESCRIPTOR_NAME))
    if not isinstance(event := known.get(TRACK_EVENT), bytes):
        return
    about = dict(_fields(event))
    track = _whole(about.get(EVENT_TRACK))
    running = state.begun.setdefault(track, [])
    if about.get(EVENT_TYPE) == BEGIN:
        name = _text(about.get(EVENT_NAME)) or state.names.get((sequence, _whole(about.get(EVENT_NAME_ID))), "")
        category = _text(about.get(EVENT_CATEGORIES)) or state.categories.get((sequence, _first(about)), "")
        running.append((name, category, at_ns))
    elif about.get(EVENT_TYPE) == END and running:
        name, category, start_ns = running.pop()
        yield Slice(name=name, category=category, track=state.tracks.get(track, ""), start_ns=start_ns, end_ns=at_ns)


def _first(event: dict[int, int | bytes]) -> int:
    """The first of the categories, which may be packed."""
    found = event.get(EVENT_CATEGORY_IDS)
    return _varint(found, 0)[0] if isinstance(found, bytes) and found else _whole(found)


def _intern(data: bytes, sequence: int, state: _State) -> None:
    for number, entry in _fields(data):
        kept = {INTERNED_NAMES: state.names, INTERNED_CATEGORIES: state.categories}.get(number)
        if kept is not None and isinstance(entry, bytes):
            about = dict(_fields(entry))
            kept[sequence, _whole(about.get(ENTRY_ID))] = _text(about.get(ENTRY_NAME))


def _fields(data: bytes) -> Fields:
    """The fields of a message, (number, value), in order; of a repeated one all."""
    found: Fields = []
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == 0:
            value, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, at = int.from_bytes(data[at : at + size], "little"), at + size
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at > len(data):
            raise ValueError("a field that is cut short")
        found.append((number, value))
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number that is too long")
    raise ValueError("a number that is cut short")


def _whole(value: int | bytes | None) -> int:
    return value if isinstance(value, int) else 0


def _text(value: int | bytes | None) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else ""
