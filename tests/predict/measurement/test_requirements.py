"""Which runs can be measured, on a CPU and on one GPU, what is reported of the others, and that this machine must have the GPU."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from predict.measurement import requirements
from predict.measurement.requirements import gpu_faults, require_gpu_of, require_measurable
from predict.model.spec import LayerKind
from predict.run.adapters import Adapters
from predict.run.offload import Offload
from predict.run.plan import Plan
from predict.run.training_run import TrainingRun
from predict.run.tuning import Tuning
from sampling.errors import UserError
from tests.predict.measurement.gpu_runs import DENSE, MIXTURE, gpu_run
from tests.predict.measurement.train_variants import LLAMA, run_of
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
        (replace(gpu_run(), adapters=Adapters(kind="lora")), r"adapters\.kind: lora; adapters are measured on a CPU"),
        (replace(gpu_run(), offload=Offload(optimizer_share=1.0)), r"offload: a real step keeps all on the GPU"),
        (replace(gpu_run(), tuning=Tuning(task="dpo")), r"tuning\.task: dpo; the pass that trains alone"),
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


@pytest.mark.parametrize(
    ("plan", "changes", "fault"),
    [
        (Plan(tp=2, dp=2), {}, r"plan\.tp: 2 with plan\.dp: 2"),
        (Plan(cp=2), {}, r"plan\.cp: 2"),
        (Plan(sp=True), {}, r"plan\.sp: true needs plan\.tp"),
        (Plan(dp=2, zero=3), {}, r"plan\.zero: 3"),
        (Plan(recompute="selective"), {}, r"plan\.recompute: 'selective'"),
        (Plan(pp=2, schedule="best"), {}, r"plan\.schedule: 'best' is not a schedule to run"),
        (Plan(pp=2, schedule="zb-auto"), {}, r"plan\.schedule: 'zb-auto' is solved for predicted times"),
        (Plan(pp=2, vpp=2, schedule="dualpipe"), {}, r"plan\.schedule: 'dualpipe' runs two copies"),
        (Plan(pp=2, dp=2, schedule="zb-h1"), {}, r"plan\.schedule: 'zb-h1' with plan\.dp: 2"),
        (Plan(pp=2, vpp=2, schedule="zbv"), {"layers": 3}, r"plan\.pp: 4 stages for 3 layers"),
        (Plan(pp=3, schedule="afab"), {"layers": 2}, r"plan\.pp: 3 stages for 2 layers"),
        (Plan(pp=2), {"tied": True}, r"plan\.pp: 2 with a tied head"),
        (Plan(tp=4), {}, r"model\.kv_heads: 2 is not a multiple of plan\.tp = 4"),
        (Plan(dp=3), {}, r"batch\.global: 8 is not a multiple of micro · dp = 2 · 3"),
        (Plan(), {"rope": False, "max_positions": 8}, r"batch\.seq_len: 16 is beyond the model's 8"),
    ],
)
def test_what_cannot_be_measured_is_named(plan: Plan, changes: Mapping[str, Any], fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        requirements.require_measurable(run_of(plan, replace(LLAMA, **changes)), "torch")


@pytest.mark.parametrize(
    "changes", [{"adapters": Adapters(kind="lora")}, {"model": replace(LLAMA, bidirectional=True)}]
)
def test_transformers_trains_plain_decoders_alone(changes: Mapping[str, Any]) -> None:
    run = replace(run_of(Plan()), **changes)
    requirements.require_measurable(run, "torch")
    with pytest.raises(UserError, match="transformers is measured with Llama-like models"):
        requirements.require_measurable(run, "transformers")


def test_all_faults_come_at_once() -> None:
    with pytest.raises(UserError) as raised:
        one_rank = run_of(Plan()).cluster
        subject = replace(run_of(Plan(cp=2, ep=2)), precision="fp8", cluster=one_rank)
        requirements.require_measurable(subject, "transformers")
    for fault in ("plan.cp", "plan.ep", "precision: fp8", "cluster of 1"):
        assert fault in str(raised.value)


def test_a_pipeline_needs_its_microbatches() -> None:
    run = run_of(Plan(pp=3))
    requirements.require_measurable(run, "torch")
    few = replace(run, batch=replace(run.batch, micro=4))
    with pytest.raises(UserError, match=r"1f1b needs at least plan\.pp = 3 microbatches; this run has 2"):
        requirements.require_measurable(few, "torch")


def test_a_missing_library_is_named_with_its_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'steptime\[transformers\]'"):
        requirements.require_measurable(run_of(Plan()), "transformers")
    requirements.require_measurable(run_of(Plan()), "torch")
