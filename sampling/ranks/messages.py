"""What the ranks have to say to the user: their own stderr goes to a log, so they leave notes beside the rows."""

from __future__ import annotations

from pathlib import Path

FILE = "notes.txt"


def leave_note(directory: Path, text: str) -> None:
    with (directory / FILE).open("a", encoding="utf-8") as file:
        file.write(text + "\n")


def take_notes(directory: Path) -> list[str]:
    """The notes left there, each once; they are gone afterwards."""
    path = directory / FILE
    if not path.is_file():
        return []
    notes = path.read_text(encoding="utf-8").splitlines()
    path.unlink()
    return list(dict.fromkeys(notes))
