"""A small run of two nodes of CPU ranks."""

import json
from pathlib import Path
from typing import Any

MODEL = {
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "max_position_embeddings": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
}


def config(folder: Path, **sections: Any) -> str:
    """A run of two nodes of two CPU ranks, in two stages."""
    content = {
        "model": MODEL,
        "cluster": {"hardware": "cpu", "nodes": 2, "gpus_per_node": 2, "profile": "nowhere", "cores": 2},
        "plan": {"pp": 2, "dp": 2},
        "batch": {"global": 32, "micro": 2, "seq_len": 64},
        "precision": "fp32",
        **sections,
    }
    path = folder / "run.yml"
    path.write_text(json.dumps(content))
    return str(path)
