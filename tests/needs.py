"""Marks of tests that need a GPU, or tables measured by others that may lie in `../shared`; see `tests/conftest.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

SHARED = Path(__file__).resolve().parents[2] / "shared"


def needs_table(name: str) -> pytest.MarkDecorator:
    """Skip without the file or folder `../shared/NAME`."""
    return pytest.mark.needs(f"../shared/{name}", (SHARED / name).exists())


needs_gpu = pytest.mark.needs("a GPU", torch.cuda.is_available())
