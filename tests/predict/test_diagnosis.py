"""Diagnoses: faults made up one by one are named first, sound runs are normal, and what to write is in the words of the user's tool."""

from pathlib import Path

import pytest

import predict
from sampling.errors import UserError
from sampling.files import machine_code
from sampling.files.places import CONFIGS
from sampling.number_text import signed_percent
from tests.bench.diagnosis import CASES, ONE_NODE, SOUND, Case, diagnosed, is_removed, log_of, with_values
from tests.predict.command import Command
from tests.predict.measured_runs.logs.test_vllm_server import VLLM

KEYS = {"version", "config", "fits_probability", "step_us", "measured_us", "normal_probability", "causes", "changes"}
OF_A_CHANGE = {"set", "gain", "low", "high", "fits_probability", "in_their_words"}
SCRIPT = """\
torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py \\
  --tensor-model-parallel-size 2 --sequence-parallel --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \\
  --group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 --swiglu --normalization RMSNorm \\
  --position-embedding-type rope --rotary-base 500000 --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256 \\
  --micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \\
  --attention-dropout 0 --hidden-dropout 0 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --num-workers 2
"""
TRAINER = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-5
bf16: true
gradient_checkpointing: true
fsdp: full_shard auto_wrap
max_seq_length: 4096
"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_first_suggestion_takes_the_fault_away(case: Case, tmp_path: Path) -> None:
    found = diagnosed(case, tmp_path)
    assert is_removed(case, found), [(dict(each.settings), each.gain.median) for each in found.changes]


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.name)
def test_a_sound_run_is_normal(case: Case, tmp_path: Path) -> None:
    judged = diagnosed(case, tmp_path).judgement
    assert judged is not None
    assert (judged.verdict, judged.causes) == ("normal", ())


def test_advice_and_published_runs_read_as_sentences(command: Command) -> None:
    said = " ".join(command.text("diagnose", str(CONFIGS / "runs" / "llama3-70b-64xh100.yml"), "--log", "20s").split())
    assert " GPUs, sequences of " in said
    assert "the config leaves plan.recompute to its default, none: check what the run really uses" in said
    assert "by the step's time alone: other causes may take as long" in said


def test_a_published_run_stands_beside_its_kind_or_none_is_said_to_be_known(command: Command) -> None:
    said = command.text("diagnose", str(CONFIGS / "runs" / "deepseek-v3-1024xh100.yml"))
    assert "no run like this is known: a mixture of experts of about this size on NVIDIA H100" in " ".join(said.split())


def test_a_loaded_cpu_is_the_first_cause_where_the_config_states_its_settings(command: Command) -> None:
    demo = str(CONFIGS / "runs" / "demo.yml")
    predicted_us = command.json("diagnose", demo)["step_us"]["median"]
    found = command.json("diagnose", demo, "--log", f"{2 * predicted_us / 1e3}ms")
    assert found["causes"][0]["cause"] == "slower_machine"
    assert "This machine at 50.0 % of its usual pace" in found["causes"][0]["text"]


def test_a_step_below_the_interval_on_a_cpu_may_be_of_a_faster_machine(command: Command) -> None:
    said = command.text("diagnose", str(CONFIGS / "runs" / "demo.yml"), "--log", "250ms")
    assert "or this machine is faster than when its rows were taken" in " ".join(said.split())


def test_a_slow_step_that_nothing_explains_is_said_to_be_so(command: Command) -> None:
    def said(time: str) -> str:
        return " ".join(
            command.text("diagnose", str(CONFIGS / "runs" / "llama3-70b-64xh100.yml"), "--log", time).split()
        )

    assert "none of the causes that are tried explains the step; a --trace shows where its time goes" in said("2min")
    assert "about a thousand times the prediction: the unit of the time is probably wrong" in said("240min")


def test_the_json_has_the_keys_that_programs_read(command: Command) -> None:
    found = command.json("diagnose", str(CONFIGS / "runs" / "demo.yml"), "--log", "735ms")
    assert found.keys() >= KEYS
    assert found["step_us"].keys() == {"median", "low", "high"}
    assert found["measured_us"] == 735_000
    assert 0 < found["normal_probability"] <= 1
    assert found["config"]["model"] == "demo-llama"
    assert all(each.keys() >= OF_A_CHANGE and each["low"] <= each["gain"] <= each["high"] for each in found["changes"])
    assert found["changes"], "a larger microbatch helps on a CPU"


def test_a_large_run_needs_no_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    account = machine_code._Account()
    monkeypatch.setattr(machine_code, "ACCOUNT", account)
    found = predict.diagnose(CONFIGS / "runs" / "llama3-70b-64xh100.yml", log="12s")
    assert found.judgement is not None
    assert found.judgement.verdict == "faster"
    assert found.changes
    assert not account.paid, "numba takes a second to load, more than the predictions of all neighbours"


def test_a_change_is_the_prediction_of_the_run_with_it() -> None:
    config = with_values(ONE_NODE, {"plan.recompute": "full"})
    first = predict.diagnose(config).changes[0]
    settings = [f"{path}={value}" for path, value in first.settings.items()]
    changed = predict.one_batch(config, settings)
    assert first.gain.median == pytest.approx(1 - changed.median_us / predict.one_batch(config).median_us)
    assert first.fits_probability == changed.memory.fits_probability
    assert first.gain.low < first.gain.median < first.gain.high


def test_megatrons_flags_are_named_as_its_script_has_them(tmp_path: Path) -> None:
    script = tmp_path / "pretrain.sh"
    script.write_text(SCRIPT)
    found = predict.diagnose(script, ["cluster.hardware=h100-sxm"])
    assert found.config["plan"]["recompute"] == "full"
    assert "without --recompute-granularity" in found.changes[0].in_their_words


def test_a_script_without_a_flag_says_what_its_tool_does_by_default(tmp_path: Path) -> None:
    script = tmp_path / "pretrain.sh"
    script.write_text(
        SCRIPT.replace("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 ", "")
    )
    found = predict.diagnose(script, ["cluster.hardware=h100-sxm"], log="9s")
    recompute = next(each for each in found.causes if each.cause == "recompute")
    assert recompute.advice == "the config or script already says so: check what the run really uses"
    assert recompute.probability < found.causes[0].probability


def test_a_trainers_keys_are_named_as_its_file_has_them(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(TRAINER)
    found = predict.diagnose(file, ["cluster.hardware=h100-sxm", "cluster.nodes=1"])
    words = [line for each in found.changes for line in each.in_their_words]
    assert "gradient_checkpointing: false" in words, words
    assert not any("no key of" in line for line in words), words


def test_what_does_not_fit_is_answered_by_what_does() -> None:
    config = with_values(ONE_NODE, {"plan": {"dp": 8}, "batch.micro": 4})
    found = predict.diagnose(config)
    assert found.prediction.memory.fits_probability < 0.05
    assert all(each.fits_probability >= 0.5 for each in found.changes)
    assert found.changes


def test_without_a_run_the_message_names_what_is_missing() -> None:
    with pytest.raises(UserError, match="CONFIG: missing; give the run's launch script or its config"):
        predict.diagnose()


def test_what_is_no_training_run_by_itself_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="CONFIG: missing; --log 412ms states a time alone"):
        predict.diagnose(log="412ms")
    served = tmp_path / "server.log"
    served.write_text(VLLM)
    with pytest.raises(UserError, match=r"server.log: is the log of a server \(vLLM"):
        predict.diagnose(log=str(served))


def test_keys_to_leave_out_are_refused_for_a_log(command: Command, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(log_of(SOUND[0]))
    refusal = "--accept: lr: is for files of other tools; omit it"
    with pytest.raises(UserError, match=refusal):
        predict.diagnose(log=str(log), accept=["lr"])
    assert refusal in command.refused("import-config", str(log), "--accept", "lr")


def test_a_log_in_the_place_of_a_script_is_told_where_to_go(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("iteration 10/ 100 | elapsed time per iteration (ms): 2000.0 |\n")
    with pytest.raises(UserError, match=r"give `predict diagnose --log .*train\.log`"):
        predict.diagnose(tmp_path / "train.log")


def test_more_than_the_peak_is_said_to_be_impossible(command: Command) -> None:
    said = " ".join(command.text("diagnose", str(CONFIGS / "runs" / "demo.yml"), "--log", "10us").split())
    assert "no run is above 100 % of the peak" in said


def test_a_change_of_a_config_is_written_once_and_the_error_has_the_sign_of_validate(command: Command) -> None:
    said = command.text("diagnose", str(CONFIGS / "runs" / "demo.yml"), "--log", "850ms")
    found = command.json("diagnose", str(CONFIGS / "runs" / "demo.yml"), "--log", "850ms")
    others = [change for change in found["changes"] if not change["mends"]]
    assert others
    for change in others:
        for line in change["in_their_words"]:
            key, value = line.split(": ", 1)
            assert said.count(f"{key}={value}") == 1 and line not in said
    error = found["step_us"]["median"] / 850_000 - 1
    assert f"error       {signed_percent(error)} (predicted over measured, less 1)" in said
