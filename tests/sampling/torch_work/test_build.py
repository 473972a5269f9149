"""Finding the function that builds a call in torch."""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch._dynamo.exc import FailOnRecompileLimitHit

from sampling.arithmetic.operator import FORWARD_BACKWARD, Operator
from sampling.call import Phase, Request, registry
from sampling.errors import SkippedError
from sampling.hardware.cluster import load_cluster
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import CausalSoftmax
from sampling.store.sample import Sample
from sampling.timing.time_calls import time_requests
from sampling.timing.timer import TimerSettings
from sampling.torch_work.build import build, builder_of, compiled
from sampling.torch_work.collectives.process_groups import LoneRank


@dataclass(frozen=True, kw_only=True, slots=True)
class Unbuilt(Operator):
    NAME: ClassVar[str] = "unbuilt"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0


class WiderGemm(Gemm):
    """A subclass without a builder of its own."""


def test_every_registered_call_has_torch_work() -> None:
    assert [name for name, kind in registry().items() if builder_of(kind) is None] == []


def test_a_subclass_is_built_as_its_base_class() -> None:
    assert builder_of(WiderGemm) is builder_of(Gemm)


def test_a_call_without_torch_work_says_how_to_add_it() -> None:
    with pytest.raises(SkippedError, match=r"unbuilt: nothing in sampling/torch_work.*@builds\(Unbuilt\)"):
        build(Unbuilt(dtype="fp32"), torch.device("cpu"))


def test_the_arithmetic_of_all_calls_needs_no_torch() -> None:
    code = "import sys; from sampling.call import registry; registry(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# Calls under torch.compile: as many shapes as there are, and none that runs eager and is stored as compiled.

SHAPES = 10
"""More than torch._dynamo.config.recompile_limit."""
QUICK = TimerSettings(warmup_repeats=1, least_repeats=2, most_repeats=2, seconds=0.0, attempts=1, most_batches=1)


@pytest.fixture(autouse=True)
def eager_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Code that is traced as for any backend, and not translated, which would take seconds a shape."""
    monkeypatch.setattr("sampling.torch_work.build.BACKEND", "eager")
    yield
    torch.compiler.reset()


def test_every_shape_of_a_session_is_compiled() -> None:
    from torch._dynamo.utils import counters

    counters.clear()
    rows: list[Sample] = []
    shape = CausalSoftmax(dtype="fp32", matrices=1, seq_len=8)
    time_requests(
        [Request(call=replace(shape, seq_len=8 * many), phases=("forward",)) for many in range(1, SHAPES + 1)],
        device=torch.device("cpu"),
        cluster=load_cluster(hardware="cpu", nodes=1, gpus_per_node=1, profile="test", cores=1),
        ranks=LoneRank(),
        session=0,
        deadline_s=time.monotonic() + 60,
        settings=QUICK,
        keep=rows.append,
        say=print,
    )
    assert len(rows) == SHAPES
    assert counters["stats"]["unique_graphs"] == SHAPES


def test_a_shape_beyond_the_limit_is_an_error() -> None:
    double = compiled(lambda x: 2 * x)
    with pytest.raises(FailOnRecompileLimitHit):
        for width in range(1, SHAPES + 1):
            double(torch.zeros(width))
