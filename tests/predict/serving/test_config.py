"""Serving configs: positions of a model and pools; what is said of wrong settings is among the kept answers."""

from pathlib import Path
from typing import Any

import pytest

from predict.huggingface.config_json import read_model
from predict.serving import Chunk, StepBatch, step_time
from predict.serving.config import load_serving
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS

CONFIG = CONFIGS / "serving" / "llama3-8b-h100.yml"
"""Its model has 8,192 positions."""


def test_a_request_of_a_file_beyond_the_positions_is_named(tmp_path: Path) -> None:
    (tmp_path / "requests.csv").write_text("arrival_s,prompt,output\n5,100,10\n9,100,10\n1,8000,300\n")
    with pytest.raises(ConfigError, match=r"load\.file: request 3 has 8,000 tokens of prompt and 300 of answer"):
        load_serving(CONFIG, [f"load.file={tmp_path / 'requests.csv'}"])


@pytest.mark.parametrize(
    "batch",
    [StepBatch(decodes=(100, 8192)), StepBatch(chunks=(Chunk(tokens=500, context=7693),)), StepBatch(decodes=(9000,))],
)
def test_a_step_beyond_the_positions_is_refused(batch: StepBatch) -> None:
    assert step_time(StepBatch(decodes=(8191,)), CONFIG, model="formula").median_us > 0
    with pytest.raises(ConfigError, match="more than the 8,192 positions of llama3-8b"):
        step_time(batch, CONFIG, model="formula")
    with pytest.raises(ConfigError, match="more than engine"):
        step_time(StepBatch(decodes=(8000,)), CONFIG, ["engine.max_model_len=8000"], model="formula")


@pytest.mark.parametrize(
    ("scaling", "positions"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131_072),
        ({"type": "linear", "factor": 2.0}, 81_920),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 40_960),
        (None, 40_960),
    ],
)
def test_scaled_rotary_embeddings_have_more_positions(scaling: dict[str, Any] | None, positions: int) -> None:
    keys = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    sizes = {"intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 40_960}
    spec = read_model({**keys, **sizes, "rope_scaling": scaling}, name="scaled").spec
    assert spec is not None
    assert spec.max_positions == positions


def test_a_pool_for_prompts_has_a_plan_of_its_own() -> None:
    run = load_serving(CONFIG, ["fleet.prefill_replicas=3", "fleet.prefill_tp=2", "fleet.replicas=2", "placement.tp=4"])
    assert run.prefill is not None
    assert (run.prefill.tp, run.server.tp, run.gpus) == (2, 4, 3 * 2 + 2 * 4)
    assert run.prefill.cluster.gpus_per_node == 2
