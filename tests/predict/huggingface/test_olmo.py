"""OLMo 2: norms over all heads of queries and keys."""

from __future__ import annotations

import pytest

from predict import default_config, load
from predict.config.draft import Document
from predict.layers.part import parts_of
from predict.model.spec import DENSE
from predict.rank.share import RankShare
from sampling.errors import ConfigError
from sampling.operators.norm import RMSNorm


def on_eight(**plan: int) -> Document:
    content = {
        "model": "olmo2-32b",
        "cluster": {"hardware": "h100", "nodes": 1, "gpus_per_node": 8},
        "plan": {"zero": 3, **plan},
        "batch": {"global": 8, "micro": 1, "seq_len": 4096},
        "precision": "bf16",
    }
    return Document(name="olmo2-32b", content=content, sources={"": "here"})


def test_a_norm_spans_the_queries_of_all_heads_and_another_the_keys() -> None:
    rank = RankShare(run=load(on_eight(dp=8)))
    attention, _ = parts_of(rank.model, DENSE)
    turned = next(module for module in attention.modules(rank, DENSE) if module.name == "rope")
    norms = [work for work, _ in turned.works if isinstance(work, RMSNorm)]
    assert [(norm.tokens, norm.hidden) for norm in norms] == [(4096, 40 * 128), (4096, 8 * 128)]
    assert attention.other_parameters(rank.model) == 48 * 128


def test_tensor_parallelism_that_would_split_them_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"plan\.tp: 2 splits the norms that olmo2-32b puts over all heads"):
        load(on_eight(tp=2, dp=4))
    assert load(default_config("olmo2-32b", "64xh100")).plan.tp == 1
