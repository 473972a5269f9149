"""The compiled loops come to the same as Python's, and only come in once there is enough to do."""

import numpy as np
import pytest

from predict.schedules import registry
from predict.schedules.engine import program
from predict.schedules.engine import timing as engine
from predict.schedules.engine import timing as recycling
from predict.schedules.engine.order import Action, Order, loop
from predict.schedules.engine.timing import ChunkTimes, makespan, simulate
from sampling.errors import InfeasibleError
from sampling.files import machine_code as compiled

TIMES = ChunkTimes(forward=1.0, backward_input=1.1, backward_weight=0.7, p2p=0.05)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> compiled._Account:
    """The state at the start of a process."""
    fresh = compiled._Account()
    monkeypatch.setattr(compiled, "ACCOUNT", fresh)
    return fresh


def test_little_work_is_left_to_python(account: compiled._Account) -> None:
    assert not compiled.pays(compiled.PATIENCE)
    assert compiled.pays(1) == compiled.numba_is_there()


def test_a_large_order_timed_again_pays(account: compiled._Account) -> None:
    assert not compiled.pays(compiled.PATIENCE_AGAIN)
    assert not compiled.pays(compiled.PATIENCE_AGAIN - 1, again=True)
    assert compiled.pays(1, again=True) == compiled.numba_is_there()


def test_one_long_loop_pays_at_once(account: compiled._Account) -> None:
    assert not compiled.pays(1)
    assert compiled.pays(compiled.LONG) == compiled.numba_is_there()
    assert compiled.pays(1) == compiled.numba_is_there()


@pytest.mark.parametrize(("name", "chunks"), [("1f1b", 1), ("interleaved-zb", 3), ("zbv", 2), ("dualpipe", 2)])
def test_both_forms_agree_to_the_bit(name: str, chunks: int, account: compiled._Account) -> None:
    pytest.importorskip("numba")
    order = registry.order(name, ranks=4, chunks=chunks, microbatches=12)
    results = []
    for turns in (0, compiled.PATIENCE):
        account.turns = turns
        program.compile_order.cache_clear()
        timeline = simulate(order, TIMES)
        results.append((makespan(order, TIMES), [end.tolist() for end in timeline.end]))
    assert results[0] == results[1]


def test_the_compiled_form_finds_a_deadlock(account: compiled._Account) -> None:
    pytest.importorskip("numba")
    f0, f1, b0, b1 = (Action(kind, microbatch, 0) for kind in ("F", "BW") for microbatch in (0, 1))
    order = Order.of(((f0, b0, f1, b1), (f0, f1, b0, b1)), microbatches=2, placement=loop(2, 1))
    account.turns = compiled.PATIENCE
    with pytest.raises(InfeasibleError, match="rank 0 stops at BW of microbatch 0"):
        makespan(order, TIMES)


def test_everything_works_without_numba(account: compiled._Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "numba_is_there", lambda: False)
    account.turns = compiled.PATIENCE
    order = registry.order("1f1b", ranks=3, chunks=1, microbatches=7)
    assert np.isfinite(engine.makespan(order, TIMES))


@pytest.mark.parametrize(("name", "microbatches"), [("zbv", 12), ("interleaved-1f1b", 400)])
def test_both_forms_of_many_sets_agree_to_the_bit(
    name: str, microbatches: int, account: compiled._Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longer order is folded, and continued at the pace of its last copies; the sets are timed in two whole blocks and a rest."""
    pytest.importorskip("numba")
    monkeypatch.setattr(recycling, "CACHED_BYTES", 0)
    sets = 2 * recycling.LANES + 5
    order = registry.order(name, ranks=4, chunks=2, microbatches=microbatches)
    assert microbatches == 12 or (order.folded and order.folded.more)
    forward, backward_input, backward_weight = np.random.default_rng(0).uniform(0.5, 1.5, (3, sets, 4, 2))
    times = ChunkTimes(forward=forward, backward_input=backward_input, backward_weight=backward_weight, p2p=0.05)
    results = []
    for turns in (0, compiled.PATIENCE):
        account.turns = turns
        results.append(engine.rank_ends(order, times))
    np.testing.assert_array_equal(*results)
