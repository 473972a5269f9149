"""Logs of training frameworks: each format read, the steady step, and what is refused."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from predict import load
from predict.measured_runs.logs import read_log
from predict.measured_runs.measured_step import measured_step
from predict.measured_runs.steady_state import LoggedStep, steady
from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from tests.predict.measured_runs.log_lines import megatron, pipeline, seconds, torchtitan

CONFIG = "configs/runs/llama3-70b-64xh100.yml"
"""128 sequences of 8,192 tokens on 64 GPUs: 16,384 tokens per GPU, about 4.9e17 FLOPs."""


def run() -> TrainingRun:
    return load(CONFIG)


def test_the_trainers_bar_and_its_summary(tmp_path: Path) -> None:
    bar = [
        f"  {n}%|█▌    | {n}/100 [{(n * 15 + 60) // 60:02d}:{(n * 15) % 60:02d}<99:00, 15.02s/it]" for n in range(101)
    ]
    evaluation = [f" {n}%|█ | {n}/10 [00:0{n % 10}<00:09,  1.00it/s]" for n in range(11)]
    summary = "{'train_runtime': '1600.0', 'train_samples_per_second': '8.0', 'train_steps_per_second': '0.0625', 'epoch': '1'}"
    path = tmp_path / "trainer.log"
    path.write_text(
        "\r".join([*bar[:50], "\n{'loss': 2.5, 'learning_rate': 5e-05}\n", *evaluation, *bar[50:]]) + f"\n{summary}\n"
    )
    assert read_log(path).framework == "transformers Trainer"
    step = measured_step(str(path), run())
    assert step.step_us == pytest.approx(15e6, rel=0.01)
    path.write_text(summary.replace("'8.0'", "'16.0'"))
    with pytest.raises(UserError, match="make 256 sequences per step, the config 128"):
        measured_step(str(path), run())
    path.write_text(summary)
    assert measured_step(str(path), run()).step_us == pytest.approx(16e6)
    assert "one line states a time" in measured_step(str(path), run()).source


def test_ranks_starts_and_memory(tmp_path: Path) -> None:
    """Lines of other ranks do not count twice; a restarted run counts from its last start; memory is the largest of any rank."""
    memory = "[Rank {}] (after 2 iterations) memory (MB) | allocated: 1.0 | max allocated: {} | reserved: 3.0 | max reserved: 3.0"
    first = [f"{rank}: {megatron(step, 20.0)}" for step in range(1, 6) for rank in (0, 1)]
    again = [f"{rank}: {megatron(step, seconds(step))}" for step in range(3, 21) for rank in (0, 1)]
    path = tmp_path / "train.log"
    path.write_text("\n".join([*first, "0: " + memory.format(0, 40960), "1: " + memory.format(1, 51200), *again]))
    step = measured_step(str(path), run())
    assert step.step_us == pytest.approx(15e6, rel=0.002)
    assert step.peak_bytes == 50 * 2**30
    assert "8 of 18 lines, the last of 2 starts" in step.source
    assert step.date == "2026-03-12T10:20:00"


def test_ranks_without_marks_tell_each_step_once(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    ranks = [torchtitan(step, 15.0 + 0.01 * rank).replace("[rank0]:", "") for step in range(1, 21) for rank in range(8)]
    path.write_text("\n".join(ranks))
    assert len(read_log(path).steps) == 20


def test_times_of_day_are_no_ranks(tmp_path: Path) -> None:
    hours = [f"{9 + step // 8:02d}:{step:02d}:33 {megatron(step, seconds(step))}" for step in range(1, 21)]
    path = tmp_path / "train.log"
    for lines in (hours, [f"[{line[:8]}]{line[8:]}" for line in hours]):
        path.write_text("\n".join(lines))
        assert len(read_log(path).steps) == 20


def test_a_measurement_of_another_run_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    path, content = tmp_path / "measured.json", {"run": run().name, "step_time_us": {"median": 14e6}}
    path.write_text(json.dumps(content))
    assert measured_step(str(path), run()).step_us == 14e6
    others = {
        "measured with the config demo": {"run": "demo"},
        "its steps have 14,000 tokens, the config's 1,048,576": {"tokens_per_s": 1e3},
        "p10 20.0 s, median 14.0 s and p90 14.0 s, which cannot be": {"step_time_us": {"median": 14e6, "p10": 2e7}},
        "its batch.seq_len is 96, the config's 8192": {"settings": {"batch.seq_len": "96"}},
    }
    for fault, fields in others.items():
        path.write_text(json.dumps(content | fields))
        with pytest.raises(UserError, match=fault):
            measured_step(str(path), run())
    for missing in ("../nope.log", "2026/train.log"):
        with pytest.raises(UserError) as error:
            measured_step(missing, run())
        assert "is not a time" not in str(error.value)


@pytest.mark.parametrize(("count", "kept"), [(1, [1]), (3, [2, 3]), (4, [3, 4]), (10, [6, 7, 8, 9, 10])])
def test_warm_up_is_left_out(count: int, kept: list[int]) -> None:
    steps = [LoggedStep(step=step, time_us=1.0) for step in range(1, count + 1)]
    assert [each.step for each in steady(steps)] == kept


def of(line: Callable[[int, float], str], old: str, new: str) -> Callable[[int, float], str]:
    return lambda step, s: line(step, s).replace(old, new)


REFUSED = {
    "milliseconds that are seconds": (
        lambda step, s: megatron(step, s / 1e3).replace(f"{7500e3 / s:.1f}", f"{7500 / s:.1f}"),
        "a thousandth of that: check the unit",
    ),
    "another model's FLOPs": (
        lambda step, s: megatron(step, s).replace(f"{7500 / s:.1f}", f"{900 / s:.1f}"),
        "FLOPs per step, the config's model",
    ),
    "tokens of another model": (
        lambda step, s: torchtitan(step, s / 8.7).replace(f"{7500 * 8.7 / s:.2f}", f"{7500 / s:.2f}"),
        "FLOPs per step, the config's model",
    ),
    "another batch": (
        of(megatron, "batch size:   128", "batch size:   512"),
        "its batch.global is 512, the config's 128",
    ),
    "a rate of another batch": (
        lambda step, s: pipeline(step, s).replace(f"{128 / s:.3f}", f"{512 / s:.3f}"),
        "make 512 sequences per step, the config 128",
    ),
}


def of_nan(step: int, s: float) -> str:
    return megatron(step, s).replace("nan iterations:   0", "nan iterations:   1")


UNSTEADY: dict[str, tuple[Sequence[str], str]] = {
    "empty": ([], "is empty; give the log"),
    "two runs at once": ([megatron(step, s) for step in range(1, 21) for s in (15.0, 8.0)], "out of order at 20 of 40"),
    "warm-up alone": (
        [megatron(step, s) for step, s in enumerate((90.0, 40.0, 22.0, 18.0, 15.0), 1)],
        "its last 2 steps still get faster, by 17 %",
    ),
    "nothing but NaN": ([of_nan(step, 15.0) for step in range(1, 21)], "in each of its last 10 steps the optimizer"),
}


FAULTY = {
    name: ([line(step, seconds(step)) for step in range(1, 21)], fault) for name, (line, fault) in REFUSED.items()
}


@pytest.mark.parametrize(("lines", "fault"), [*FAULTY.values(), *UNSTEADY.values()], ids=[*FAULTY, *UNSTEADY])
def test_a_log_of_another_run_or_without_a_steady_step_is_refused(
    lines: Sequence[str], fault: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"^--log: .*train.log: ") as error:
        measured_step(str(path), run(), option="--log")
    assert fault in str(error.value)


@pytest.mark.parametrize(
    "lines",
    [
        [megatron(step, 15.0) for step in range(1, 15)] + [of_nan(step, 9.0) for step in range(15, 21)],
        [megatron(step, 60.0).replace("size:   128", "size:   512") for step in range(1, 41)]
        + [megatron(step, 15.0) for step in range(41, 60)],
    ],
    ids=["NaN from some step on", "another run's lines before"],
)
def test_lines_of_other_steps_are_left_out(lines: Sequence[str], tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines))
    assert measured_step(str(path), run()).step_us == pytest.approx(15e6)


def test_an_unknown_log_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("epoch 3: all is well\n")
    with pytest.raises(
        UserError, match=r"train.log: no line states a step's time as .*MLPerf.*nanochat.*verl"
    ) as error:
        read_log(path)
    assert "\n" not in str(error.value)
