"""Laws of every format of log that is found: its steady step is read, ranks and starts do not count twice, a shuffled log is refused."""

import random
from pathlib import Path

import pytest

from predict import load
from predict.measured_runs.logs import formats, read_log
from predict.measured_runs.measured_step import measured_step
from sampling.errors import UserError
from tests.laws.project_copy import ROOT
from tests.predict.measured_runs.log_lines import FORMATS, LogFormat, written

CONFIG = "configs/runs/llama3-70b-64xh100.yml"
"""128 sequences of 8,192 tokens on 64 GPUs: 16,384 tokens per GPU, about 4.9e17 FLOPs."""


def test_every_format_has_lines_here_or_a_test_of_its_own() -> None:
    with_lines = {each.framework for each in FORMATS.values()}
    own_tests = ROOT / "tests/predict/measured_runs/logs"
    modules = {known.read.__module__.rpartition(".")[2]: framework for framework, known in formats().items()}
    untested = {module for module in modules if not (own_tests / f"test_{module}.py").exists()}
    assert [modules[module] for module in untested if modules[module] not in with_lines] == []


@pytest.mark.parametrize("each", FORMATS.values(), ids=FORMATS)
def test_a_log_gives_the_steady_step(each: LogFormat, tmp_path: Path) -> None:
    path = written(tmp_path / "train.log", each.line)
    log = read_log(path)
    assert (log.framework, len(log.steps), log.peak_bytes) == (each.framework, 20, each.peak_bytes)
    step = measured_step(str(path), load(CONFIG))
    assert step.step_us == pytest.approx(15e6, rel=0.002)
    assert step.source == f"{path} ({each.framework}, {each.lines} of 20 lines)"
    assert step.date.startswith("2026-")


@pytest.mark.parametrize("each", FORMATS.values(), ids=FORMATS)
def test_a_shuffled_log_is_refused(each: LogFormat, tmp_path: Path) -> None:
    path = written(tmp_path / "train.log", each.line, random.Random(0).sample(range(1, 21), 20))
    with pytest.raises(UserError, match=r"out of order at \d+ of 20 lines"):
        read_log(path)


@pytest.mark.parametrize("each", FORMATS.values(), ids=FORMATS)
def test_a_log_beside_whose_lines_other_programs_write_is_read_alike(each: LogFormat, tmp_path: Path) -> None:
    alone = read_log(written(tmp_path / "train.log", each.line))
    among = read_log(
        written(tmp_path / "noisy.log", lambda step, s: f"WARNING: step {step}: retry\n{each.line(step, s)}\n\n[1/2]")
    )
    assert [(step.step, step.time_us) for step in among.steps] == [(step.step, step.time_us) for step in alone.steps]
