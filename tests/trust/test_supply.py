"""The wheel can be built again to the byte, its dependencies are listed beside it, and no command reaches beyond this machine."""

from pathlib import Path

import pytest

from predict.cli.table import COMMANDS
from tests.trust.supply import GUARD, LOCK, OFFLINE, TRAINED, bill_of_materials, digest, equal_builds, locked, offline

SERVES_OR_NEEDS_FILES = ("explore", "explain", "what-if", "record", "serving-fit", "benchmark", "measure")
"""Commands that serve until they are ended, time for real, or need files of a run that was measured."""


def test_two_builds_of_the_wheel_are_equal() -> None:
    first, second = equal_builds()
    assert first == second


def test_the_bill_of_materials_names_the_wheel_and_what_it_needs(tmp_path: Path) -> None:
    wheel = tmp_path / "steptime-1.2.3-py3-none-any.whl"
    wheel.write_bytes(b"as built")
    bill = bill_of_materials(wheel)
    assert bill["metadata"]["component"]["version"] == "1.2.3"
    assert bill["metadata"]["component"]["hashes"][0]["content"] == digest(wheel)
    named = {each["name"].lower() for each in bill["components"]}
    assert {"numpy", "pyyaml", "rich", "joblib"} <= named
    assert "torch" not in named
    assert all(each["version"] and each["purl"].startswith("pkg:pypi/") for each in bill["components"])


def test_the_lock_names_every_package_of_the_development_environment() -> None:
    kept, found = ({line.partition("==")[0] for line in text.splitlines()} for text in (LOCK.read_text(), locked()))
    assert found - kept == set(), "python -m tests.trust.supply --lock"


@pytest.mark.usefixtures("starts_warm")
def test_no_command_reaches_beyond_this_machine() -> None:
    assert {command.name for command in COMMANDS} - {line.split()[0] for line in OFFLINE} == set(SERVES_OR_NEEDS_FILES)
    reached, said = offline(OFFLINE)
    assert reached == []
    assert [line for line in OFFLINE if f"$ {line.split()[0]}" not in said] == []
    assert "Traceback" not in said


@pytest.mark.usefixtures("starts_warm")
def test_ranks_meet_on_this_machine() -> None:
    reached, said = offline(TRAINED[:1])
    assert reached == [] and "error:" not in said, said


@pytest.mark.usefixtures("starts_warm")
@pytest.mark.parametrize("host", ["10.0.0.1", "example.org"])
def test_the_guard_sees_a_socket(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.trust.supply.ALONE", f"import socket\nsocket.create_connection(({host!r}, 80), timeout=1)\n"
    )
    reached, _ = offline([])
    assert len(reached) == 1 and host in reached[0]
    assert "addaudithook" in GUARD
