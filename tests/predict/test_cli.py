"""The command as its user runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from predict import one_batch
from predict.cli import main
from predict.memory.advice import SmallestCluster
from predict.reports.memory import headlines, smallest_in_words
from predict.run.training_run import Replica
from predict.serving.coefficients import FOLDER
from sampling.extras import EXTRAS
from sampling.files.places import CONFIGS, DATA_VARIABLE, SHIPPED_DATA
from tests.predict.command import Command

ROOT = Path(__file__).resolve().parents[2]
DEMO = str(ROOT / "configs" / "runs" / "demo.yml")


def test_predicting_loads_no_library_of_an_extra_and_leaves_colour_out_of_pipes() -> None:
    program = (
        "import sys; from predict.cli import main; main(['one-batch', sys.argv[1]]);"
        "print([name for name in sys.argv[2].split() if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, DEMO, " ".join(EXTRAS)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "\x1b[" not in done.stdout


def test_a_closed_pipe_is_no_error() -> None:
    piped = f"{sys.executable} -m predict one-batch {DEMO} --json | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", piped], capture_output=True, text=True, check=False)
    assert done.stderr == ""


# Faults of a command's options: all of them are reported at once.

GRPO = str(CONFIGS / "rl" / "this-machine" / "grpo.yml")


BELOW_A_FILE, BELOW_PROC = f"{DEMO}/x", "/proc/x"
"""Places where nobody, not even root, makes a file."""
SERVING = str(CONFIGS / "serving" / "llama3-8b-h100.yml")
TOML = str(ROOT / "docs" / "examples" / "other_tools" / "llama3_70b.toml")
COEFFICIENTS = str(FOLDER / "kernels.json")


@pytest.mark.parametrize("place", [BELOW_A_FILE, BELOW_PROC])
@pytest.mark.parametrize(
    ("words", "suffix"),
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
def test_a_place_that_cannot_be_written_is_reported_before_the_work(
    words: str, suffix: str, place: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(SHIPPED_DATA))  # --data sets it for what follows
    answer = command.run(*words.split(), place + suffix, code=2)
    assert answer.out == ""
    assert f"{place}{suffix}" in answer.err
    assert "cannot be written" in answer.err
    assert ".tmp" not in answer.err


# A plan that does not fit is said to not fit before anything else, and --check gives 4, in every command that predicts.

LARGE = str(CONFIGS / "runs" / "llama3-70b-64xh100.yml")
HEAVY = ("--set", "plan.cp=1", "--set", "plan.dp=4")


def test_files_of_a_schedule_that_does_not_fit_are_written(tmp_path: Path, command: Command) -> None:
    order = tmp_path / "order.csv"
    assert "wrote" in command.notes("schedule", LARGE, *HEAVY, "--order", str(order))
    assert order.is_file()


def test_the_smallest_cluster_of_the_answer_is_not_one_that_does_not_fit(command: Command) -> None:
    text = command.text("one-batch", LARGE, *HEAVY)
    prediction = one_batch(LARGE, [setting for setting in HEAVY if setting != "--set"])
    smallest = prediction.smallest_cluster
    assert not prediction.feasible
    assert smallest is not None
    assert smallest.gpus > prediction.run.cluster.world_size > prediction.one_replica.gpus
    assert (
        f"smallest    {smallest.gpus} GPUs on {smallest.nodes} nodes for this tp, pp and cp: dp {smallest.dp}, fewer replicas do not"
        in text
    )
    assert "fits with   " in text and "(frees " in text


def test_the_smallest_cluster_of_a_mixture_is_one_copy_of_its_experts() -> None:
    replica = Replica(gpus=512, dp=32, folded=True, unfolded_gpus=1024)
    said = smallest_in_words(SmallestCluster(gpus=512, nodes=64, dp=32, verdict="FITS"), replica)
    assert said == (
        "512 GPUs on 64 nodes: one copy of all experts, over 32 × tp · pp · cp (1024 GPUs with ranks of their own)"
    )


def test_a_model_without_its_images_says_so(command: Command) -> None:
    note = "images      none: the text alone; --set vision.images=N"
    asked = ("one-batch", "--model", "qwen2.5-vl-7b", "--gpus", "8xh100")
    assert note in command.text(*asked) and note not in command.text("one-batch", LARGE)


def test_names_in_the_headline_are_text() -> None:
    assert headlines(["[red]x[/] needs more", ""]) == ["[bold red]\\[red]x\\[/] needs more[/]"]


def test_of_a_key_that_is_set_twice_the_last_value_counts_and_stderr_says_so(command: Command) -> None:
    eight, sixteen = ("--set", "batch.global=8"), ("--set", "batch.global=16")
    twice = command.run("one-batch", DEMO, *eight, *sixteen)
    assert "--set batch.global: 16 replaces 8, given before" in twice.err
    assert twice.out == command.text("one-batch", DEMO, *sixteen)
    assert "replaces" not in command.notes("one-batch", DEMO, *eight, *eight)


def test_a_value_that_is_not_a_number_is_reported_with_its_option(command: Command) -> None:
    with pytest.raises(SystemExit) as ended:
        command.run("one-batch", DEMO, "--target-nodes", "two", "--width", "80px")
    said = command.capsys.readouterr().err
    assert ended.value.code == 2
    assert "--target-nodes: 'two' is not a whole number; give a whole number, without a unit" in said
    assert "--width: '80px' is not a whole number" in said


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (f"one-batch {DEMO} --tokens 1T", "has no option --tokens, which is of search, days, job, report and explore"),
        ("one-bach", "COMMAND: 'one-bach' is not a command; did you mean 'one-batch'? `predict --help` lists them"),
        ("", "COMMAND: missing; write `predict COMMAND`; `predict --help` lists them"),
    ],
)
def test_a_word_of_another_command_is_named_as_such(words: str, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert fault in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (f"explain {DEMO} --trace {{empty}}", "error: --trace: {empty}: is empty"),
        (f"what-if {DEMO} --trace {{empty}}", "error: --trace: {empty}: is empty"),
        (f"diagnose {DEMO} --trace {{empty}}", "error: --trace: {empty}: is empty"),
        (f"explain {DEMO} --trace nowhere", "error: --trace: nowhere: there is no such file or folder"),
        (f"serving {SERVING} --coefficients {{empty}}", "error: --coefficients: {empty}: is empty"),
        (f"job {DEMO} --tokens 1T --offers {{empty}}", "error: --offers: {empty}: is empty"),
        ("calibrate --forget {empty}", "error: --forget: {empty}: "),
        (f"calls {DEMO} --hardware h1000", "error: --hardware: hardware 'h1000' is not in the catalogue"),
        (f"search {DEMO} --set plan=3", "error: --set: plan: 3 is not a mapping of keys"),
        (f"search {DEMO} --set batch=3", "error: --set: batch: 3 is not a mapping of keys"),
        ("sweep nowhere.yml --vary batch.micro=1", "error: nowhere.yml: there is no such file"),
        ("sweep nowhere.yml --vary placement.tp=1,2", "error: nowhere.yml: there is no such file"),
        (f"sweep {DEMO} --vary batch.micro=1,2 --set plan.tp=x", "error: --set: plan.tp: 'x' is not a whole number"),
        (f"sweep {DEMO} --vary plan.tp=3", "error: --vary: the only combination, plan.tp=3, cannot run:"),
        (f"serving {SERVING} --set plan.tp=2", "error: --set: plan: unknown key"),
        (f"import-config {TOML} --set novalue", f"error: {TOML}: --set: 'novalue' is not a setting"),
        (f"import-config {TOML} --set plan.foo=1 --set plan.tp=x", "--set: plan.foo: unknown key"),
        (
            f"one-batch {DEMO} --calibration {COEFFICIENTS}",
            f"error: --calibration: {COEFFICIENTS}: is a file of `predict serving-fit`, which --coefficients takes",
        ),
    ],
)
def test_a_fault_is_blamed_on_the_option_or_the_file_that_has_it(
    words: str, fault: str, command: Command, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text("")
    assert fault.format(empty=empty) in command.refused(*words.format(empty=empty).split())
