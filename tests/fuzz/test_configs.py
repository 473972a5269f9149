"""A thousand run configs: each is refused in words, or answered by a step that some machine could take, and as kept."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from predict.schedules.engine.order import CHUNK, KIND, KINDS
from predict.step.prediction import Prediction
from tests.fuzz.judgement import Counts
from tests.golden.answers import FUZZED, PIECES, differences, fuzz_text, predicted, shipped_machine

NEAR = 1e-6
BUCKETS = {"F": "forward", "B": "backward_input", "W": "backward_weight", "BW": "backward"}


def nonsense(found: Prediction) -> Iterator[str]:
    """What no machine can do, and sums that are not those of their parts."""
    step = found.step_time
    if not 0 < found.mfu <= 1:
        yield f"MFU {found.mfu}"
    if not 0 < step.low_us <= step.median_us <= step.high_us < math.inf:
        yield f"the interval {step} does not hold its median"
    ledger = found.breakdown_us
    yield from (f"{name} {time_us} µs" for name, time_us in ledger.items() if not time_us >= -NEAR * step.median_us)
    if abs(sum(ledger.values()) - step.median_us) > NEAR * step.median_us:
        yield f"the ledger adds up to {sum(ledger.values())} of {step.median_us} µs"
    if any(abs(found.sources[name] - share) > NEAR for name, share in counted_sources(found).items()):
        yield f"sources {found.sources}, counted {counted_sources(found)}"
    if not found.memory.point_bytes > 0:
        yield f"memory of {found.memory.point_bytes} bytes"


def counted_sources(found: Prediction) -> dict[str, float]:
    """The shares of the sources, counted action by action and call by call."""
    times: dict[str, float] = {}

    def add(bucket: Any, factor: float) -> None:
        for repeated in bucket.blocks:
            block = repeated.priced
            many = factor * repeated.count
            times["analytic"] = times.get("analytic", 0.0) + many * (block.median_us - block.busy_us)
            for unit in block.units:
                times[unit.time.source] = times.get(unit.time.source, 0.0) + many * unit.total_us
            for each in block.overlapped:
                whole_us = sum(unit.total_us for unit in each.communication)
                for unit in each.communication if whole_us else ():
                    share_us = each.exposed_us * unit.total_us / whole_us
                    times[unit.time.source] = times.get(unit.time.source, 0.0) + many * share_us

    for rank, rows in zip(found.ranks, found.timeline.order.rows, strict=True):
        add(rank.blocking_reduction, 1.0)
        add(rank.optimizer, 1.0)
        for bucket, exposed_us in (
            (rank.gradient_reduction, rank.exposed_reduction_us),
            (rank.parameter_all_gather, rank.exposed_all_gather_us),
        ):
            add(bucket, exposed_us / bucket.median_us if bucket.median_us else 0.0)
        for index, chunk in enumerate(rank.chunks):
            own = rows[rows[:, CHUNK] == index][:, KIND].tolist()
            for number, kind in enumerate(KINDS):
                add(getattr(chunk, BUCKETS[kind]), own.count(number))
            add(chunk.send, 2 * own.count(KINDS.index("F")))
    kept = {name: max(0.0, time_us) for name, time_us in times.items()}
    return {name: time_us / sum(kept.values()) for name, time_us in kept.items()}


@pytest.mark.parametrize("piece", range(PIECES))
def test_a_generated_config_is_refused_or_answered_with_sense_and_as_kept(
    piece: int, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = Counts()

    def judged(name: str, path: Path) -> Prediction:
        found: list[Prediction] = []

        def work() -> Iterator[str]:
            found.append(predicted(name, path))
            return nonsense(found[0])

        refusal = counts.judge(name[:300], work)
        assert found or refusal, counts.faults
        if refusal:
            raise refusal
        return found[0]

    with shipped_machine():
        now = fuzz_text(piece, judged)
    with capsys.disabled():
        print(f"\ngenerated configs: {counts}")
    assert counts.faults == []
    assert counts.answered > FUZZED // PIECES // 10
    assert differences(f"fuzz-{piece}", now) == []
