"""What one change must touch: an idea that spreads over more files than stated here has lost its home."""

from __future__ import annotations

import re
from pathlib import Path

PREDICT = Path(__file__).resolve().parents[1] / "predict"


def files_with(pattern: str) -> set[str]:
    """The files of predict in which a pattern occurs."""
    return {
        str(path.relative_to(PREDICT)) for path in PREDICT.rglob("*.py") if re.search(pattern, path.read_text("utf-8"))
    }


def test_the_price_of_sends_that_block_is_in_three_files() -> None:
    """The setting, the ranks that take it, and the costs that it changes; what times an order does not know of it."""
    assert files_with(r"\boverlap_p2p: bool|execution\.overlap_p2p\b(?!\")|times\.blocking") == {
        "run/execution.py",
        "step/priced_rank.py",
        "schedules/engine/costs.py",
    }


def test_the_rules_by_which_widths_add_are_in_one_file() -> None:
    assert files_with(r"(?m)^def (independent|shared)_causes|^width_of_\w+ = ") <= {"interval.py"}
    assert files_with(r"\bwidth_beyond_calls\(") == {
        "step/composition_error.py",
        "step/prediction.py",
        "rl/plain_torch.py",
    }
