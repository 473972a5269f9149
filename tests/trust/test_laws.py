"""Laws that every plan must keep, on plans drawn at random; `python -m tests.trust.laws` tries more of them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from predict.memory import activations
from predict.memory.activations import Activations, UnitMemory, unit_activations
from predict.memory.state import Unit
from predict.rank.share import RankShare
from predict.run.memory_profile import MemoryProfile
from tests.trust.laws import LAWS, Tried, drawn, try_laws, try_searches, zero_stages

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


def _double_working_set(rank: RankShare, profile: MemoryProfile, unit: Unit) -> Activations:
    found = unit_activations(rank, profile, unit)
    return replace(found, backward_working_bytes=(1 + (rank.run.plan.zero == 3)) * found.backward_working_bytes)


def _all_gathered(units: Sequence[UnitMemory], _: float) -> list[float]:
    return [sum(each.gathered for each in units)] * len(units)


def _all_reduced(units: Sequence[UnitMemory], _: float) -> list[float]:
    return [sum(each.sent for each in units)] * len(units)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("unit_activations", _double_working_set),
        ("_gathered_ahead", _all_gathered),
        ("_being_reduced", _all_reduced),
    ],
)
def test_a_zero_stage_that_holds_too_much_breaks_its_law(
    name: str, wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activations, name, wrong)
    tried = Tried()
    for case in CASES[:17]:
        tried.one(case, zero_stages, drawn(case))
    assert tried.broken


def test_searches_of_random_spaces_equal_brute_force() -> None:
    tried = try_searches(SPACES)
    assert {name: each.broken for name, each in tried.items() if each.broken} == {}
    assert sum(each.plans for each in tried.values()) == len(SPACES)
