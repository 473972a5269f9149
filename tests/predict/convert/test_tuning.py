"""Kinds of tuning as other tools state them."""

from __future__ import annotations

from pathlib import Path

import predict
from predict.convert.tuning import in_sequences


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
