"""Steps far beyond the first contexts of the table: windows end what decodes read, and the scheduler's loop agrees with the table."""

from __future__ import annotations

import numpy as np
import pytest

from predict.serving.batch import StepBatch, sums_of
from predict.serving.scheduler import loop, simulate
from predict.serving.scheduler import state as at
from predict.serving.step_model import MODELS
from predict.serving.stepper import stepper
from tests.predict.serving.servers import engine, server

SMALL = engine(max_num_seqs=16, max_num_batched_tokens=64)


def decoded_us(model: str, name: str, *contexts: int) -> list[float]:
    """Steps of 16 decodes with so many keys each."""
    table = stepper(server(model, settings=SMALL), name).table
    return table.times_us(sums_of([StepBatch(decodes=(context,) * 16) for context in contexts])).tolist()


@pytest.mark.parametrize("name", ["kernels", "formula"])
def test_decodes_read_no_more_than_the_window(name: str) -> None:
    below, *beyond = decoded_us("mistral-7b", name, 2048, 4096, 8192, 32768)
    assert below < 0.97 * beyond[0]
    assert beyond[1:] == pytest.approx([beyond[0]] * 2, rel=1e-3)


def test_decodes_of_a_full_cache_cost_ever_more() -> None:
    short, mid, far = decoded_us("llama3-8b", "kernels", 8192, 16384, 32768)
    assert far - mid == pytest.approx(2 * (mid - short), rel=0.1)


@pytest.mark.parametrize("model", ["mistral-7b", "llama3-8b"])
def test_the_loop_has_the_times_of_the_table(model: str) -> None:
    table = stepper(server(model, settings=SMALL), "kernels").table
    contexts = (0, 300, 512, 4000, 5000, 9000, 30_000, 100_000)
    batches = [StepBatch(decodes=(context,) * 8) for context in contexts]
    played = []
    for context in contexts:
        sums = np.zeros(at.SUMS)
        sums[at.DECODES], sums[at.CONTEXT] = 8, 8 * context
        played.append(loop.step_us(sums, simulate._table(table, np.asarray)))
    assert played == pytest.approx(table.times_us(sums_of(batches)).tolist())


def test_every_model_has_its_window_in_the_table() -> None:
    for name, model in MODELS.items():
        windowed = server("gemma2-27b", settings=SMALL)
        assert windowed.model.window in stepper(windowed, name).table.contexts, model.name
