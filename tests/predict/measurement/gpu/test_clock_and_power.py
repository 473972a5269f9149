"""Readings of a stubbed nvidia-smi, and of torch's library where there is none."""

from __future__ import annotations

import time
from pathlib import Path

from predict.measurement.gpu.clock_and_power import parse, watched
from sampling.hardware.readings import Reading


def unread() -> Reading:
    raise AssertionError("nvidia-smi is there")


def test_lines_are_read_and_gaps_are_told() -> None:
    printed = "1755, 612.34\n1740, [N/A]\nunsupported\n[Unknown Error], 600\n17"
    assert parse(printed) == [
        Reading(clock_mhz=1755, power_w=612.34),
        Reading(clock_mhz=1740),
        Reading(power_w=600),
    ]


def test_a_span_is_watched_by_a_process_of_its_own(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    stub = f'echo "$1" > {seen}.part; echo "1700, 600.0"; echo "1800, 620.0"; mv {seen}.part {seen}; exec sleep 60'
    with watched("GPU-1", unread, command=("bash", "-c", stub, "stub")) as readings:
        while not seen.exists():
            time.sleep(0.01)
    assert readings.mean() == Reading(clock_mhz=1750, power_w=610)
    assert seen.read_text() == "--id=GPU-1\n"


def test_without_nvidia_smi_torch_is_asked_once() -> None:
    with watched("GPU-1", lambda: Reading(clock_mhz=1300, power_w=500), command=("no-such-smi",)) as readings:
        pass
    assert readings.mean() == Reading(clock_mhz=1300, power_w=500)


def test_what_nothing_reports_is_none() -> None:
    with watched("GPU-1", Reading, command=("true",)) as readings:
        pass
    assert readings.mean() == Reading()
