"""Rows of tables of published runs for tests: one dense run that is complete, and a mixture that leaves much open."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from predict.validation.published_row import PublishedRow

DENSE = {
    "row_id": "a",
    "source_id": "paper",
    "model": "gpt-22B",
    "layers": "48",
    "hidden": "6144",
    "heads": "64",
    "vocab": "51200",
    "gated_mlp": "0",
    "attn": "MHA (no flash)",
    "seq_len": "2048",
    "gpu": "A100",
    "gpu_mem_gb": "80",
    "n_gpus": "8",
    "gpus_per_node": "8",
    "framework": "Megatron-LM",
    "precision": "fp16 mixed",
    "tp": "8",
    "pp": "1",
    "mbs": "4",
    "gbs": "4",
    "recompute": "full",
    "step_time_s": "1.42",
}
MIXTURE = DENSE | {
    "row_id": "m",
    "model": "mixture",
    "layers": "8",
    "hidden": "2048",
    "heads": "32",
    "kv_heads": "4",
    "head_dim": "128",
    "experts": "64",
    "topk": "8",
    "moe_ffn": "768",
    "gated_mlp": "1",
    "attn": "GQA",
    "gpu": "H100",
    "framework": "NeMo (Megatron-Core)",
    "precision": "FP8-MX",
    "tp": "1",
    "ep": "8",
    "gbs": "64",
    "recompute": "",
    "step_time_s": "1.0",
}


def row(**changes: str) -> PublishedRow:
    return PublishedRow(cells=DENSE | changes)


def written(path: Path, *rows: Mapping[str, str]) -> Path:
    columns = list(dict.fromkeys(column for each in rows for column in each))
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows(rows)
    return path
