"""The ledger of any small trace adds up to its step, with and without the profiler's cost."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predict import load
from predict.measured_runs.explain import read_traces
from predict.measured_runs.explain.measured import TracedStep, without_profiler
from predict.measured_runs.explain.read_traces import read_measured
from sampling.errors import UserError
from tests.predict.measured_runs.explain.made_device_traces import CONFIG as ON_GPU
from tests.predict.measured_runs.explain.made_device_traces import SMALL, on_stream
from tests.predict.measured_runs.explain.made_traces import CONFIG, event, write

NAMES = st.sampled_from(
    ["aten::mm", "aten::view", "aten::own", "c10d::allreduce_", "autograd::engine::evaluate_function: MmBackward0"]
)
SPANS = st.sampled_from(
    ["gloo:all_reduce", "gloo:barrier", "enumerate(DataLoader)#1", "Optimizer.step#AdamW.step", "ProfilerStep#1", "own"]
)
KERNELS = st.sampled_from(["gemm", "ncclDevKernel_AllReduce", "ncclDevKernel_SendRecv", "elementwise"])
TIME, LONG = st.integers(0, 30_000), st.integers(0, 8_000)
SHAPED = {"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]}


def run_of_operators(names_and_times: list[tuple[str, int, int, int]]) -> list[dict[str, Any]]:
    """Operators of two threads; within a thread each lies inside another, or after it, as a call stack has it."""
    found: list[dict[str, Any]] = []
    ends: dict[int, list[float]] = {}
    for name, start, duration, thread in sorted(names_and_times, key=lambda each: (each[1], -each[2])):
        stack = ends.setdefault(thread, [])
        while stack and stack[-1] <= start:
            stack.pop()
        end = min([start + duration, *stack])
        stack.append(end)
        found.append(event(name, start, end - start, **SHAPED) | {"tid": thread})
    return found


OPERATORS = st.lists(st.tuples(NAMES, TIME, LONG, st.integers(1, 2)), min_size=1, max_size=12).map(run_of_operators)
ANNOTATIONS = st.lists(st.builds(lambda *each: event(*each, "user_annotation"), SPANS, TIME, LONG), max_size=6)


def closes(measured: TracedStep) -> None:
    assert sum(measured.headings.values()) == pytest.approx(measured.step_us)
    assert min(measured.headings.values(), default=0.0) >= -1e-6 * measured.step_us
    for untraced in (0.5, 0.9):
        plain = without_profiler(replace(measured, logged_us=untraced * measured.step_us))
        assert plain.step_us == pytest.approx(untraced * measured.step_us)
        assert sum(plain.headings.values()) == pytest.approx(plain.step_us)


@settings(max_examples=60, deadline=None)
@given(ops=OPERATORS, spans=ANNOTATIONS)
def test_a_step_on_a_cpu_closes(ops: list[dict[str, Any]], spans: list[dict[str, Any]]) -> None:
    whole = event("ProfilerStep#0", 0.0, 40_000.0, "user_annotation")
    with tempfile.TemporaryDirectory() as folder:
        closes(read_measured(write(Path(folder), [[*ops, *spans, whole], [*ops, whole]]), load(CONFIG)))


@settings(max_examples=60, deadline=None)
@given(
    ops=OPERATORS,
    spans=ANNOTATIONS,
    kernels=st.lists(
        st.tuples(KERNELS, TIME, LONG, st.integers(7, 9), st.integers(0, 40_000)), min_size=1, max_size=12
    ),
)
def test_a_step_on_a_device_closes(
    ops: list[dict[str, Any]], spans: list[dict[str, Any]], kernels: list[tuple[str, int, int, int, int]]
) -> None:
    events = [*ops, *spans, event("ProfilerStep#0", 0.0, 40_000.0, "user_annotation")]
    for number, (name, start, duration, stream, launched) in enumerate(kernels):
        events.append(event("cudaLaunchKernel", min(launched, start), 2.0, "cuda_runtime", correlation=number))
        events.append(on_stream(event(name, start, 1 + duration, "kernel", correlation=number), stream))
    with tempfile.TemporaryDirectory() as folder:
        closes(read_measured(write(Path(folder), [events]), load(ON_GPU, SMALL)))


def test_a_file_that_holds_no_trace_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_traces, "traces_in", lambda _: ())
    with pytest.raises(UserError, match="holds no kernels; record whole steps"):
        read_measured(write(tmp_path, [[]]), load(CONFIG))
