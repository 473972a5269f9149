"""The worker of a GPU on a CPU in its place: it trains, in every form, and tells what it saw."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from predict.layers.run_json import dump_run
from predict.measurement import mixture, one_gpu
from predict.measurement.gpu_steps import WARM_UP, Span
from predict.measurement.one_gpu import _uuid, _waiter, body, build_training, train
from predict.measurement.real_step import of_one_gpu, train_alone
from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from tests.predict.measurement.gpu_runs import DENSE, MIXTURE, gpu_run

CPU = torch.device("cpu")
RUNS: dict[str, Callable[[], TrainingRun]] = {
    "dense bf16": gpu_run,
    "dense fp32": lambda: gpu_run(precision="fp32"),
    "dense recompute": lambda: gpu_run(recompute="full"),
    "dense compiled": lambda: gpu_run(framework="torch-compiled"),
    "mixture": lambda: gpu_run(MIXTURE),
    "mixture compiled recompute": lambda: gpu_run(MIXTURE, framework="torch-compiled", recompute="full"),
}


def trained(run: TrainingRun, *, steps: int = 12) -> dict[str, Any]:
    once = Span(seconds=0.0, steps=1)
    return train(run, CPU, warm_up=once, timed=Span(seconds=0.0, steps=steps), compiler="aot_eager")


@pytest.mark.parametrize("name", RUNS)
def test_it_trains(name: str) -> None:
    run = RUNS[name]()
    seen = of_one_gpu(run, trained(run))
    assert len(seen.step_times_us) == 12
    assert len(seen.losses) == 13
    assert seen.losses[-1] < seen.losses[0] - 0.02
    assert seen.parameters_per_rank == (run.model.parameters,)
    assert seen.p10_us <= seen.median_us <= seen.p90_us
    assert seen.device is not None
    assert seen.device.expert_products == ("grouped" if run.model.experts else "")
    assert (seen.device.busiest_expert is not None) == bool(run.model.experts)
    json.dumps(seen.to_json())


def test_compiling_and_recomputing_change_no_loss() -> None:
    torch.manual_seed(0)
    plain = trained(gpu_run(precision="fp32"), steps=3)["losses"]
    for changed in (
        gpu_run(precision="fp32", recompute="full"),
        gpu_run(precision="fp32", framework="torch-compiled"),
        gpu_run(precision="fp32", batch=(4, 4, 16)),
    ):
        assert trained(changed, steps=3)["losses"] == pytest.approx(plain, rel=1e-4)


def test_each_layer_of_a_kind_shares_one_compiled_graph() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    training, _ = build_training(gpu_run(framework="torch-compiled"), CPU, compiler="eager")
    training.step()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_masters_and_gradients_are_fp32_beside_bf16_weights() -> None:
    training, _ = build_training(gpu_run(batch=(2, 2, 16)), CPU)
    (optimizer,) = training.optimizers
    training.passes()
    (group,) = optimizer.param_groups
    assert {master.dtype for master in group["params"]} == {torch.float32}
    assert {master.grad.dtype for master in group["params"]} == {torch.float32}
    weights = list(training.module.parameters())
    assert all(weight.grad is None and weight.dtype == torch.bfloat16 for weight in weights)
    optimizer.step()
    for weight, master in zip(weights, group["params"], strict=True):
        assert torch.equal(weight, master.bfloat16())


def test_gradients_of_microbatches_add_up() -> None:
    whole, parts = (build_training(gpu_run(precision="fp32", batch=(4, micro, 16)), CPU)[0] for micro in (4, 2))
    whole.passes()
    parts.passes()
    for one, other in zip(whole.module.parameters(), parts.module.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)


def test_experts_one_after_the_other_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture, "grouped_product", lambda *_: mixture.by_loop)
    assert trained(gpu_run(MIXTURE), steps=1)["device"]["expert_products"] == "loop"
    with pytest.raises(UserError, match=r"experts that run one after the other cannot be compiled; use torch-eager"):
        build_training(gpu_run(MIXTURE, framework="torch-compiled"), CPU)


@pytest.mark.usefixtures("starts_warm")
def test_a_process_of_its_own_trains() -> None:
    run = gpu_run()
    seen = of_one_gpu(run, train_alone(run, steps=2, timeout_s=300, device="cpu"))
    assert len(seen.step_times_us) == 2
    assert len(seen.losses) >= 2 + WARM_UP.steps


def test_a_gpu_is_waited_for_and_named_as_nvidia_smi_does(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="1f3a"))
    gpu = torch.device("cuda")
    _waiter(gpu)()
    assert waited == [gpu]
    assert _uuid(gpu) == "GPU-1f3a"


@pytest.mark.usefixtures("starts_warm")
def test_the_failure_of_its_process_is_reported() -> None:
    run = gpu_run(DENSE)
    with pytest.raises(UserError, match=r"(?s)a rank failed \(rank 0\):\n.*bogus"):
        train_alone(run, steps=1, timeout_s=120, device="bogus")
    with pytest.raises(UserError, match=r"its ranks were not done after 0\.5 s"):
        train_alone(run, steps=1, timeout_s=0.5, device="cpu")


def test_a_gpu_without_enough_memory_is_reported_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(one_gpu, "train", train)
    with pytest.raises(UserError, match=r"^CUDA out of memory"):
        body(dump_run(gpu_run()), 1, "cpu")
