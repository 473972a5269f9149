"""What writing may not replace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sampling.errors import UserError
from sampling.files.disk import require_place, write_atomically


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
