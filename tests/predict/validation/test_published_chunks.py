"""Chunks of published pipelines: as stated, else of usual sizes where the framework interleaves."""

from __future__ import annotations

import pytest

from predict.validation.published_row import PublishedRow
from predict.validation.published_runs import candidates
from tests.predict.validation.published_rows import DENSE

PIPELINE = DENSE | {"n_gpus": "64", "pp": "8", "gbs": "64", "mbs": "1"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"framework": "NeMo"}, {6, 3}),  # 48 layers over 8 ranks: 1 or 2 layers a chunk, 4 do not divide them
        ({"framework": "NeMo", "vpp": "2"}, {2}),
        ({"framework": "NeMo", "pp": "1", "n_gpus": "8"}, {1}),
        ({"framework": "Megatron-LM"}, {1}),
        ({"framework": "Megatron-LM", "pp_schedule": "1F1B interleaved"}, {6, 3}),
        ({"framework": "NeMo", "layers": "50"}, {1}),  # neither 50 nor 52 layers divide by 8
    ],
)
def test_chunks_that_were_not_published_are_of_usual_sizes(given: dict[str, str], expected: set[int]) -> None:
    found = candidates(PublishedRow(cells=PIPELINE | given))
    assert {run.plan.vpp for run in found.runs} == expected
    open_ = "vpp" not in given and (given.get("pp") != "1")
    assert any(phrase.startswith("vpp: not published") for phrase in found.assumed) == open_
