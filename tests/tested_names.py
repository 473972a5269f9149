"""Whether an addition that is found by itself has a test of its own."""

from collections.abc import Iterable

from tests.laws.project_copy import ROOT


def untested(names: Iterable[str]) -> list[str]:
    """Those of the names that no test file mentions."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    return sorted(name for name in names if not any(name in text for text in texts))
