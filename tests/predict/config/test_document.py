"""A config of any kind as a mapping in Python, and settings over each."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import predict
from predict.kinds import KINDS, RL, SERVING, TRAINING, kind, kind_of
from sampling.errors import ConfigError

TRAINER = {
    "model": "llama3-8b",
    "cluster": {"hardware": "h100-sxm", "nodes": 1, "gpus_per_node": 8},
    "plan": {"dp": 8, "zero": 1},
    "precision": "bf16",
}
LENGTHS = {"prompt": "constant:64", "prompt_max": 64, "response": "constant:128", "response_max": 128}
MAPPINGS: Mapping[str, dict[str, Any]] = {
    TRAINING: {**TRAINER, "batch": {"global": 16, "micro": 1, "seq_len": 512}},
    RL: {**TRAINER, "rl": {"prompts": 8, "n": 4, **LENGTHS}},
    SERVING: {
        "model": "llama3-8b",
        "hardware": "H100",
        "engine": {"max_num_seqs": 64},
        "load": {"rate": 2, "prompt": 64, "output": 16, "duration_s": 30},
    },
}
FAULTS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    TRAINING: (
        ["plan.schedul=1f1b", "batch.micro=many"],
        ["--set: plan.schedul: unknown key", "'schedule'", "--set: batch.micro: 'many'"],
    ),
    RL: (["rl.prompt_mx=2", "plan.tq=2"], ["--set: rl.prompt_mx: unknown key", "'prompt_max'", "--set: plan.tq:"]),
    SERVING: (
        ["engine.max_num_seq=4", "load.rate=fast"],
        ["--set: engine.max_num_seq: unknown key", "'max_num_seqs'", "--set: load.rate: 'fast'"],
    ),
}
"""Kind → settings with a fault each, and what the error says."""


@pytest.mark.parametrize("name", KINDS)
def test_a_mapping_is_a_config_of_its_kind(name: str) -> None:
    config = MAPPINGS[name]
    before = copy.deepcopy(config)
    assert kind_of(config) == name
    run = kind(name).load(config, ["model.num_hidden_layers=4"])
    model = run.server.model if name == SERVING else run.base.model if name == RL else run.model
    assert model.layers == 4
    assert config == before


@pytest.mark.parametrize("name", KINDS)
def test_all_faults_of_a_mapping_and_its_settings_are_reported_by_their_paths(name: str) -> None:
    settings, said = FAULTS[name]
    with pytest.raises(ConfigError) as error:
        kind(name).load({**MAPPINGS[name], "modle": "llama3-8b"}, settings)
    text = str(error.value)
    assert "modle: unknown key" in text and "did you mean 'model'?" in text
    assert not [part for part in said if part not in text]
    assert all(line.startswith(("modle: ", "--set: ")) for line in text.splitlines())


def test_mappings_are_predicted() -> None:
    assert predict.one_batch(MAPPINGS[TRAINING]).median_us > 0
    assert predict.rl_step(MAPPINGS[RL]).time.median_us > 0
    assert predict.serving_answer(MAPPINGS[SERVING]).outcomes[0].latency.e2e.mean_us > 0


@pytest.mark.parametrize(
    ("name", "vary"), [(TRAINING, "batch.micro=1,2"), (RL, "rl.n=2,4"), (SERVING, "placement.tp=1,2")]
)
def test_mappings_are_swept(name: str, vary: str) -> None:
    assert [bool(row.prediction) for row in predict.sweep(MAPPINGS[name], [vary]).rows] == [True, True]
