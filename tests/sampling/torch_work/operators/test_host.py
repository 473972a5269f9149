"""Copies to the host and AdamW on its cores, run in torch on a CPU."""

import pytest
import torch

from sampling.operators.host import HostAdamW, HostCopy
from sampling.torch_work.operators import host
from sampling.torch_work.operators.host import host_adamw, host_copy
from sampling.torch_work.operators.optimizer import parameter_list
from sampling.torch_work.workload import AutogradWorkload

CPU = torch.device("cpu")


def test_a_copy_has_as_many_bytes_as_it_says() -> None:
    work = host_copy(HostCopy(dtype="bf16", size_bytes=4096, to_host=True), CPU)
    assert isinstance(work, AutogradWorkload)
    work.prepare("forward")
    copied = work._current().forward()
    assert copied.nbytes == 4096 and bool((copied == 1).all())


def test_the_hosts_update_moves_every_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    call = HostAdamW(dtype="fp32", parameters=1000)
    weights = parameter_list(CPU, "fp32", call.parameters, tensors=1)
    monkeypatch.setattr(host, "parameter_list", lambda *_, **__: weights)
    before = weights[0].detach().clone()
    host_adamw(call, CPU).run("step")
    assert int((weights[0] != before).sum()) == call.parameters
    assert call.bytes_moved("step") == 30 * call.parameters
