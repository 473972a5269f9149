"""Orders and times of schedules equal stored ones: torch's, the zero-bubble authors', DeepSeek's and restated rules."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from predict.schedules import registry
from predict.schedules.engine.order import CODE, Order, Placement, loop, opposite_chains, v_shape
from predict.schedules.engine.timing import ChunkTimes, makespan, makespans, simulate
from tests.oracles.shared import SHARED
from tests.predict.schedules.paper_bubbles import bubble_of

PIPELINE = SHARED / "oracles" / "pipeline"

SOURCES = ("torch", "rules", "zero_bubble_authors", "deepseek")
NAMES = {
    "gpipe": "afab",
    "looped_bfs": "looped-bfs",
    "1f1b": "1f1b",
    "interleaved_1f1b": "interleaved-1f1b",
    "zb_h1": "zb-h1",
    "zb_h2": "zb-h2",
    "interleaved_zb": "interleaved-zb",
    "zbv": "zbv",
    "dualpipe": "dualpipe",
    "dualpipev": "dualpipev",
    "v_half": "v-half",
    "v_min": "v-min",
    "zbv_greedy_full": "zbv-greedy",
    "zb_auto_k1": "zb-auto",
    "zb_auto_k1.5": "zb-auto",
    "zb_auto_k2": "zb-auto",
}
"""The tables' name of a schedule → ours. 1F1B on the last rank of torch's own table counts forwards from 1; the stored
table has that repaired."""
V_SHAPED = {"zbv", "zbv_greedy_full", "v_half", "v_min", "v_1f1b", "dualpipev"}


@cache
def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PIPELINE / name).read_text())
    return content


def counts(key: str) -> tuple[str, int, int, int]:
    """Schedule, ranks, chunks and microbatches of a key like torch/1f1b/pp2_v1_m4."""
    _, name, shape = key.split("/")
    ranks, chunks, microbatches = (int(part.lstrip("pvm")) for part in shape.split("_"))
    return name, ranks, chunks, microbatches


def placement(name: str, ranks: int, chunks: int) -> Placement:
    if name in V_SHAPED:
        return v_shape(ranks, chunks)
    return opposite_chains(ranks, chunks) if name == "dualpipe" else loop(ranks, chunks)


def stored_order(source: str, key: str) -> Order:
    name, ranks, chunks, microbatches = counts(key)
    # The fourth entry, where there is one, marks half of a pair.
    table = [
        [(CODE[kind], microbatch, chunk, *(mark or [0])) for kind, microbatch, chunk, *mark in row]
        for row in load(f"orders/{source}.json")[key]
    ]
    return Order(
        rows=tuple(np.array(row, np.int32) for row in table),
        microbatches=microbatches,
        placement=placement(name, ranks, chunks),
    )


def built_order(key: str, times: ChunkTimes) -> Order:
    """Ours; zb-auto under the limit of the key, k·p activations."""
    name, ranks, chunks, microbatches = counts(key)
    limit = round(float(name.removeprefix("zb_auto_k")) * ranks) if NAMES[name] == "zb-auto" else None
    return registry.order(
        NAMES[name], ranks=ranks, chunks=chunks, microbatches=microbatches, times=times, memory_limit=limit
    )


def of_source(source: str) -> dict[str, Any]:
    """Key in the orders → stored results, whose keys have the source for the orders' prefix and one name spelt out."""
    results = load("makespans.json")["results"]
    found = {
        key: results[f"{source}/{key.split('/', 1)[1].replace('interleaved_zb', 'interleaved_zero_bubble_authors')}"]
        for key in load(f"orders/{source}.json")
    }
    assert found
    return found


def times_of(key: str) -> dict[str, ChunkTimes]:
    sets = load("makespans.json")["times"][key.rsplit("/", 1)[1].rsplit("_", 1)[0]]
    return {
        name: ChunkTimes(forward=forward, backward_input=backward_input, backward_weight=backward_weight, p2p=p2p)
        for name, (forward, backward_input, backward_weight, p2p) in sets.items()
    }


@pytest.mark.parametrize("source", SOURCES)
def test_every_stored_order_is_timed_as_stored(source: str) -> None:
    for key, stored in of_source(source).items():
        order = stored_order(source, key)
        for name, times in times_of(key).items():
            timeline = simulate(order, times)
            assert makespan(order, times) == timeline.makespan, (key, name)
            assert list(timeline.peak_chunks()) == stored["peak_act_chunks_freeW"], key
            assert list(timeline.peak_chunks(released_by_b=1)) == stored["peak_act_chunks_freeB"], key
            expected = stored["res"][name]
            found = {
                "makespan": timeline.makespan,
                "span": timeline.span.max(),
                "bubble": timeline.bubble_fraction,
                "paper_bubble": timeline.span_bubble_fraction,
            }
            assert found == pytest.approx(expected, abs=1e-6), (key, name)


@pytest.mark.parametrize("source", SOURCES)
def test_stored_orders_are_timed_alike_for_all_sets_at_once(source: str) -> None:
    for key in of_source(source):
        order = stored_order(source, key)
        sets = times_of(key).values()
        together = ChunkTimes(
            forward=np.array([times.forward for times in sets]),
            backward_input=np.array([times.backward_input for times in sets]),
            backward_weight=np.array([times.backward_weight for times in sets]),
            p2p=np.array([[times.p2p] for times in sets]),
        )
        for blocking in (False, True):
            alone = [makespan(order, replace(times, blocking=blocking)) for times in sets]
            assert makespans(order, replace(together, blocking=blocking)).tolist() == alone, (key, blocking)


@pytest.mark.parametrize("source", SOURCES)
def test_built_orders_equal_the_stored_ones(source: str) -> None:
    seen = set()
    for key in load(f"orders/{source}.json"):
        name, ranks, chunks, _ = counts(key)
        if name in NAMES:
            built = built_order(key, registry.EQUAL)
            stored = stored_order(source, key)
            for mine, theirs in zip(built.rows, stored.rows, strict=True):
                assert np.array_equal(mine, theirs), key
            assert built.placement == placement(name, ranks, chunks)
            seen.add(name)
    assert seen


def test_solved_orders_are_never_slower_than_the_stored_ones() -> None:
    for key in load("orders/zero_bubble_authors.json"):
        if counts(key)[0].startswith(("zb_auto", "zbv_greedy")):
            for name, times in times_of(key).items():
                stored = makespan(stored_order("zero_bubble_authors", key), times)
                assert makespan(built_order(key, times), times) <= stored * (1 + 1e-9), (key, name)


def test_bubble_rates_with_the_papers_times_are_exact() -> None:
    rows = load("iclr24.json")["rows"]
    assert rows
    for row in rows:
        counts = (row["ranks"], row["microbatches"], row["layers"])
        profiled_us = (row["forward_us"], row["backward_input_us"], row["backward_weight_us"], row["p2p_us"])
        for name, exact in row["exact_bubble"].items():
            assert bubble_of(name, counts, profiled_us) == pytest.approx(exact, abs=1e-9), (name, counts)
