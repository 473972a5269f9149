"""The archive: bounded files, whole lines, and damage that is reported."""

from pathlib import Path

import pytest

from sampling.errors import SamplesError, UserError
from sampling.session import archive
from sampling.session.archive import MOST_PARTS, ArchiveFullError, EventWriter, archive_lock, parts, read_events


def texts(directory: Path) -> list[str]:
    return [event["text"] for event in read_events(directory)]


def test_files_stay_below_their_bound_and_are_at_most_eight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 500)
    writer, written = EventWriter(tmp_path), []
    with pytest.raises(ArchiveFullError, match="another --out"):
        for number in range(1000):
            writer.append({"event": "note", "text": f"note {number}"})
            written.append(f"note {number}")
    assert texts(tmp_path) == written
    assert len(parts(tmp_path)) == MOST_PARTS == 6
    assert max(path.stat().st_size for path in parts(tmp_path)) <= 500


@pytest.mark.parametrize("kept", [0, 1, 20])
def test_a_line_cut_short_is_not_read_and_the_next_session_writes_on_behind_the_last_whole_one(
    tmp_path: Path, kept: int
) -> None:
    EventWriter(tmp_path).append({"event": "note", "text": "one"})
    with parts(tmp_path)[0].open("ab") as file:
        file.write(b'{"event": "note", "text": "two"'[:kept])
    assert texts(tmp_path) == ["one"]
    EventWriter(tmp_path).append({"event": "note", "text": "three"})
    assert texts(tmp_path) == ["one", "three"]


@pytest.mark.parametrize(("old", "new"), [(b"two", b"tvo"), (b'{"event"', b"\x00\x00"), (b'"check"', b'"chalk"')])
def test_a_damaged_line_is_reported_by_its_number(tmp_path: Path, old: bytes, new: bytes) -> None:
    writer = EventWriter(tmp_path)
    for text in ("one", "two", "three"):
        writer.append({"event": "note", "text": text})
    lines = parts(tmp_path)[0].read_bytes().split(b"\n")
    lines[1] = lines[1].replace(old, new)
    parts(tmp_path)[0].write_bytes(b"\n".join(lines))
    with pytest.raises(SamplesError, match="line 2"):
        texts(tmp_path)


def test_two_sessions_do_not_share_an_archive(tmp_path: Path) -> None:
    with archive_lock(tmp_path), pytest.raises(UserError, match="another session"), archive_lock(tmp_path):
        raise AssertionError
