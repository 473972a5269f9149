"""Logs of modded-nanogpt: the mean of a stretch of steps, and the sizes in the code that the log carries."""

from pathlib import Path

from tests.predict.measured_runs.logs.log_text import log, steps_us


def test_modded_nanogpt_takes_the_mean_of_a_stretch(tmp_path: Path) -> None:
    """Its steps alternate, so that no single one is the mean."""
    times_ms = [0, 59, 145, 204, 290, 349, 435]
    lines = [
        f"step:{step}/100 train_time:{at}ms step_avg:{at / max(1, step):.2f}ms" for step, at in enumerate(times_ms)
    ]
    evaluated = "step:6/100 val_loss:4.2 train_time:436ms step_avg:72.67ms"
    read = log(tmp_path, "\n".join(["import torch", *lines, evaluated]))
    assert steps_us(read) == [(2, 72_500), (4, 72_500), (6, 72_500)]
    seconds = "step:125/250 val_loss:6.1 train_time:20.0s step_avg:160.00ms\nstep:250/250 val_loss:5.1 train_time:40.0s step_avg:160.00ms"
    assert steps_us(log(tmp_path, seconds)) == [(250, 160_000)]


CODE = """\
    batch_size : int = 8*60 # batch size, in sequences, across all devices
    device_batch_size : int = 12 # batch size, in sequences, per device
    sequence_length : int = 1024
num_vocab = 50304
model = GPT(GPTConfig(vocab_size=num_vocab, n_layer=52, n_head=12, n_embd=1536))
model = torch.compile(model)
optimizer = Muon(model.parameters())
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:3B:00.0 Off |                    0 |
step:0/10 train_time:0ms step_avg:0.00ms
step:2/10 train_time:3440ms step_avg:1720.00ms
"""


def test_modded_nanogpt_carries_its_own_code(tmp_path: Path) -> None:
    settings = dict(log(tmp_path, CODE).stated.settings)
    model = settings.pop("model")
    assert (model["num_hidden_layers"], model["hidden_size"], model["num_attention_heads"]) == (52, 1536, 12)
    assert (model["intermediate_size"], model["vocab_size"]) == (6144, 50304)
    assert settings["cluster.hardware"] == "NVIDIA H100 80GB HBM3" and settings["cluster.gpus_per_node"] == 2
    assert (settings["batch.global"], settings["batch.micro"], settings["batch.seq_len"]) == (480, 12, 1024)
    assert settings["execution.framework"] == "nanochat"


def test_a_power_in_the_code_is_no_product(tmp_path: Path) -> None:
    settings = dict(
        log(tmp_path, CODE.replace("sequence_length : int = 1024", "sequence_length : int = 2**10")).stated.settings
    )
    assert "batch.seq_len" not in settings
