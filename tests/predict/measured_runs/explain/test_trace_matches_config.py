"""Traces of another schedule, or of ranks that were not recorded together, are refused."""

import json
import re
from pathlib import Path

import pytest

from predict import estimate, load
from predict.measured_runs.explain.naming import Named
from predict.measured_runs.explain.predicted import predicted_step
from predict.measured_runs.explain.read_traces import read_measured
from predict.measured_runs.explain.timeline import Slice, runs_forwards_first, splits_backward
from predict.measured_runs.explain.trace_matches_config import require_same_step
from sampling.errors import UserError
from sampling.importers.torch_trace.events import Op
from sampling.operators.gemm import Gemm
from tests.predict.measured_runs.explain.made_traces import CONFIG, prediction, step_events, write

TOKENS, OUTPUTS, INPUTS = 192, 1408, 512


def products(order: str) -> list[Slice]:
    """The products of a backward: W the gradient of weights, I that of inputs; the others are forward."""
    call = Gemm(dtype="fp32", m=TOKENS, n=OUTPUTS, k=INPUTS)
    first = {"W": [OUTPUTS, TOKENS], "I": [TOKENS, OUTPUTS], "F": [TOKENS, INPUTS]}
    return [
        Slice(
            "gemm",
            float(place),
            place + 1.0,
            Named("gemm", call, "forward" if kind == "F" else "backward"),
            Op("aten::mm", float(place), 1.0, {"Input Dims": [first[kind], [1, 1]]}),
        )
        for place, kind in enumerate(order)
    ]


@pytest.mark.parametrize(
    ("order", "split"),
    [
        ("FFF" + "WI" * 30, False),
        ("FFF" + ("I" * 15 + "F" * 8 + "W" * 15) * 2, True),
        (("IIII" + "WWWW") * 8, None),  # put off by a layer
        ("WI" * 3, None),
    ],
)
def test_a_split_backward_is_recognised_by_the_order_of_products(order: str, split: bool | None) -> None:
    assert splits_backward(products(order)) is split


@pytest.mark.parametrize(
    ("orders", "first"),
    [
        (["F" * 12 + "WI" * 12], True),
        (["F" * 6 + ("WI" * 3 + "F" * 3) * 2 + "WI" * 6], False),
        (["F" * 12 + "WI" * 12, "FFFWI" * 4], None),  # the steps differ
        (["FFWI" * 2], None),
    ],
)
def test_the_order_of_forwards_and_backwards_tells_whether_all_forwards_come_first(
    orders: list[str], first: bool | None
) -> None:
    assert runs_forwards_first(map(products, orders)) is first


@pytest.mark.parametrize(
    ("schedule", "splits", "first", "fault"),
    [
        ("1f1b", {0: False, 1: True}, {}, "computes the gradients of weights apart"),
        ("zb-h1", {0: False, 1: False}, {}, "computes the gradients of weights together"),
        ("zb-h1", {0: False, 1: True}, {0: False}, ""),
        ("zb-h1", {0: False}, {}, ""),  # the first rank need not split
        ("1f1b", {0: False, 1: False}, {0: False, 1: False}, ""),
        ("1f1b", {}, {0: True}, "rank 0 runs all forwards before the first backward"),
        ("afab", {}, {1: False}, "rank 1 runs backwards before its last forward"),
        ("afab plan.recompute=full", {}, {1: False}, ""),  # which runs forwards again
        ("afab", {}, {0: True, 1: True}, ""),
        ("1f1b batch.global=4", {}, {0: True, 1: False}, ""),  # two microbatches: all forwards of rank 0 come first
    ],
)
def test_a_trace_of_another_schedule_is_refused(
    schedule: str, splits: dict[int, bool], first: dict[int, bool], fault: str
) -> None:
    run = load("configs/runs/this-machine/pipeline-1f1b.yml", f"plan.schedule={schedule}".split())
    predicted = predicted_step(estimate(run))

    def check() -> None:
        headings = dict(predicted.headings)
        require_same_step(
            run, predicted, calls={}, headings=headings, sent=[], splits=splits, forwards_first=first, logged_us=None
        )

    if fault:
        with pytest.raises(UserError, match=rf"{fault}.*plan\.schedule = {re.escape(schedule)} does not"):
            check()
    else:
        check()


@pytest.mark.parametrize(("apart_s", "refused"), [(1, False), (600, True)])
def test_ranks_that_were_not_recorded_together_are_refused(apart_s: int, refused: bool, tmp_path: Path) -> None:
    events = step_events(prediction())
    for rank in range(2):
        file = write(tmp_path, [events]) / "rank0.json"
        content = json.loads(file.read_text()) | {"baseTimeNanoseconds": rank * apart_s * 10**9}
        content["distributedInfo"]["rank"] = rank
        (tmp_path / f"of{rank}.json").write_text(json.dumps(content))
    for written in tmp_path.glob("rank*"):
        written.unlink()
    if refused:
        with pytest.raises(UserError, match=r"are of steps 10\.0 min apart; keep those of the same steps"):
            read_measured(tmp_path, load(CONFIG))
    else:
        assert len(read_measured(tmp_path, load(CONFIG)).ranks) == 2
