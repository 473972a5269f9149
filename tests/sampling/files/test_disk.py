"""What writing may not replace."""

import gzip
import json
import os
import socket
import tempfile
import zipfile
from pathlib import Path

import pytest

from sampling.errors import LONGEST_LINE, ConfigError, UserError
from sampling.files import disk as regular
from sampling.files.disk import (
    NotReadError,
    read_bytes,
    read_unzipped,
    read_zip_member,
    require_place,
    scratch_folder,
    write_atomically,
    zip_members,
)
from sampling.files.documents import NotYamlError, parse_yaml, read_json, read_yaml
from sampling.hardware.cluster import read_cluster_file


def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="is not a regular file"):
        require_place(pipe)
    with pytest.raises(UserError, match="is not a regular file"):
        write_atomically(pipe, b"answer")
    assert pipe.is_fifo()
    (tmp_path / "old").write_bytes(b"old")
    write_atomically(tmp_path / "old", b"new")
    assert (tmp_path / "old").read_bytes() == b"new"


# Only regular files of bounded size are read, and small texts that would grow without end are refused.


def test_a_named_pipe_a_socket_and_a_device_are_not_read(tmp_path: Path) -> None:
    pipe, bound = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(bound))
        for path, kind in ((pipe, "a named pipe"), (bound, "a socket"), (Path("/dev/zero"), "a device")):
            with pytest.raises(NotReadError, match=f"is {kind}, which is not read"):
                read_bytes(path)


def test_a_file_that_the_system_makes_up_is_not_read() -> None:
    with pytest.raises(NotReadError, match="more than its stated size"):
        read_bytes(Path("/proc/self/status"))


def test_what_is_appended_to_a_file_while_it_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"first\n")
    earlier = path.stat()
    path.write_bytes(b"first\nsecond\n")
    states = iter((earlier, path.stat()))
    monkeypatch.setattr(regular, "require_regular", lambda *_, **__: next(states))
    assert read_bytes(path) == b"first\n"


def test_a_gzip_file_is_unpacked_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(bytes(1_000_000)))
    assert read_unzipped(path) == bytes(1_000_000)
    with pytest.raises(NotReadError, match="unpacks to more than"):
        read_unzipped(path, most_bytes=100_000)


def test_a_member_of_an_archive_is_unpacked_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "tables.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("deflated", bytes(1_000_000), zipfile.ZIP_DEFLATED)
        archive.writestr("bzip2", bytes(1_000), zipfile.ZIP_BZIP2)
    assert zip_members(path) == ["bzip2", "deflated"]
    assert read_zip_member(path, "deflated") == bytes(1_000_000)
    with pytest.raises(NotReadError, match="unpacks to more than the 0 MB"):
        read_zip_member(path, "deflated", most_bytes=100_000)
    with pytest.raises(NotReadError, match="neither plainly nor by deflate"):
        read_zip_member(path, "bzip2")


BOMBS = {
    "aliases": "a: &a [x, x]\n"
    + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefghijklmnopqr", "bcdefghijklmnopqrs", strict=True)),
    "merges": "a: &a {x: 1}\n"
    + "".join(f"{b}: &{b} {{<<: [*{a}, *{a}, *{a}]}}\n" for a, b in zip("abcdefghijkl", "bcdefghijklm", strict=True)),
    "itself": "a: &a [*a]",
    "brackets": "a: " + "[" * 30_000,
    "sexagesimal": "a: 1" + ":1" * 60_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_yaml_text_that_would_grow_is_refused(bomb: str) -> None:
    with pytest.raises(NotYamlError):
        parse_yaml(BOMBS[bomb])


@pytest.mark.parametrize("value", ["!!bool x", '!!int ""'])
def test_a_value_that_is_not_what_its_tag_says_is_a_fault(value: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_text(f"a: {value}\n")
    content, faults = read_yaml(path)
    assert content is None
    assert "not valid YAML" in faults[0].problem


def test_json_of_many_keys_is_read_in_linear_time(tmp_path: Path) -> None:
    """Counting each key among all of them once took half a minute for these."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps({f"k{number}": 1 for number in range(40_000)}))
    assert len(read_json(path)[0] or {}) == 40_000


def test_a_file_of_another_kind_is_not_echoed(tmp_path: Path) -> None:
    path = tmp_path / "secrets.yml"
    path.write_text("".join(f"secret_{number}: hidden\n" for number in range(1000)))
    with pytest.raises(ConfigError, match="none of its 1000 keys is known here") as error:
        read_cluster_file(path)
    assert "secret_" not in str(error.value)
    assert "hidden" not in str(error.value)


def test_a_message_is_bounded_printable_text() -> None:
    message = str(ConfigError("x" * 10**6 + "\n" + "\x1b[31mred\n" * 1000))
    assert len(message) < 10 * LONGEST_LINE
    assert message.replace("\n", "").isprintable()
    assert message.endswith("lines more")


# Temporary folders: removed after use, and what a killed process left by the next one.


@pytest.fixture(autouse=True)
def scratch_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def left(tmp_path: Path) -> list[str]:
    return [path.name for path in tmp_path.iterdir()]


def grown_old(folder: Path) -> None:
    os.utime(folder, (0, 0))


def test_a_folder_is_gone_after_its_block(tmp_path: Path) -> None:
    with scratch_folder("job") as folder:
        (folder / "job.json").write_text("{}")
        assert folder.parent == tmp_path
    assert left(tmp_path) == []


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    abandoned, young, foreign = (tmp_path / name for name in ("steptime-job-a", "steptime-job-b", "other-c"))
    for folder in (abandoned, young, foreign):
        folder.mkdir()
        (folder / "job.json").write_text("{}")
    for folder in (abandoned, foreign):
        grown_old(folder)
    with scratch_folder("job"):
        pass
    assert sorted(left(tmp_path)) == ["other-c", "steptime-job-b"]


def test_a_folder_in_use_stays_however_old(tmp_path: Path) -> None:
    with scratch_folder("job") as folder:
        grown_old(folder)
        with scratch_folder("job"):
            assert folder.is_dir()
