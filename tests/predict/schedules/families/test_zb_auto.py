"""zb-auto against what a constraint solver proves to be the shortest step.

`python tests/predict/schedules/families/test_zb_auto.py` tells how far above it is on many cases.
"""

import random
from collections.abc import Callable, Iterable

import pytest

from predict.schedules.engine.costs import in_ticks
from predict.schedules.engine.order import Order, loop
from predict.schedules.engine.timing import ChunkTimes, makespan
from predict.schedules.families.zb_auto import zb_auto
from predict.schedules.order_search import peak
from tests.predict.schedules.families.optimal_pipeline import Case, optimal_makespan

pytest.importorskip("ortools", reason="the solver is for these tests only")


def makespan_of_zb_auto(case: Case) -> float:
    """Under the limit of the case, in zb-auto's own account."""
    forward, backward_input, backward_weight = (
        [[time] for time in table] for table in (case.forward, case.backward_input, case.backward_weight)
    )
    times = ChunkTimes(
        forward=forward, backward_input=backward_input, backward_weight=backward_weight, p2p=float(case.p2p)
    )
    ticks = in_ticks(times, ranks=case.ranks, chunks=1, depth=case.ranks)
    rows = zb_auto(case.microbatches, ticks, case.limit)
    assert peak(rows, released_by_b=0.5) <= case.limit
    return makespan(Order(rows=tuple(rows), microbatches=case.microbatches, placement=loop(case.ranks, 1)), times)


@pytest.mark.parametrize("limit_per_rank", [1, 2])
@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 3), (2, 6), (3, 4), (3, 6), (4, 5)])
def test_stages_of_equal_times_are_scheduled_optimally(ranks: int, microbatches: int, limit_per_rank: int) -> None:
    case = Case(
        microbatches=microbatches,
        forward=[10] * ranks,
        backward_input=[10] * ranks,
        backward_weight=[10] * ranks,
        p2p=0,
        limit=limit_per_rank * ranks,
    )
    assert makespan_of_zb_auto(case) == optimal_makespan(case)


def even(seed: int) -> Case:
    """F, B and W of different times, the same on all ranks."""
    draw = random.Random(seed)
    ranks = draw.choice([2, 3, 4])
    forward, backward_input, backward_weight = (draw.randint(5, 20) for _ in range(3))
    return Case(
        microbatches=draw.choice([ranks, ranks + 1, ranks + 2]),
        forward=[forward] * ranks,
        backward_input=[backward_input] * ranks,
        backward_weight=[backward_weight] * ranks,
        p2p=draw.randint(0, 4),
        limit=draw.randint(ranks, 2 * ranks),
    )


def uneven(seed: int) -> Case:
    draw = random.Random(seed)
    ranks = draw.choice([2, 3, 4])
    longest = draw.choice([12, 20])
    forward, backward_input = ([draw.randint(8, longest) for _ in range(ranks)] for _ in range(2))
    return Case(
        microbatches=draw.choice([ranks, ranks + 2]),
        forward=forward,
        backward_input=backward_input,
        backward_weight=[draw.randint(4, longest) for _ in range(ranks)],
        p2p=draw.choice([0, 1, 2]),
        limit=draw.choice([ranks, ranks + 2, 2 * ranks]),
    )


def gaps(draw: Callable[[int], Case], seeds: Iterable[int]) -> list[float]:
    """How far above the optimum, as shares of it."""
    found = []
    for seed in seeds:
        case = draw(seed)
        optimal = optimal_makespan(case)
        found.append(makespan_of_zb_auto(case) / optimal - 1)
        assert found[-1] >= 0
    return found


@pytest.mark.parametrize(
    ("draw", "seeds", "worst", "mean"), [(even, range(8), 0.09, 0.002), (uneven, (*range(8), 9, 19), 0.04, 0.0085)]
)
def test_other_stages_are_scheduled_close_to_the_optimum(
    draw: Callable[[int], Case], seeds: Iterable[int], worst: float, mean: float
) -> None:
    found = gaps(draw, seeds)
    assert max(found) <= worst, found
    assert sum(found) / len(found) <= mean, found


def test_the_even_case_that_was_worst_is_optimal() -> None:
    case = Case(microbatches=5, forward=[20] * 3, backward_input=[10] * 3, backward_weight=[7] * 3, p2p=4, limit=4)
    assert makespan_of_zb_auto(case) == optimal_makespan(case) == 233


if __name__ == "__main__":
    for draw, cases in ((even, 500), (uneven, 200)):
        found = gaps(draw, range(cases))
        above = sum(gap > 1e-9 for gap in found)
        print(
            f"{draw.__name__} stages: {above} of {cases} cases above the optimum, "
            f"mean {sum(found) / cases:.2%}, worst {max(found):.1%}"
        )
