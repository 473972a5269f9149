"""Requests beyond a model's positions, or beyond the engine's own limit, are refused wherever they are given."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (
            ("load.prompt=200000",),
            "load.prompt: a request has 200,000 tokens of prompt and 250 of answer, more than the 8,192 positions",
        ),
        (("load.prompt=6000", "load.spread=0.4"), "a request may have 8,400 tokens"),
        (
            ("load.prompt_lengths=uniform:100..6000", "load.output_lengths=uniform:10..3000"),
            "load: a request may have 5,999 tokens of prompt and 3,000 of answer",
        ),
        (("engine.max_model_len=512",), "more than engine.max_model_len, 512"),
        (("engine.max_model_len=9000",), "engine.max_model_len: 9,000 is more than the 8,192 positions"),
    ],
)
def test_a_load_beyond_the_positions_is_refused(settings: tuple[str, ...], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault.replace(".", r"\.")):
        load_serving(CONFIG, settings)


@pytest.mark.parametrize(
    ("setting", "other", "usual"),
    [("batch_wait_steps=4", "batch_wait_share", 0.9), ("batch_wait_share=0.5", "batch_wait_steps", 20)],
)
def test_a_wait_of_which_one_half_is_given_is_refused(setting: str, other: str, usual: float) -> None:
    said = setting.replace("=", ": ")
    with pytest.raises(ConfigError, match=f"engine.{said} without engine.{other}, so that nothing waits; give {usual}"):
        load_serving(CONFIG, [f"engine.{setting}"])
    assert load_serving(CONFIG, [f"engine.{setting}", f"engine.{other}={usual}"]).server.engine.batch_wait_steps


def test_a_rate_of_0_is_out_of_range_where_no_loop_is_closed() -> None:
    with pytest.raises(
        ConfigError, match=r"load\.rate: 0 is out of range; give a number above 0, or load\.concurrency"
    ):
        load_serving(CONFIG, ["load.rate=0"])
    assert load_serving(CONFIG, ["load.rate=0", "load.concurrency=4"]).load.concurrency == 4
    assert load_serving(CONFIG, ["load.file=''"]).load.rate == load_serving(CONFIG).load.rate


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


@pytest.mark.parametrize(
    ("settings_of", "fault"),
    [
        (["fleet.prefill_tp=2"], r"fleet\.prefill_tp: changes nothing without prefill_replicas"),
        (["fleet.prefill_replicas=1", "fleet.prefill_tp=3"], r"fleet\.prefill_tp: 3 does not divide the 32 heads"),
        (["fleet.most_replicas=4"], r"fleet\.target_requests: missing beside fleet\.most_replicas"),
        (["fleet.replicas=5", "fleet.most_replicas=4", "fleet.target_requests=9"], r"4 is less than replicas, 5"),
        (["fleet.prefill_replicas=1", "fleet.most_replicas=4", "fleet.target_requests=9"], "are not scaled yet"),
        (["fleet.failures_s=[-1]"], r"fleet\.failures_s"),
        (["load.prefix.shared=100"], r"load\.prefix\.shared: changes nothing without load\.prefix\.groups"),
        (["load.prefix.pause_s=30"], r"load\.prefix\.pause_s: changes nothing without load\.prefix\.turns above 1"),
        (
            ["load.prefix.turns=3", "load.shared_tokens=20"],
            r"load\.shared_tokens: cannot be combined with load\.prefix",
        ),
        (["load.prefix.turns=12"], "12,700|10,000|more than the 8,192 positions"),
        (["tiers.host_gib=-1"], r"tiers\.host_gib"),
    ],
)
def test_faults_of_fleets_and_conversations(settings_of: list[str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        load_serving(CONFIG, settings_of)


def test_a_pool_for_prompts_has_a_plan_of_its_own() -> None:
    run = load_serving(CONFIG, ["fleet.prefill_replicas=3", "fleet.prefill_tp=2", "fleet.replicas=2", "placement.tp=4"])
    assert run.prefill is not None
    assert (run.prefill.tp, run.server.tp, run.gpus) == (2, 4, 3 * 2 + 2 * 4)
    assert run.prefill.cluster.gpus_per_node == 2


def test_several_values_are_for_a_search() -> None:
    with pytest.raises(ConfigError, match=r"placement\.tp: .* several values, which `predict search` takes"):
        load_serving(CONFIG, ["placement.tp=[2,4]"])
