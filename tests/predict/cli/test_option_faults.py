"""Faults of a command's options: all of them are told at once."""

from __future__ import annotations

import pytest

from predict.cli import main
from sampling.files.places import CONFIGS, DATA_VARIABLE, SHIPPED_DATA

DEMO = str(CONFIGS / "runs" / "demo.yml")
GRPO = str(CONFIGS / "rl" / "this-machine" / "grpo.yml")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            f"days {DEMO} --tokens 2X --price 2.5 --goodput 1.5 --set plan.tpp=2",
            ("--tokens: '2X'", "--price: '2.5'", "--goodput: 1.5", "plan.tpp"),
        ),
        (
            f"sweep {DEMO} --vary plan.tpp=2 --vary batch.micro=a..b --output t.txt",
            ("--vary: 'plan.tpp'", "--vary batch.micro: 'a..b'", "--output: t.txt"),
        ),
        (
            "search --model llama3-8b --gpus 16xh10 --top 0 --jobs -1 --max-memory 2 --min-interval-overlap 2 --tokens 2X --price 3 "
            "--pareto a.txt --report b.txt --measure 0",
            (
                *("--top: 0", "--jobs: -1", "--max-memory: 2", "--min-interval-overlap: 2", "--tokens: '2X'"),
                *("--price: '3'", "--pareto: a.txt", "--report: b.txt", "--measure: 0", "--gpus"),
            ),
        ),
        (f"search {GRPO} --top 0 --jobs 2", ("--top: 0", "--jobs: does not go with an RL config")),
        (
            f"memory {DEMO} --mode simulate --load-benchmark b.json --safety-margin 2 --benchmark-gpus 0 --timeline t.txt",
            ("--mode: simulate", "--safety-margin: 2", "--benchmark-gpus: 0", "--timeline: t.txt"),
        ),
        (
            f"memory {GRPO} --safety-margin 0.5 --benchmark-gpus 2",
            ("--safety-margin, --benchmark-gpus: does not go with an RL",),
        ),
        (f"validate {DEMO} --rounds 0 --truth t.csv", ("--truth: does not go with", "--rounds: 0")),
        (
            f"what-if {DEMO} --trace t --kernel gemm --kernel a=-1 --link-speed 0",
            ("'gemm'", "'a=-1'", "--link-speed: 0"),
        ),
        (f"report {DEMO} -o page.txt --price 2.5", ("--output: page.txt", "--price: '2.5'")),
        (f"trace {DEMO} -o /nowhere/step.txt --every-gpu", ("unknown kind", "no directory /nowhere", "--every-gpu")),
        (f"measure {GRPO} --implementation transformers --trace t", ("--implementation transformers", "--trace")),
        (f"benchmark {DEMO} --gpus 0 --output /nowhere/b.json", ("--gpus: 0", "--output: /nowhere/b.json")),
        (
            "schedule --pp 0 --schedule 1f2b,gpip --forward -1 --p2p -1 --order o.txt --plot p.txt --set plan.tp=2",
            (
                *("--pp: 0", "1f2b", "gpip", "--microbatches: missing", "--forward: -1", "--p2p: -1"),
                *("--order: o.txt", "--plot: p.txt", "--set changes a config"),
            ),
        ),
        (f"schedule {DEMO} --pp 2 --memory-limit 0", ("--memory-limit: 0", "--pp: a CONFIG has its own")),
        (
            "one-batch --model llama3-8b --batch 0 --save-config /nowhere/c.yml",
            ("--gpus: missing", "--batch: 0", "/nowhere"),
        ),
    ],
)
def test_all_faults_of_the_options_are_told_at_once(
    command: str, told: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert [part for part in told if part not in error] == []
    assert len(error.splitlines()) >= len(told)


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            "measure --steps x --traec t --implementation torc --seps 3",
            (
                "predict measure: error: argument --steps: invalid int value: 'x'",
                "argument --implementation: invalid choice: 'torc' (choose from 'torch', 'transformers'); did you mean 'torch'?",
                "unrecognized arguments: --traec; did you mean '--trace'?",
                "unrecognized arguments: --seps 3; did you mean '--steps'?",
            ),
        ),
        (
            "days --tokens -2T --goodput x",
            (
                "predict days: error: --tokens: -2T is below 0; give a value above 0",
                "argument --goodput: invalid float value: 'x'",
                "the following arguments are required: CONFIG",
            ),
        ),
        (
            "measure --steps",
            (
                "predict measure: error: argument --steps: expected one argument",
                "the following arguments are required: CONFIG",
            ),
        ),
    ],
)
def test_a_command_line_is_read_to_its_end(
    command: str, lines: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(command.split())
    assert stopped.value.code == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("usage: predict ")
    assert tuple(told[-len(lines) :]) == lines


BELOW_A_FILE, BELOW_PROC = f"{DEMO}/x", "/proc/x"
"""Places where nobody, not even root, makes a file."""
SERVING = str(CONFIGS / "serving" / "llama3-8b-h100.yml")


@pytest.mark.parametrize("place", [BELOW_A_FILE, BELOW_PROC])
@pytest.mark.parametrize(
    ("command", "suffix"),
    [
        (f"measure {DEMO} --trace", ""),
        (f"sweep {DEMO} --vary batch.micro=1,2 --output", ".csv"),
        (f"sweep {SERVING} --vary placement.tp=1,2 --output", ".parquet"),
        (f"sweep {GRPO} --vary rl.n=2,4 --output", ".csv"),
        (f"calibrate {DEMO} --measured 1s --output", ".yml"),
        (f"validate published --calibrate-on {DEMO} --calibration", ".yml"),
        (f"record {DEMO} --log 1s --data", ""),
        (f"report {DEMO} -o", ".html"),
        (f"plot timeline {DEMO} -o", ".svg"),
        (f"trace {DEMO} -o", ".json"),
        (f"trace {DEMO} --format chakra -o", ""),
        (f"export {DEMO} --to nemo --output", ""),
        (f"calls {DEMO} --output", ".json"),
        (f"benchmark {DEMO} --gpus 1 --output", ".json"),
        (f"memory {DEMO} --timeline", ".svg"),
        (f"memory {DEMO} --save-benchmark", ".json"),
        (f"schedule {DEMO} --order", ".csv"),
        (f"schedule {DEMO} --trace", ".json"),
        (f"search {DEMO} --save", ".json"),
        (f"search {DEMO} --write", ""),
        (f"search {DEMO} --pareto", ".csv"),
        (f"search {DEMO} --report", ".html"),
        (f"serving {SERVING} --sweep rate=1,2 -o", ".svg"),
        (f"serving-fit {DEMO} --config {SERVING} --output", ".json"),
        ("one-batch --model llama3-8b --gpus 8xh100 --save-config", ".yml"),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_the_work(
    command: str, suffix: str, place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(SHIPPED_DATA))  # --data sets it for what follows
    code = main([*command.split(), place + suffix])
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert f"{place}{suffix}" in told.err
    assert "cannot be written" in told.err
    assert ".tmp" not in told.err
