"""Messages of ranks to the user: their own stderr goes to a log, so they leave messages beside the rows."""

from __future__ import annotations

from pathlib import Path

FILE = "messages.txt"


def leave_message(directory: Path, text: str) -> None:
    with (directory / FILE).open("a", encoding="utf-8") as file:
        file.write(text + "\n")


def take_messages(directory: Path) -> list[str]:
    """The messages in `directory`, without repetitions; their file is removed."""
    path = directory / FILE
    if not path.is_file():
        return []
    messages = path.read_text(encoding="utf-8").splitlines()
    path.unlink()
    return list(dict.fromkeys(messages))
