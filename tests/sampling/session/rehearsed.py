"""Rehearsals of GPU sessions that can be killed, for the tests of this folder."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sampling.call import Call, Phase
from sampling.session.gpu_plan import Plan, make_plan
from sampling.session.rehearsal import FakeClock, Rehearsal

HARDWARE = "h200"


class KilledError(BaseException):
    """A kill -9: nothing catches it."""


@dataclass(slots=True)
class MortalClock(FakeClock):
    """A clock on which the session is killed at a moment."""

    killed_at_s: float = float("inf")

    def pass_s(self, seconds: float) -> None:
        if self.now + seconds >= self.killed_at_s:
            self.now = self.killed_at_s
            raise KilledError
        self.now += seconds


@cache
def plan_of(models: int = 4) -> Plan:
    return make_plan(HARDWARE, calls=None, models=models, compiled=False)


def rehearsal(directory: Path, plan: Plan, *, budget_s: float = 10_000.0, **changes: Any) -> Rehearsal:
    values = {"directory": directory, "hardware": HARDWARE, "plan": plan, "timer": "quick", "budget_s": budget_s}
    return Rehearsal(**{**values, **changes})


def phases_of(plan: Plan) -> set[tuple[Call, Phase]]:
    return {(each.request.call, phase) for each in plan.planned for phase in each.request.phases}
