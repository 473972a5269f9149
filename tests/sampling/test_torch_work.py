"""Every kind of call, as a GPU session draws them, built on the `meta` device and run phase by phase: no kernel, but every shape, dtype
and argument that torch checks before one. What torch itself does not run there is listed with the reason."""

import importlib.util
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from sampling.call import Call, registry
from sampling.choosing.ranges import VariantRanges
from sampling.choosing.shapes import calls_of, draw_models
from sampling.choosing.tasks import collective_sweep, phases_worth_timing
from sampling.collectives.kinds import CustomAllReduce
from sampling.errors import SkippedError
from sampling.hardware.cluster import Machine
from sampling.torch_work.build import build
from sampling.torch_work.collectives import process_groups
from tests.made_rows import small_ranges
from tests.tested_names import untested

META = torch.device("meta")
PAIR = Machine(nodes=1, gpus_per_node=2)
RANGES = small_ranges(
    dtype="bf16",
    variants=VariantRanges(
        experts=(4, 8),
        topk=(1, 2),
        skews=(0,),
        windows=(4, 8),
        head_dims=(16,),
        kernels=("flash",),
        dtypes=("fp16", "fp8", "tf32"),
        compiled=True,
    ),
)
FUSED = "`fused=True` requires all the params"
REASONS = {
    "adamw": FUSED,
    "sharded_adamw": FUSED,
    "gated_delta": "needs flash-linear-attention",
    "gradient_cell": "Tensor.item() cannot be called on meta tensors",  # DistributedDataParallel compares shapes between ranks
    "pipeline_action": "Tensor.item() cannot be called on meta tensors",  # the pipeline sends shapes between its stages
    "custom_all_reduce": "and this is a meta device",
    "overlap": "Not implemented",  # ranks agree over gloo, for which the fake store is no store
}
"""Words of the error by the name of the call."""
TENSOR_PARALLEL = "Sharding propagation failed"
"""DTensor asks the device of a mesh for its properties."""
FLEX = "FlexAttention is only supported on"


def reason(call: Call) -> str:
    """Words of the error with which the call does not run on `meta`; '' if it must."""
    fields = call.fields()
    if call.NAME in REASONS:
        return REASONS[call.NAME]
    if fields.get("tp", 1) > 1:
        return TENSOR_PARALLEL
    if call.NAME == "attention" and 0 < fields["window"] < fields["seq_len"]:
        return FLEX
    return ""


def one_of_each() -> list[Call]:
    """A call of every kind, and one for each of its forms that runs other code."""
    models = draw_models(RANGES, 4)
    calls = [call for model in models for ranks in (1, 2) for call in calls_of(model, ranks, with_operators=True)]
    calls += collective_sweep(PAIR, RANGES.message_bytes, 1)
    calls.append(CustomAllReduce(size_bytes=4096, ranks=2, ranks_per_node=2))
    forms = ("dtype", "kernel", "compiled", "tp", "sp", "gated", "fused_softmax", "norm")
    by_form = {(call.NAME, *(call.fields().get(form) for form in forms), reason(call)): call for call in calls}
    return [replace(call) for call in by_form.values()]


CALLS = one_of_each()
LINEAR_ATTENTION = importlib.util.find_spec("fla") is not None


@pytest.fixture(scope="module", autouse=True)
def pair() -> Iterator[None]:
    """Rank 0 of two whose collectives do nothing; and no compiler, which has nothing to generate for `meta`."""
    store = FakeStore()
    dist.init_process_group("fake", rank=0, world_size=2, store=store)
    process_groups.use(process_groups.ProcessGroups(0, PAIR, store))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sampling.torch_work.build.BACKEND", "eager")
        yield
    process_groups.use(None)
    dist.destroy_process_group()
    torch.compiler.reset()


def run(call: Call) -> None:
    workload = build(call, META)
    for phase in phases_worth_timing(call):
        for _ in range(2):
            workload.prepare(phase)
            workload.run(phase)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.NAME)
def test_a_call_builds_and_runs_every_phase_or_says_why_not(call: Call) -> None:
    if call.NAME == "gated_delta" and LINEAR_ATTENTION:
        pytest.skip("flash-linear-attention is installed, and has kernels for a GPU alone")
    if words := reason(call):
        with pytest.raises((RuntimeError, ValueError, SkippedError)) as error:
            run(call)
        assert words in str(error.value)
    else:
        run(call)


def test_no_kind_of_call_is_left_out() -> None:
    """Normalisation and activation of other models are drawn with them."""
    assert untested(set(registry()) - {call.NAME for call in CALLS}) == []
