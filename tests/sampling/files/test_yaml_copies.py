"""JSON copies of shipped YAML stand in for it on a machine without PyYAML."""

import json
from pathlib import Path

import pytest
import yaml

from sampling.files import documents
from sampling.files.documents import read_yaml
from sampling.files.places import CONFIGS
from sampling.files.yaml_copies import COPIES, FOLDERS, copies

SHIPPED = sorted(path for folder in FOLDERS for path in (CONFIGS / folder).glob("*.yml"))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "yaml", None)


def test_the_kept_copies_are_those_of_the_shipped_files() -> None:
    assert COPIES.read_text() == copies(), "run `make reference`"


def test_a_shipped_file_reads_as_it_does_with_pyyaml(bare: None) -> None:
    for path in SHIPPED:
        assert repr(read_yaml(path)) == repr((yaml.safe_load(path.read_text()), []))


def test_a_shipped_file_that_was_changed_is_refused(
    bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sampling.files.yaml_copies.CONFIGS", tmp_path)
    (tmp_path / "sampling").mkdir()
    changed = tmp_path / "sampling" / "cpu.yml"
    changed.write_text((CONFIGS / "sampling" / "cpu.yml").read_text() + "models: 3\n")
    value, faults = read_yaml(changed)
    assert value is None
    assert "this Python has no PyYAML" in faults[0].problem


def test_a_file_of_the_users_own_may_hold_json(bare: None, tmp_path: Path) -> None:
    (tmp_path / "own.yml").write_text(json.dumps({"a": [1, {"b": None}]}))
    assert read_yaml(tmp_path / "own.yml") == ({"a": [1, {"b": None}]}, [])
    (tmp_path / "own.yml").write_text("a: 1")
    assert read_yaml(tmp_path / "own.yml")[0] is None
