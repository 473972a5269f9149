"""Logs of llm.c: times on the terminal, losses alone in its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sampling.errors import UserError
from tests.predict.measured_runs.logs.log_text import log, steps_us


def test_llm_c_states_times_on_the_terminal_alone(tmp_path: Path) -> None:
    line = "step   20/19560 | loss 7.5104 (+1.20z)| norm 1.20 (+0.1z)| lr 1.2e-05 | 280.32 ms | 57.9% bf16 MFU | 1870331 tok/s"
    assert steps_us(log(tmp_path, line)) == [(20, 280_320)]
    with pytest.raises(UserError, match=r"main.log: its lines are llm.c's.* without times; give") as error:
        log(tmp_path, "s:0 tel:11.0092\ns:0 trl:11.0091 lr:0.000001 norm:15.37\n", "main.log")
    assert "\n" not in str(error.value)
