"""The README's daily commands in a fresh copy on another CPU than the shipped rows': each ends well and says whose rows it rests on."""

import json
import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from sampling.store.profiles import OWN, SHIPPED
from tests.docs.pages import ROOT, commands
from tests.regressors.few_trees import ETA, ROUNDS, TREES

CPU = "Abacus family 1 model 2"
CPUINFO = "model name : Abacus\ncpu family : 1\nmodel : 2\n"
SHORTER = {"BUDGET=300": "BUDGET=3"}
TABLES = ("gradient_scale", "send_recv")
"""Rows of a session as long as the README's: on a busy machine a few seconds may not leave a good one."""
SMALL = ("batch.global=4", "batch.seq_len=32", "model.num_hidden_layers=2", "model.vocab_size=2048")
QUICKER = {
    "predict validate": ["--rounds", "1", *(word for setting in SMALL for word in ("--set", setting))],
    "predict search": ["--set", "plan.pp=4", "--set", "plan.cp=1"],
}
SMALLER = {
    "regressors/models/capacity.py": {
        "trees=60": f"trees={TREES}",
        "boosting_rounds=120, eta=0.1": f"boosting_rounds={ROUNDS}, eta={ETA}",
    },
    "regressors/fitting/settings_search.py": {"FEWEST_SHAPES = 5": "FEWEST_SHAPES = 10_000"},
    "predict/validation/here.py": {"REPEATS = 2": "REPEATS = 0"},
    "predict/measurement/pace.py": {"SECONDS = 4.0": "SECONDS = 0.5"},
}
"""What the copy says in its files: its time models are of a few trees, whose settings nothing searches for; what is noisy stays so."""
SERVES = "predict explore"
LIMIT_SECONDS = 300
OF_OTHER_HARDWARE = "No samples for profile 'h100-sxm"
STANDS_IN = f"No profile {OWN!r} is fitted here: the rows of {SHIPPED} stand in, taken on AMD EPYC"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, warm_python: Path) -> Path:
    """A copy of what the repository holds, installed, on a machine whose CPU nobody sampled."""
    place = tmp_path_factory.mktemp("clone")
    for name in ("sampling", "regressors", "predict", "configs"):
        # compiled files come along, lest each command compile modules and loops anew
        shutil.copytree(ROOT / name, place / name)
    for kind in ("samples", "regressors"):
        shutil.copytree(ROOT / "data" / kind / SHIPPED, place / "data" / kind / SHIPPED)
    shutil.copytree(ROOT / "data" / "published", place / "data" / "published", ignore=shutil.ignore_patterns(f"{OWN}*"))
    for name in ("Makefile", "pyproject.toml", "requirements-dev.txt", "README.md"):
        shutil.copy(ROOT / name, place / name)
    for name, changes in SMALLER.items():
        text = (place / name).read_text()
        for before, after in changes.items():
            assert before in text
            text = text.replace(before, after)
        (place / name).write_text(text)
    (place / "cpuinfo").write_text(CPUINFO)
    (place / "sitecustomize.py").write_text(
        "from pathlib import Path\n\nfrom sampling.hardware import this_device\n\n"
        f"this_device.CPUINFO = Path({str(place / 'cpuinfo')!r})\n"
    )
    (place / "out").mkdir()
    programs = place / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, program in (("python", warm_python), ("predict", f"{warm_python} -m predict")):
        (programs / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (programs / name).chmod(0o755)
    (place / ".venv" / ".ready").touch()
    return place


def environment(clone: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "STEPTIME_DATA"}
    return kept | {"PYTHONPATH": str(clone), "PATH": f"{clone / '.venv' / 'bin'}:{os.environ['PATH']}"}


def run(clone: Path, command: str) -> str:
    words = [SHORTER.get(word, word) for word in shlex.split(command)]
    words += next((more for start, more in QUICKER.items() if command.startswith(start)), [])
    done = subprocess.run(
        words, cwd=clone, env=environment(clone), capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def where_the_answer_begins(clone: Path, command: str) -> str:
    """The first line of an answer in a terminal; of one on a page, the page, whose notes its script sets under the headline."""
    if command.startswith(SERVES):
        return served_page(clone, command)
    answer = run(clone, command)
    _, _, page = command.partition(" -o ")
    return (clone / page).read_text() if page else answer.splitlines()[0]


def served_page(clone: Path, command: str) -> str:
    """The first page of a command that serves until Ctrl-C, which ends it well."""
    words = shlex.split(command)
    with subprocess.Popen(words, cwd=clone, env=environment(clone), stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        try:
            with urlopen(serving.stdout.readline().strip(), timeout=LIMIT_SECONDS) as answer:
                page = str(answer.read(), "utf-8")
        finally:
            serving.send_signal(signal.SIGINT)
        assert serving.wait(LIMIT_SECONDS) == 0, command
    return page


def test_the_daily_commands_work_and_say_whose_rows_they_rest_on(clone: Path) -> None:
    daily = [
        command
        for command in commands(ROOT / "README.md")
        if command.startswith(("predict ", "make sample", "make train"))
    ]
    predicting = [command for command in daily if command.startswith("predict ")]
    assert len(predicting) >= 5
    for command in predicting:
        note = OF_OTHER_HARDWARE if "h100" in command else STANDS_IN
        assert note in where_the_answer_begins(clone, command), command
    sample, train = (command for command in daily if command.startswith("make"))
    run(clone, sample)
    own, shipped = clone / "data" / "samples" / OWN, clone / "data" / "samples" / SHIPPED
    assert json.loads((own / "manifest.json").read_text())["device"]["name"] == CPU
    for name in TABLES:
        shutil.copy(shipped / f"{name}.parquet", own)
    run(clone, train)
    answer = json.loads(run(clone, "predict one-batch configs/runs/demo.yml --json"))
    assert answer["provenance"]["samples"]["provenance"]["device"]["name"] == CPU
    assert answer["provenance"]["notes"] == []
    assert answer["sources"]["transferred"] == 0 < answer["sources"]["measured"]
