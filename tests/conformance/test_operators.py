"""Laws of every registered call, whose examples are the calls of drawn models."""

import json
import math
from dataclasses import fields
from zlib import crc32

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sampling.arithmetic.operator import Operator
from sampling.call import Call, make_call, registry
from sampling.choosing.ranges import VariantRanges
from sampling.choosing.shapes import calls_of, draw_models
from sampling.choosing.tasks import phases_worth_timing
from sampling.hardware.cluster import Cluster
from sampling.speed_of_light import physical_bound_us
from sampling.store.sample import MEASUREMENT_COLUMNS
from sampling.torch_work.build import build
from tests.made_rows import small_ranges
from tests.tested_names import untested

RANGES = small_ranges(
    hidden=(64, 64),
    variants=VariantRanges(
        every=2,
        experts=(4, 8),
        topk=(1, 2),
        skews=(0, 1.2),
        windows=(4, 8),
        head_dims=(16,),
        compiled=True,
    ),
)
CALLS = sorted(
    {call for model in draw_models(RANGES, 4) for call in calls_of(model, 2, with_operators=True)},
    key=lambda call: (call.NAME, repr(call)),
)
OPERATORS = [
    call for call in CALLS if isinstance(call, Operator) and call.group_size == 1 and call.NAME != "gated_delta"
]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced as torch.compile does, and run as it is: a compiler takes seconds for each function."""
    monkeypatch.setattr("sampling.torch_work.build.BACKEND", "eager")


def identity(call: Call) -> str:
    return f"{call.NAME}-{crc32(str(call).encode()):08x}"


def test_the_examples_cover_every_registered_call_without_a_test_of_its_own() -> None:
    covered = {call.NAME for call in CALLS}
    assert covered <= set(registry())
    files = {registry()[name].__module__.rpartition(".")[2] for name in set(registry()) - covered}
    assert untested(files) == []


def test_no_field_of_a_call_has_the_name_of_a_column_of_its_rows() -> None:
    taken = {name: {each.name for each in fields(of)} & set(MEASUREMENT_COLUMNS) for name, of in registry().items()}
    assert {name: columns for name, columns in taken.items() if columns} == {}


def test_a_call_survives_its_fields_as_json() -> None:
    for call in CALLS:
        assert make_call(call.NAME, json.loads(json.dumps(call.fields()))) == call


PHASES = [(call, phase) for call in CALLS for phase in call.PHASES]


def test_terms_and_features_are_finite_and_no_call_is_faster_than_its_physical_bound(two_ranks: Cluster) -> None:
    for call, phase in PHASES:
        terms, features = call.terms(phase, two_ranks), call.features(phase, two_ranks)
        assert terms, call
        assert all(math.isfinite(value) and value >= 0 for value in terms.values()), (call, phase)
        assert all(math.isfinite(value) for value in features.values()), (call, phase)
        assert 0 <= physical_bound_us(call, phase, two_ranks) <= sum(terms.values()) * (1 + 1e-9), (call, phase)


def test_parts_are_of_the_same_phase_or_finer_and_their_terms_add_up(two_ranks: Cluster) -> None:
    for call, phase in PHASES:
        parts = call.parts(phase)
        if parts:
            own = sum(call.terms(phase, two_ranks).values())
            of_parts = sum(part.count * sum(part.call.terms(part.phase, two_ranks).values()) for part in parts)
            assert own == pytest.approx(of_parts), (call, phase)
        assert all(part.phase in part.call.PHASES for part in parts), (call, phase)


@pytest.mark.parametrize("call", OPERATORS, ids=identity)
def test_every_phase_runs_on_one_device(call: Operator) -> None:
    workload = build(call, CPU)
    for phase in phases_worth_timing(call):
        for _ in range(2):
            workload.prepare(phase)
            workload.run(phase)


@pytest.mark.parametrize(
    "call",
    [call for call in OPERATORS if "forward" in call.PHASES and not call.fields().get("compiled")],
    ids=identity,
)
def test_forward_flops_are_those_that_torch_counts(call: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    # nor does it know torch's grouped product
    monkeypatch.setattr("sampling.torch_work.kernels.grouped_product.GROUPED", ())
    workload = build(call, CPU)
    workload.prepare("forward")
    # only the unfused backend's products are visible to torch's counter on a CPU
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        workload.run("forward")
    assert counter.get_total_flops() == call.flops("forward")
