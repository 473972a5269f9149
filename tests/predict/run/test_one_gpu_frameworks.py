"""Predictions of torch's own modules on one GPU move as what runs does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from predict import estimate
from predict.model.spec import ModelSpec
from predict.step.prediction import Prediction
from predict.workload.decompose import decompose
from tests.predict.measurement.gpu_runs import MIXTURE, gpu_run

MODEL = replace(
    MIXTURE, layer_kinds=(), layers=8, hidden=2048, heads=16, kv_heads=8, head_dim=128, ffn=5632, vocab=32000
)
LARGE, SMALL = (4, 4, 2048), (1, 1, 64)


def predicted(model: ModelSpec = MODEL, **settings: Any) -> Prediction:
    return estimate(gpu_run(model, **settings))


def gib(prediction: Prediction) -> float:
    return prediction.memory.point_bytes / 2**30


def test_compiled_layers_are_faster_and_keep_less() -> None:
    for batch, least in ((SMALL, 1.05), (LARGE, 1.01)):
        eager, compiled = (predicted(framework=f"torch-{name}", batch=batch) for name in ("eager", "compiled"))
        assert eager.median_us > least * compiled.median_us
        assert gib(eager) >= gib(compiled)


def test_recomputing_costs_about_a_forward_and_frees_activations() -> None:
    plain, again = (predicted(batch=LARGE, recompute=recompute) for recompute in ("none", "full"))
    assert 1.15 < again.median_us / plain.median_us < 1.4
    assert gib(again) < 0.8 * gib(plain)


def test_a_small_step_waits_for_the_host() -> None:
    """Twice the tokens in a step that the host cannot launch faster take hardly longer."""
    few, more = (predicted(batch=(1, 1, seq_len)).median_us for seq_len in (32, 64))
    assert more < 1.05 * few


def test_a_weight_takes_eighteen_bytes_and_its_gradient_is_fp32() -> None:
    """2 of weight, 12 of master and moments, 4 of gradient: what MasterAdamW keeps."""
    run = gpu_run(replace(MODEL, tied=True), batch=SMALL)
    rank = estimate(run).memory.ranks[0]
    assert rank.parameters + rank.optimizer == 14 * run.model.parameters
    assert rank.gradients == 4 * run.model.parameters


def test_weights_in_fp32_are_their_own_masters() -> None:
    """Fused AdamW alone: 28 bytes per parameter; 16-bit weights are copied from their masters too."""
    moved = {
        precision: sum(
            counted.count * counted.call.bytes_moved(counted.phase)
            for counted in decompose(gpu_run(MODEL, batch=SMALL, precision=precision))[0].end.optimizer
        )
        for precision in ("fp32", "bf16")
    }
    assert moved["bf16"] == (28 + 6) * MODEL.parameters
    assert moved["fp32"] == pytest.approx(28 * MODEL.parameters)


@pytest.mark.parametrize(("framework", "compiled"), [("torch-eager", False), ("torch-compiled", True)])
def test_what_samples_of_whole_layers_add_is_that_of_layers_run_alike(framework: str, compiled: bool) -> None:
    run = gpu_run(MODEL, framework=framework)
    wholes = {each.block.whole.call for each in decompose(run)[0].chunks[0].forward if each.block.whole}
    assert [whole.fields()["compiled"] for whole in wholes] == [compiled]
