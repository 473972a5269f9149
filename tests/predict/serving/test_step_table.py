"""Steps far beyond the first contexts of the table: windows end what is read, and the scheduler's loop agrees with the table."""

from collections.abc import Callable

import numpy as np
import pytest

from predict.ledger.conventions import in_chunks
from predict.serving import simulate
from predict.serving.batch import Chunk, Seen, StepBatch, pairs_within, sums_of
from predict.serving.kv_cache import BlockPool
from predict.serving.step_model import MODELS
from predict.serving.step_table import StepTable
from predict.serving.stepper import stepper
from tests.predict.serving.servers import engine, requests, server

BUDGET = 256
SMALL = engine(max_num_seqs=16, max_num_batched_tokens=BUDGET)
WINDOW = 4096
"""Keys that the layers of Mistral-7B see, and half of those of Gemma-2-27B."""


def times_us(table: StepTable, *batches: StepBatch) -> list[float]:
    return table.times_us(sums_of(batches, table.seen)).tolist()


def decoded_us(model: str, name: str, *contexts: int) -> list[float]:
    """Steps of 16 decodes with so many keys each."""
    table = stepper(server(model, settings=SMALL), name).table
    return times_us(table, *(StepBatch(decodes=(context,) * 16) for context in contexts))


def chunk_us(model: str, name: str, *contexts: int) -> list[float]:
    """Steps of one chunk after so many tokens."""
    table = stepper(server(model, settings=SMALL), name).table
    return times_us(table, *(StepBatch(chunks=(Chunk(tokens=BUDGET, context=context),)) for context in contexts))


@pytest.mark.parametrize("name", ["kernels", "formula"])
@pytest.mark.parametrize("step_us", [decoded_us, chunk_us])
def test_a_step_reads_no_more_than_the_window(step_us: Callable[..., list[float]], name: str) -> None:
    below, *beyond = step_us("mistral-7b", name, 0, WINDOW, 2 * WINDOW, 8 * WINDOW)
    assert below < 0.97 * beyond[0]
    assert beyond[1:] == pytest.approx([beyond[0]] * 2, rel=1e-3)


@pytest.mark.parametrize("step_us", [decoded_us, chunk_us])
@pytest.mark.parametrize("model", ["mistral-7b", "gemma2-27b", "llama3-8b"])
def test_time_never_decreases_with_the_context(model: str, step_us: Callable[..., list[float]]) -> None:
    contexts = (0, 100, 1000, WINDOW - BUDGET, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 30_000, 100_000)
    assert (np.diff(step_us(model, "kernels", *contexts)) >= -1e-6).all()


def test_decodes_of_a_full_cache_cost_ever_more() -> None:
    short, mid, far = decoded_us("llama3-8b", "kernels", 8192, 16384, 32768)
    assert far - mid == pytest.approx(2 * (mid - short), rel=0.1)


@pytest.mark.parametrize(
    ("context", "tokens", "window"), [(0, 9, 4), (2, 9, 4), (3, 1, 4), (4, 9, 4), (50, 9, 4), (5, 9, 0)]
)
def test_pairs_within_a_window(context: int, tokens: int, window: int) -> None:
    """Half a key less for each query, since each sees its own."""
    seen = [min(context + place + 1, window or context + place + 1) for place in range(tokens)]
    growing = sum(one < window or not window or context + place + 1 == window for place, one in enumerate(seen))
    assert pairs_within(context, tokens, Seen(most=window)) == sum(seen) - growing / 2


@pytest.mark.parametrize(("context", "tokens"), [(0, 9), (2, 9), (3, 1), (4, 9), (50, 9), (7, 2), (8, 4)])
def test_pairs_within_chunks_are_those_that_training_counts(context: int, tokens: int) -> None:
    """Half a key less for each query, since each sees its own; a prompt from its start has the pairs of its chunks as sequences."""
    chunks = Seen(most=4, in_chunks=True)
    seen = [(context + place) % 4 + 1 for place in range(tokens)]
    assert pairs_within(context, tokens, chunks) == sum(seen) - tokens / 2
    alone = in_chunks({context + tokens: 1}, 4)
    assert pairs_within(0, context + tokens, chunks) == sum(count * length**2 / 2 for length, count in alone.items())


@pytest.mark.parametrize(
    "model, tp, chunks", [("mistral-7b", 1, 100), ("llama3-8b", 1, 100), ("llama4-scout-17b-16e", 8, 96)]
)
def test_the_loop_has_the_times_of_the_table(model: str, tp: int, chunks: int) -> None:
    """A prompt in chunks, then its decodes, far beyond 8,192 keys; those of Llama 4 go on from one of its own chunks to the next."""
    table, prompt, output = stepper(server(model, tp=tp, settings=SMALL), "kernels").table, chunks * BUDGET - 3, 9
    served = simulate.serve(SMALL, BlockPool(blocks=10_000), table, requests((0.0, prompt, output)), traced=200)
    steps = [
        StepBatch(chunks=(Chunk(tokens=min(BUDGET, prompt - done), context=done),)) for done in range(0, prompt, BUDGET)
    ]
    steps += [StepBatch(decodes=(prompt + made,)) for made in range(output - 1)]
    assert served.trace[:, 1] == pytest.approx(times_us(table, *steps))


def test_every_model_has_its_window_in_the_table() -> None:
    for name, model in MODELS.items():
        windowed = server("gemma2-27b", settings=SMALL)
        assert windowed.model.window in stepper(windowed, name).table.contexts, model.name
