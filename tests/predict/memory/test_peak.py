"""The peak follows the schedule's own order: a replay, unit by unit, finds the same."""

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predict.memory.activations import ChunkCounter, ChunkMemory, Halves, Instant, UnitMemory
from predict.memory.estimate import MemoryModel, memory_of
from predict.memory.peak import IN_CLOSED_FORM, Trace, _with_pairs, peak_in_closed_form, peak_of_order
from predict.memory.state import ChunkUnits, chunks_of_ranks
from predict.run.frameworks import memory_profile_of
from predict.run.training_run import TrainingRun
from predict.schedules import registry
from predict.schedules.engine.order import BW, F, Order
from sampling.errors import ConfigError
from tests.predict.workload.parallel_runs import estimated, made

SCHEDULES = [
    ("1f1b", 1, 6),
    ("afab", 1, 6),
    ("interleaved-1f1b", 2, 8),
    ("looped-bfs", 2, 8),
    ("zb-h1", 1, 6),
    ("zb-h2", 1, 6),
    ("zbv", 2, 8),
    ("v-half", 2, 8),
]
FRAMEWORKS: list[dict[str, Any]] = [
    {"execution__framework": "megatron-core", "plan__zero": 1},
    {"execution__framework": "torchtitan", "plan__zero": 3},
    {"execution__framework": "torchtitan", "plan__zero": 1},
    {"execution__framework": "megatron-core", "plan__zero": 3},
]


def run_of(schedule: str, vpp: int, microbatches: int, **more: Any) -> TrainingRun:
    return made(
        "llama3-8b",
        **{
            "plan__pp": 4,
            "plan__vpp": vpp,
            "plan__dp": 2,
            "plan__schedule": schedule,
            "batch__global": 2 * microbatches,
            **more,
        },
    )


def order_of(run: TrainingRun) -> Order:
    plan = run.plan
    return registry.order(plan.schedule, ranks=plan.pp, chunks=plan.vpp, microbatches=run.microbatches)


@dataclass
class Replay:
    """Replays one rank unit by unit; `kept` holds the bytes of each unit by (microbatch, chunk)."""

    counter: ChunkCounter
    chunks: tuple[ChunkUnits, ...]
    in_transfer: int
    kept: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    gradients: dict[int, float] = field(default_factory=dict)
    peak: float = 0.0

    def note(self, working: float) -> None:
        alive = sum(map(sum, self.kept.values())) + sum(self.gradients.values())
        self.peak = max(self.peak, alive + working)

    def forward(self, microbatch: int, chunk: int) -> None:
        units = self.units(chunk)
        own = self.kept[microbatch, chunk] = []
        for place, unit in enumerate(units):
            own.append(unit.kept)
            ahead = self.gathered(units[place:])
            self.note(unit.activations.forward_working_bytes + unit.gathered + ahead)

    def units(self, chunk: int) -> list[UnitMemory]:
        return self.counter.units(self.chunks[chunk])

    def working(self, units: list[UnitMemory], place: int) -> float:
        return units[place].backward_working + self.of_weights(units, place)

    def of_weights(self, units: list[UnitMemory], place: int) -> float:
        """Bytes of weights and of their gradients while a unit's backward runs."""
        unit = units[place]
        behind = self.gathered(units[place::-1])
        return unit.gathered + behind + unit.unreduced + self.reduced(units[place + 1 :])

    def gathered(self, units: list[UnitMemory]) -> float:
        """Bytes gathered of the units after the first of these."""
        if not self.in_transfer:
            return sum(unit.gathered for unit in units[1:2])
        held = accumulate(unit.elements for unit in units)
        return sum(
            unit.gathered for unit, before in zip(units[1:], held, strict=False) if before < self.in_transfer / 2
        )

    def reduced(self, units: list[UnitMemory]) -> float:
        """Bytes of whole gradients of the units whose backwards came before."""
        waiting: list[UnitMemory] = []
        for unit in reversed(units if self.in_transfer else []):
            while sum(each.elements for each in waiting) > self.in_transfer:
                del waiting[0]
            waiting.append(unit)
        return sum(unit.sent for unit in waiting)

    def backward(self, microbatch: int, chunk: int) -> None:
        units, own = self.units(chunk), self.kept[microbatch, chunk]
        first = chunk not in self.gradients
        self.gradients.setdefault(chunk, 0.0)
        for place in reversed(range(len(units))):
            if first:
                self.gradients[chunk] += units[place].gradients
            self.note(self.working(units, place))
            own.pop()
        del self.kept[microbatch, chunk]

    def inputs_half(self, microbatch: int, chunk: int) -> None:
        """Each unit holds what its weights' half needs once its inputs' half is done."""
        units, own = self.units(chunk), self.kept[microbatch, chunk]
        for place in reversed(range(len(units))):
            self.note(self.working(units, place))
            between = units[place].between
            own[place] = between.held_bytes if between else own[place]

    def weights_half(self, microbatch: int, chunk: int) -> None:
        units, own = self.units(chunk), self.kept[microbatch, chunk]
        if chunk not in self.gradients:
            self.gradients[chunk] = sum(unit.gradients for unit in units)
        for place in reversed(range(len(units))):
            self.note(units[place].weights_working + self.of_weights(units, place))
            own.pop()
        del self.kept[microbatch, chunk]

    def run(self, order: Order, rank: int) -> float:
        for kind, microbatch, chunk in order.actions[rank]:
            if kind == "F":
                self.forward(microbatch, chunk)
            elif kind == "BW":
                self.backward(microbatch, chunk)
            elif kind == "B":
                self.inputs_half(microbatch, chunk)
            else:
                self.weights_half(microbatch, chunk)
        assert not self.kept
        return self.peak


RECOMPUTED: dict[str, dict[str, Any]] = {
    "all": {"plan__recompute": "full"},
    "some": {"plan__recompute": "full", "plan__recompute_method": "block"},
    "modules": {"plan__recompute": "selective", "plan__recompute_modules": "layernorm, mlp"},
    "operators": {"plan__recompute": "ops"},
}
OF_MEGATRON: dict[str, dict[str, Any]] = {
    name: {"execution__framework": "megatron-core", "plan__zero": 1, **recomputed}
    for name, recomputed in RECOMPUTED.items()
}
REPLAYED = dict(zip(("megatron", "fsdp", "torch-zero-1", "megatron-fsdp"), FRAMEWORKS, strict=True)) | OF_MEGATRON


@pytest.mark.parametrize("framework", REPLAYED.values(), ids=list(REPLAYED))
@pytest.mark.parametrize(
    ("schedule", "vpp", "microbatches"),
    [*SCHEDULES, ("zb-auto", 1, 6)],
    ids=[*(name for name, _, _ in SCHEDULES), "zb-auto"],
)
def test_the_peak_is_that_of_a_replay(schedule: str, vpp: int, microbatches: int, framework: dict[str, Any]) -> None:
    run = run_of(schedule, vpp, microbatches, **framework)
    counting, order = MemoryModel(run), order_of(run)
    profile = memory_profile_of(run)
    counter = ChunkCounter(run, profile)
    for rank, chunks in enumerate(chunks_of_ranks(run)):
        replay = Replay(counter=counter, chunks=chunks, in_transfer=profile.elements_in_transfer)
        replayed = replay.run(order, rank)
        assert peak_of_order(order.rows[rank], counting.chunks[rank]).total == pytest.approx(replayed)


sizes = st.floats(0, 100)
instants = st.builds(Instant, activations=sizes, working=sizes)


@st.composite
def chunk_bytes(draw: st.DrawFn) -> ChunkMemory:
    kept, gradients, made_so_far = draw(sizes), draw(sizes), draw(st.floats(0, 1))
    within = st.builds(Instant, activations=st.floats(0, kept) if kept else st.just(0.0), working=sizes)
    backward = draw(within)
    return ChunkMemory(
        kept=kept,
        forward=draw(within),
        backward=backward,
        first_backward=replace(backward, gradients=gradients * made_so_far),
        halves=Halves(inputs=backward, held=kept, weights_working=backward.working),
        gradients=gradients,
    )


@settings(max_examples=60)
@given(
    chunk=chunk_bytes(),
    schedule=st.sampled_from(IN_CLOSED_FORM),
    ranks=st.integers(1, 6),
    microbatches=st.integers(1, 9),
)
def test_the_closed_form_is_the_replay_of_the_order(
    chunk: ChunkMemory, schedule: str, ranks: int, microbatches: int
) -> None:
    order = registry.order(schedule, ranks=ranks, chunks=1, microbatches=microbatches)
    for rank in range(ranks):
        closed = peak_in_closed_form(schedule, chunk, ranks=ranks, rank=rank, microbatches=microbatches)
        replayed = peak_of_order(order.rows[rank], [chunk])
        assert closed.total == pytest.approx(replayed.total)
        assert order.actions[rank][closed.index] == closed.action


def test_live_microbatches_are_those_of_1f1b() -> None:
    """The count is min(m, p − r), not a factor for all ranks."""
    run = run_of("1f1b", 1, 3)
    layers = [rank.layers for rank in memory_of(run).ranks]
    (unit,) = {
        unit for chunks in chunks_of_ranks(run) for chunk in chunks for unit in chunk.units if unit.role == "layer"
    }
    layer = ChunkCounter(run, memory_profile_of(run)).unit(unit).kept
    live = [rank.activations / (layer * layers[rank.rank]) for rank in memory_of(run).ranks]
    assert [round(each) for each in live[:3]] == [3, 3, 2]


def test_the_end_with_the_logits_can_be_the_fullest() -> None:
    """Few layers and a wide vocabulary: the last rank; many live microbatches: the first."""
    few = made("llama3-8b", layers=2, plan__pp=2, batch__global=8)
    many = made("llama3-8b", plan__pp=8, batch__global=16)
    assert memory_of(few).worst.rank == 1
    assert memory_of(many).worst.rank == 0


def test_pairs_that_run_as_one_hold_the_working_sets_of_both() -> None:
    run = run_of("dualpipev", 2, 8)
    counting, order = MemoryModel(run), order_of(run)
    counter = ChunkCounter(run, memory_profile_of(run))
    for rank, chunks in enumerate(chunks_of_ranks(run)):
        one_by_one = Replay(counter=counter, chunks=chunks, in_transfer=0).run(order, rank)
        assert peak_of_order(order.rows[rank], counting.chunks[rank]).total >= one_by_one * (1 - 1e-12)


def test_two_chains_hold_two_stages_of_weights_a_rank() -> None:
    twice = run_of("dualpipe", 2, 8)
    once = run_of("1f1b", 1, 8)
    elements = [sum(rank.elements for rank in memory_of(run).ranks) for run in (once, twice)]
    assert elements[1] == 2 * elements[0]


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=["megatron", "fsdp", "torch-zero-1", "megatron-fsdp"])
@pytest.mark.parametrize(("schedule", "vpp", "microbatches"), [*SCHEDULES, ("dualpipev", 2, 8)])
def test_the_course_of_a_step_has_the_peak_at_its_highest(
    schedule: str, vpp: int, microbatches: int, framework: dict[str, Any]
) -> None:
    step = estimated(run_of(schedule, vpp, microbatches, **framework))
    for rank, course in zip(step.memory.ranks, step.memory_timeline, strict=True):
        top = int(np.argmax(course.total))
        assert course.total[top] == pytest.approx(rank.peak)
        assert np.allclose(course.start_us[1:], course.end_us[:-1])
        assert (course.end_us[-1] == step.step_time.median_us) and course.start_us[0] == 0
        if rank.when.start_us is not None:
            assert course.start_us[top] <= rank.when.end_us
            assert course.end_us[top] >= rank.when.start_us


def test_timed_and_untimed_estimates_agree() -> None:
    for schedule, vpp, microbatches in SCHEDULES:
        run = run_of(schedule, vpp, microbatches)
        timed, untimed = estimated(run).memory, memory_of(run)
        for one, other in zip(timed.ranks, untimed.ranks, strict=True):
            assert one.peak == pytest.approx(other.peak)
            assert one.when.action == other.when.action
            assert one.when.start_us is not None


def test_a_forward_and_the_backward_beside_it_hold_what_both_need() -> None:
    row = np.array([(F, 1, 0, 1), (BW, 0, 0, 0), (BW, 1, 0, 0)], dtype=np.int32)
    alone = Trace(
        activations=np.array([10.0, 7.0, 5.0]),
        working=np.array([1.0, 2.0, 4.0]),
        gradients=np.array([0.0, 3.0, 3.0]),
        activations_after=np.zeros(3),
        gradients_after=np.zeros(3),
    )
    both = _with_pairs(row, alone)
    assert both.activations.tolist() == [10, 10, 5]
    assert both.working.tolist() == [3, 3, 4]
    assert both.gradients.tolist() == [3, 3, 3]


def test_best_needs_times() -> None:
    with pytest.raises(ConfigError, match=r"plan.schedule: best .* name a schedule"):
        memory_of(run_of("best", 1, 8))


def test_gradients_that_are_made_in_the_backward_are_not_there_before() -> None:
    """One microbatch of plain torch: the peak of its activations meets no gradients, as Megatron's buffers would."""
    lazy = memory_of(made("llama3-8b", execution__framework="torch", batch__global=1)).worst
    buffered = memory_of(made("llama3-8b", batch__global=1)).worst
    assert lazy.gradients < 2 * lazy.elements or lazy.when.action == "the optimizer's step"
    assert buffered.gradients == 4 * buffered.elements


def test_the_optimizers_step_is_the_peak_where_it_copies_gradients() -> None:
    """DeepSpeed's fp16 optimizer: fp32 copies of its share of the gradients, with few activations."""
    run = made("llama3-8b", execution__framework="megatron-deepspeed", precision="fp16", batch__seq_len=128)
    worst = memory_of(run).worst
    assert worst.when.action == "the optimizer's step"
    assert (worst.activations, worst.working) == (0.0, 4 * worst.elements)
