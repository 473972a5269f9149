"""The engine's loop as machine code answers as it does in Python: in a file of its own, so that only one process compiles it."""

import numpy as np
import pytest

from predict.serving import simulate
from predict.serving.kv_cache import BlockPool
from predict.serving.server import EngineSettings
from predict.serving.simulate import Served, serve
from predict.serving.step_table import StepTable
from predict.serving.stepper import stepper
from predict.serving.traffic import Traffic
from tests.predict.serving.servers import drafted, engine, requests, server, unit_table

SMALL = engine(max_num_seqs=16, max_num_batched_tokens=256)


@pytest.fixture(autouse=True, scope="module")
def with_numba() -> None:
    pytest.importorskip("numba")


def both(
    settings: EngineSettings, blocks: int, table: StepTable, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> list[Served]:
    """The requests served by the loop in Python, and by its machine code."""
    found = []
    for machine_code in (False, True):
        monkeypatch.setattr(simulate, "pays_to_compile", lambda *_, answer=machine_code: answer)
        found.append(serve(settings, BlockPool(blocks=blocks), table, traffic, traced=200))
    return found


def test_prompts_that_are_found_and_preemptions(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = requests(*[(9.0 * place, 40 + place % 7, 40 + place % 11) for place in range(40)], shared=33)
    plain, compiled = both(engine(asynchronous=True), 12, unit_table(), traffic, monkeypatch)
    np.testing.assert_allclose(compiled.last_us, plain.last_us)
    assert compiled.preemptions == plain.preemptions > 0


def test_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = requests(*((50.0 * place, 40, 30) for place in range(20)))
    plain, compiled = both(engine(), 30, drafted(3, 0.6), traffic, monkeypatch)
    assert np.array_equal(compiled.last_us, plain.last_us)


@pytest.mark.parametrize(("model", "tp"), [("mistral-7b", 1), ("llama3-8b", 1), ("llama4-scout-17b-16e", 8)])
def test_steps_far_beyond_the_table(model: str, tp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one of Llama 4's own chunks to the next, of 8,192 tokens."""
    table = stepper(server(model, tp=tp, settings=SMALL), "kernels").table
    plain, compiled = both(SMALL, 10_000, table, requests((0.0, 24_573, 6)), monkeypatch)
    np.testing.assert_allclose(compiled.trace, plain.trace)
