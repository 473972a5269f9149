"""Laws that every plan must keep, on plans drawn at random; `python -m tests.trust.laws` tries more of them."""

from __future__ import annotations

import pytest

from tests.trust.laws import LAWS, try_laws, try_searches

CASES = range(1000, 1024)
SPACES = range(3)
FEWEST = {"zero-bubble is not slower than 1F1B by more than its second pass": 4}


def test_random_plans_keep_every_law(capsys: pytest.CaptureFixture[str]) -> None:
    tried = try_laws(CASES)
    with capsys.disabled():
        print(f"\nlaws on plans of seeds {CASES}: " + ", ".join(str(each.plans) for each in tried.values()))
    assert {name: each.broken for name, each in tried.items() if each.broken} == {}
    assert {name: each.plans for name, each in tried.items() if each.plans < FEWEST.get(name, 12)} == {}
    assert len(tried) == len(LAWS)


def test_searches_of_random_spaces_equal_brute_force() -> None:
    tried = try_searches(SPACES)
    assert {name: each.broken for name, each in tried.items() if each.broken} == {}
    assert sum(each.plans for each in tried.values()) == len(SPACES)
