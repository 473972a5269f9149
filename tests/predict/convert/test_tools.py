"""Public files of other tools: each is read as counted by hand, or refused with the reason; none is accepted wrongly."""

import re
from pathlib import Path
from typing import Any

import pytest

import predict
from sampling.errors import ConfigError
from tests.predict.convert.real_files import REAL_FILES, RealFile

DEGREES = ("tp", "pp", "cp", "dp")


def imported(file: RealFile, folder: Path) -> Any:
    paths = [folder / name for name in (file.name, *file.beside)]
    for path, text in zip(paths, (file.text, *file.beside.values()), strict=True):
        path.write_text(text)
    return predict.import_config(paths, file.settings, accept=file.accept)


def value_at(content: Any, path: str) -> Any:
    for key in path.split("."):
        content = content.get(key) if isinstance(content, dict) else None
    if path == "plan":
        return {key: value for key, value in content.items() if value != 1 or key not in DEGREES or key == "dp"}
    return content


@pytest.mark.parametrize("file", REAL_FILES, ids=[f"{n}-{file.name}" for n, file in enumerate(REAL_FILES)])
def test_a_real_file_is_read_or_refused_with_the_reason(file: RealFile, tmp_path: Path) -> None:
    assert bool(file.reads) != bool(file.refused)
    if file.refused:
        with pytest.raises(ConfigError) as refusal:
            imported(file, tmp_path)
        for reason in file.refused:
            assert re.search(reason, str(refusal.value)), refusal.value
        return
    read = imported(file, tmp_path)
    found = {path: value_at(read.document.content, path) for path in file.reads}
    assert found == dict(file.reads)
    assert [note for note in file.notes if not any(re.search(note, said) for said in read.notes)] == []
    assert [note for note in file.unsaid if any(re.search(note, said) for said in read.notes)] == []


def test_many_tools_are_covered() -> None:
    assert len([file for file in REAL_FILES if not file.source.startswith(("made up here", "the same"))]) >= 40
    assert len({file.tool for file in REAL_FILES}) >= 12
