"""Kinds of tuning as other tools state them."""

import re
from pathlib import Path
from typing import Any

import pytest

import predict
from predict.convert.tuning import in_sequences
from sampling.errors import ConfigError


def test_a_pair_is_two_sequences_in_a_tools_usual_batch_too() -> None:
    sections = {"tuning": {"task": "dpo"}, "batch": {"global": 64}, "usual": {"batch": {"micro": 8}}}
    assert in_sequences(sections) == {
        "tuning": {"task": "dpo"},
        "batch": {"global": 128},
        "usual": {"batch": {"micro": 16}},
    }
    assert in_sequences({"batch": {"micro": 8}}) == {"batch": {"micro": 8}}


def test_a_script_named_after_the_task_does_not_count_pairs_of_llama_factory_twice(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "python dpo.py --stage dpo --finetuning_type full --template llama3 --cutoff_len 2048 --bf16 true "
        "--model_name_or_path meta-llama/Meta-Llama-3-8B-Instruct --per_device_train_batch_size 2"
    )
    settings = ["cluster.hardware=h100-sxm", "cluster.nodes=1", "cluster.gpus_per_node=8"]
    read = predict.import_config([tmp_path / "run.sh"], settings).document.content
    assert (read["tuning"]["task"], read["batch"]["micro"], read["batch"]["global"]) == ("dpo", 4, 32)


# Switches by which other tools freeze a vision tower and its projectors.

GPUS = ["cluster.hardware=h100-sxm", "cluster.nodes=1", "cluster.gpus_per_node=8"]
IMAGES = ["vision.images=2", "vision.image_tokens=256"]
LLAMA_FACTORY = (
    "model_name_or_path: Qwen/Qwen2.5-VL-7B-Instruct\nstage: sft\ntemplate: qwen2_vl\ncutoff_len: 4096\nbf16: true\n"
    "per_device_train_batch_size: 1\nimage_max_pixels: 262144\n"
)
PRIME_RL = '[model]\nname = "Qwen/Qwen2.5-VL-7B-Instruct"\n[data]\nbatch_size = 8\nseq_len = 4096\n'


def trained(path: Path, text: str, settings: list[str]) -> tuple[Any, tuple[str, ...]]:
    path.write_text(text)
    read = predict.import_config([path], [*GPUS, *settings])
    return read.document.content.get("vision", {}).get("trained", "as usual"), read.notes


@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        ("", "none"),
        ("freeze_vision_tower: true\n", "none"),
        ("freeze_multi_modal_projector: false\n", "projector"),
        ("freeze_vision_tower: false\nfreeze_multi_modal_projector: false\n", "all"),
    ],
)
def test_llama_factory_freezes_tower_and_projector_unless_it_is_told_otherwise(
    switches: str, expected: str, tmp_path: Path
) -> None:
    text = LLAMA_FACTORY + "finetuning_type: full\n" + switches
    found, notes = trained(tmp_path / "sft.yaml", text, IMAGES)
    assert found == expected
    assert any(note.startswith("freeze_") and "vision.images=N" in note for note in notes) == bool(switches)
    assert trained(tmp_path / "sft.yaml", text, [])[0] == "as usual"


def test_images_that_only_the_data_know_are_said_to_be_left_out(tmp_path: Path) -> None:
    _, notes = trained(tmp_path / "sft.yaml", LLAMA_FACTORY + "finetuning_type: full\n", [])
    assert any(note.startswith("image_max_pixels: images are left out") and "vision.images=N" in note for note in notes)


@pytest.mark.parametrize(("switch", "expected"), [("", "none"), ("freeze_vision_encoder = false\n", "all")])
def test_prime_rl_freezes_encoder_and_projector_together(switch: str, expected: str, tmp_path: Path) -> None:
    text = (
        f'{PRIME_RL}[model.vlm]\nvision_encoder_attr = "model.visual"\nlanguage_model_attr = "model.language_model"\n'
    )
    assert trained(tmp_path / "sft.toml", text + switch, IMAGES)[0] == expected
    assert trained(tmp_path / "sft.toml", PRIME_RL, IMAGES)[0] == "as usual"


@pytest.mark.parametrize(
    ("switches", "problem"),
    [
        (
            "finetuning_type: full\nfreeze_vision_tower: false\n",
            "freeze_multi_modal_projector: a frozen projector above a trained tower is not modelled",
        ),
        (
            "finetuning_type: lora\nfreeze_multi_modal_projector: false\n",
            "freeze_vision_tower: adapters of a vision tower are not modelled; "
            "set freeze_vision_tower and freeze_multi_modal_projector to true",
        ),
        ("finetuning_type: full\nfreeze_language_model: true\n", "freeze_language_model: true: frozen weights"),
    ],
)
def test_what_is_frozen_otherwise_is_refused(switches: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        trained(tmp_path / "sft.yaml", LLAMA_FACTORY + switches, IMAGES)
