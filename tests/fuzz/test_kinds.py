"""Some servers, RL steps and module files: each is refused in words, or answered with sense. `python -m tests.trust.fuzz` tries more."""

from pathlib import Path

import pytest

from tests.fuzz.judgement import Counts
from tests.fuzz.kinds import KINDS, FuzzedKind

CASES = 25


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_generated_input_is_refused_or_answered_with_sense(
    kind: FuzzedKind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = Counts()
    for case in range(CASES):
        given, odd = kind.draw(case, tmp_path)
        counts.judge(f"case {case} {odd[:300]}", lambda given=given: kind.answer(given))  # type: ignore[misc]
    with capsys.disabled():
        print(f"\n{kind.name}: {counts}")
    assert counts.faults == []
    assert counts.cases == CASES
    assert counts.answered > CASES // 10
