"""The folder beside the clone that holds tables and other tools' results for the tests of this folder."""

from pathlib import Path

SHARED = Path(__file__).resolve().parents[3] / "shared"
