"""Which runs one GPU measures, what the others are told, and that this machine must have the run's GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from predict.measurement import requirements
from predict.measurement.requirements import gpu_faults, require_gpu_of, require_measurable
from predict.model.spec import LayerKind
from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from tests.predict.measurement.gpu_runs import DENSE, MIXTURE, gpu_run
from tests.tiny_runs import MOE


def executing(**settings: object) -> TrainingRun:
    run = gpu_run()
    return replace(run, execution=replace(run.execution, **settings))


@pytest.mark.parametrize(
    "run",
    [
        gpu_run(),
        gpu_run(MIXTURE, framework="torch-compiled", recompute="full"),
        gpu_run(replace(DENSE, qk_norm=True, tied=True), precision="fp32"),
        executing(attention="cudnn", launch_floor_us=10.0, clocks="burst"),
    ],
)
def test_what_one_gpu_measures(run: TrainingRun) -> None:
    require_measurable(run, "torch")


@pytest.mark.parametrize(
    ("run", "fault"),
    [
        (gpu_run(tp=2), r"cluster: 2 GPUs; a real step runs on one GPU"),
        (gpu_run(tp=2), r"plan\.tp: 2; a real step runs on one GPU, use 1"),
        (gpu_run(precision="fp8"), r"precision: fp8; use one of bf16, fp32"),
        (gpu_run(recompute="selective"), r"plan\.recompute: 'selective'; use one of none, full"),
        (gpu_run(recompute="full", recompute_method="block"), r"plan\.recompute_method: 'block'"),
        (
            gpu_run(framework="megatron-core"),
            r"execution\.framework: megatron-core; .*use torch-eager or torch-compiled",
        ),
        (executing(attention="fa3"), r"execution\.attention: fa3; torch's kernel is pinned, use one of fa2, cudnn"),
        (executing(dropout=True), r"execution\.dropout: True; torch-eager runs False, remove it"),
        (executing(gradient_dtype="bf16"), r"execution\.gradient_dtype: 'bf16'; torch-eager runs 'fp32'"),
        (executing(elementwise="fused"), r"execution\.elementwise: 'fused'; torch-eager runs 'eager'"),
        (gpu_run(MOE), r"model: shared, biased or ungated experts"),
        (gpu_run(replace(DENSE, logit_cap=True, norms_a_layer=4)), r"model: capped logits, norms of outputs; plain"),
        (
            gpu_run(replace(DENSE, window=8, layer_kinds=(LayerKind(), LayerKind(mixer="sliding")))),
            r"model: layers of kind sliding_dense; full attention",
        ),
        (gpu_run(batch=(3, 2, 16)), r"batch\.global: 3 is not a multiple of batch\.micro = 2"),
        (gpu_run(replace(DENSE, rope=False, max_positions=8)), r"batch\.seq_len: 16 is beyond the model's 8"),
    ],
)
def test_what_it_does_not(run: TrainingRun, fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        require_measurable(run, "torch")
    assert list(gpu_faults(run))


def test_transformers_is_measured_on_a_cpu() -> None:
    with pytest.raises(UserError, match="transformers is measured on a CPU"):
        require_measurable(gpu_run(), "transformers")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", r"H100.*: torch finds no GPU on this machine; use one that has a CUDA or ROCm GPU"),
        ("NVIDIA H200", r"but this machine has a NVIDIA H200; use --set cluster\.hardware=h200"),
    ],
)
def test_this_machine_must_have_the_gpu(name: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "device_name", lambda: name)
    with pytest.raises(UserError, match=fault):
        require_gpu_of(gpu_run())


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3", "NVIDIA X1, which no file describes"])
def test_the_run_s_own_gpu_and_an_unknown_one_are_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "device_name", lambda: name)
    require_gpu_of(gpu_run())
