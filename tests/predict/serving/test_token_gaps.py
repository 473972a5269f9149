"""Times between the tokens of answers: bins, percentiles, and what the engine's loop counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predict.serving.kv_cache import BlockPool
from predict.serving.questions import parse_objectives
from predict.serving.simulate import serve
from predict.serving.token_gaps import BINS, TokenGaps, gap_bin
from tests.predict.serving.servers import engine, loaded, requests, unit_table


@given(st.floats(1.0, 1e9))
def test_a_bin_is_a_percent_wide(gap_us: float) -> None:
    gaps = TokenGaps.of_steps(np.array([gap_us]), np.ones(1))
    assert gaps.mean_us == pytest.approx(gap_us, rel=0.006)
    assert gaps.percentile_us(0) == gaps.percentile_us(50) == gaps.percentile_us(99) == pytest.approx(gap_us, rel=0.006)


def test_gaps_beyond_the_bins_are_in_the_last_ones() -> None:
    assert (gap_bin(0.0), gap_bin(1e30)) == (0, BINS - 1)
    nothing = TokenGaps(counts=np.zeros(BINS))
    assert (nothing.mean_us, nothing.percentile_us(99)) == (0.0, 0.0)


def test_a_prompt_beside_an_answer_is_a_stall_of_it() -> None:
    # 100 tokens of 1 µs each, but for the one beside which 60 tokens of a prompt are computed
    served = serve(engine(), BlockPool(blocks=100), unit_table(), requests((0, 10, 101), (50, 60, 1)))
    assert served.gaps.counts.sum() == 100
    assert served.gaps.percentile_us(98) == pytest.approx(1, rel=0.01)
    assert served.gaps.percentile_us(100) == pytest.approx(61, rel=0.01)


def test_the_mean_gap_is_the_time_per_token_and_objectives_bound_it() -> None:
    server = loaded("load.rate=4")
    latency = server.as_configured().latency
    assert latency.itl.mean_us == pytest.approx(latency.tpot.mean_us, rel=0.05)
    assert latency.itl.percentiles_us[50] < latency.itl.percentiles_us[99]
    times = server.times_at(4.0)
    tight, loose = parse_objectives(["itl_p99=1us", "itl_mean=10s"])
    assert not tight.holds(times) and loose.holds(times)


def test_gaps_of_conversations_are_of_the_part_that_counts() -> None:
    """While the first conversations begin, prompts are short and tokens fast."""
    talks = ("load.rate=6", "load.output=100", "load.prefix.turns=4", "load.prefix.pause_s=20")
    latency = loaded(*talks, "load.duration_s=40").as_configured().latency
    assert latency.is_steady
    assert latency.itl.mean_us == pytest.approx(latency.tpot.mean_us, rel=0.01)
