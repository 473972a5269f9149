"""The real server's scheduler beside the simulated loop: two programs of the same rules, which must admit alike."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predict.measurement.serving.engine import Arrivals, RealServer, RequestTimes, prompts_of
from predict.measurement.serving.scheduler import Scheduler, Turn, ngram_drafts
from predict.serving.kv_cache import BlockPool
from predict.serving.server import EngineSettings
from predict.serving.simulate import serve
from predict.serving.speculation import Speculation
from predict.serving.traffic import Traffic
from sampling.errors import UserError
from sampling.units import SECOND_US
from tests.predict.serving.servers import engine, requests, unit_table


class Stopped:
    """A clock that moves on request."""

    waited_s = 0.0

    def __init__(self) -> None:
        self.time_s = 0.0

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


class Model:
    """A model whose steps take the times of `unit_table`, and which checks what it is asked for."""

    def __init__(self, clock: Stopped, scheduler: Scheduler) -> None:
        self.clock, self.scheduler = clock, scheduler

    def next_tokens(self, turns: Sequence[Turn]) -> list[list[int]]:
        cache = self.scheduler.cache
        for turn in turns:
            held, needed = len(turn.request.blocks) * cache.block, turn.context + turn.tokens + len(turn.drafts)
            assert needed <= held < needed + len(turn.drafts) + cache.block
        held_by = [set(request.blocks) for request in self.scheduler.running]
        assert len(set().union(*held_by)) + cache.free == cache.count
        self.clock.time_s += (1 + sum(turn.tokens for turn in turns if not turn.decode)) / SECOND_US
        return [[0] * (1 + len(turn.drafts)) for turn in turns]


def really_served(settings_of: EngineSettings, blocks: int, traffic: Traffic) -> RequestTimes:
    clock = Stopped()
    scheduler = Scheduler(settings_of, blocks)
    found = RealServer(Model(clock, scheduler), scheduler, clock).serve(  # type: ignore[arg-type]
        Arrivals(traffic, prompts_of(traffic, 10_000)), len(traffic)
    )
    assert scheduler.cache.free == blocks
    return found


def assert_alike(traffic: Traffic, blocks: int, **changes: Any) -> RequestTimes:
    settings_of = engine(**changes)
    real = really_served(settings_of, blocks, traffic)
    simulated = serve(settings_of, BlockPool(blocks=blocks), unit_table(), traffic, traced=len(real.steps))
    batches = [(len(step.chunks), sum(tokens for tokens, _ in step.chunks), len(step.decodes)) for step in real.steps]
    assert batches == [(int(row[2]), int(row[3]), int(row[4])) for row in simulated.trace]
    assert simulated.steps == len(real.steps)
    assert real.preemptions == simulated.preemptions
    for ours, theirs in ((real.start_us, simulated.start_us), (real.last_us, simulated.last_us)):
        assert ours == pytest.approx(theirs.tolist(), abs=1e-3)
    return real


class Drafting(Model):
    """The same with drafts that are all accepted, or none of them."""

    def __init__(self, clock: Stopped, scheduler: Scheduler, *, accepts: bool) -> None:
        super().__init__(clock, scheduler)
        self.accepts = accepts

    def next_tokens(self, turns: Sequence[Turn]) -> list[list[int]]:
        super().next_tokens(turns)
        return [[draft if self.accepts else draft + 1 for draft in turn.drafts] + [7] for turn in turns]


@pytest.mark.parametrize("accepts", [False, True])
@pytest.mark.parametrize(
    ("each", "blocks"),
    [
        ([(0, 100, 9), (0, 60, 14)], 100),
        ([(0, 31, 40), (0, 31, 40)], 6),
        ([(0, 4, 9), (500, 4, 2), (900, 90, 30)], 100),
    ],
)
def test_drafts_take_the_same_turns_and_blocks(each: list[tuple[float, int, int]], blocks: int, accepts: bool) -> None:
    clock, traffic, settings_of = Stopped(), requests(*each), engine(prefix_caching=False)
    scheduler = Scheduler(settings_of, blocks, drafts=3)
    model = Drafting(clock, scheduler, accepts=accepts)
    arrivals = Arrivals(traffic, prompts_of(traffic, 10_000))
    real = RealServer(model, scheduler, clock).serve(arrivals, len(traffic))  # type: ignore[arg-type]
    speculation = Speculation(kind="ngram", tokens=3, acceptance=float(accepts))
    table = replace(unit_table(8, 80), speculation=speculation)
    simulated = serve(settings_of, BlockPool(blocks=blocks), table, traffic, traced=len(real.steps))
    batches = [(len(step.chunks), sum(tokens for tokens, _ in step.chunks), len(step.decodes)) for step in real.steps]
    assert batches == [(int(row[2]), int(row[3]), int(row[4])) for row in simulated.trace]
    assert real.last_us == pytest.approx(simulated.last_us.tolist(), abs=1e-3)
    assert set(real.accepted) == {3 * accepts}


def test_drafts_are_what_followed_the_same_tokens_before() -> None:
    assert ngram_drafts([5, 1, 2, 3, 8, 9, 1, 2, 3], 2) == (8, 9)
    assert ngram_drafts([4, 1, 7, 6, 1], 3) == (7, 6, 1)  # only one token matches
    assert ngram_drafts([1, 2, 3], 2) == (3, 3)
    assert ngram_drafts([6, 6], 3) == (6, 6, 6)


@pytest.mark.parametrize(("prompt", "computed"), [(48, 16), (50, 2), (49, 1)])
def test_a_known_prompt_computes_what_is_not_in_whole_blocks_and_its_last_token(prompt: int, computed: int) -> None:
    real = assert_alike(requests((0, prompt, 1), (1000, prompt, 1), shared=prompt), 100)
    assert [step.chunks for step in real.steps] == [((prompt, 0),), ((computed, prompt - computed),)]


def test_a_request_that_never_fits_is_named() -> None:
    with pytest.raises(UserError, match="request 0: 40 tokens do not fit into 2 blocks"):
        really_served(engine(), 2, requests((0, 40, 1)))


def in_order(
    each: list[tuple[int, int, int]], *, least: int = 1, at_once: bool = False
) -> list[tuple[float, int, int]]:
    """Requests by arrival, none of which comes just when a step ends that another one began, so that rounding decides nothing."""
    return [
        (0.0 if at_once else arrival + place / 32, max(prompt, least), output)
        for place, (arrival, prompt, output) in enumerate(sorted(each))
    ]


LOADS = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 80), st.integers(1, 40)), min_size=1, max_size=20)


@settings(max_examples=60)
@given(
    each=LOADS,
    blocks=st.integers(8, 20),
    in_flight=st.sampled_from([0, 3]),
    chunked=st.booleans(),
    places=st.sampled_from([2, 4]),
)
def test_any_load_is_admitted_alike_with_preemption(
    each: list[tuple[int, int, int]], blocks: int, in_flight: int, chunked: bool, places: int
) -> None:
    ordered = in_order(each, at_once=in_flight > 0)
    traffic = requests(*ordered, in_flight=min(in_flight, len(ordered)))
    tokens = 64 if chunked else 128
    rules = {"chunked_prefill": chunked, "max_num_batched_tokens": tokens, "max_num_seqs": places}
    real = assert_alike(traffic, blocks, prefix_caching=False, **rules)
    computed = sum(tokens for step in real.steps for tokens, _ in step.chunks)
    assert computed >= traffic.prompt.sum()
    assert sum(len(step.decodes) for step in real.steps) >= (traffic.output - 1).sum() - real.preemptions


@settings(max_examples=30)
@given(each=LOADS, shared=st.sampled_from([16, 33, 70]))
def test_shared_prompts_are_found_alike(each: list[tuple[int, int, int]], shared: int) -> None:
    assert_alike(requests(*in_order(each, least=shared), shared=shared), 1000)
