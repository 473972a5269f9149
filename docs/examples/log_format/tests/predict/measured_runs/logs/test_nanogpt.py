"""Logs of nanoGPT: a time and a step's number from a line, nothing from any other."""

from __future__ import annotations

from predict.measured_runs.logs import formats
from predict.measured_runs.steady_state import LoggedStep

LOG = """\
step 0: train loss 10.9899, val loss 10.9895
iter 0: loss 10.9886, time 45231.11ms, mfu -100.00%
iter 10: loss 9.4153, time 412.35ms, mfu 38.12%
"""


def test_iterations_are_read() -> None:
    nanogpt = formats()["nanoGPT"]
    assert list(nanogpt.read(LOG.splitlines())) == [
        LoggedStep(step=1, time_us=45_231_110.0),
        LoggedStep(step=11, time_us=412_350.0),
    ]
