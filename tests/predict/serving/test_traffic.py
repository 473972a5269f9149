"""Lengths of requests drawn from distributions, the same as those of RL steps."""

from pathlib import Path

import numpy as np
import pytest

from predict.run.lengths import real_lengths, scaled_lengths
from predict.serving.coefficients import Client
from predict.serving.config import load_serving
from predict.serving.latency import Latency, latency_of
from predict.serving.loaded_server import LoadedServer
from predict.serving.stepper import stepper
from predict.serving.traffic import Load, Prefix, traffic_of
from sampling.errors import ConfigError, UserError
from tests.predict.serving.servers import CONFIG, fleet

BY_MEAN = "lognormal:mean=600,p90=1200"


def test_a_lognormal_is_given_by_its_mean_and_p90_too() -> None:
    lengths = np.array(real_lengths(BY_MEAN, 20_000, Path()))
    assert (lengths.mean(), np.percentile(lengths, 90)) == pytest.approx((600, 1200), rel=0.01)
    twice = np.array(real_lengths(str(scaled_lengths(BY_MEAN, 2.0)), 20_000, Path()))
    assert twice.mean() == pytest.approx(1200, rel=0.01)
    for wrong in ("lognormal:mean=600,p90=600", "lognormal:mean=600,p90=1400"):
        with pytest.raises(ConfigError, match=r"a p90 lies above its mean, 2\.27 times at most"):
            real_lengths(wrong, 10, Path())


@pytest.mark.parametrize("count", [400, 10_000])
def test_requests_have_the_lengths_of_the_distribution(count: int) -> None:
    load = Load(
        rate=count / 100, duration_s=100, prompt_lengths=BY_MEAN, output_lengths="uniform:50..150", prompt_max=2000
    )
    traffic = traffic_of(load)
    assert (len(traffic), traffic.prompt.max()) == (count, 2000)
    assert np.median(traffic.prompt) == pytest.approx(444, rel=0.02)
    assert (traffic.output.mean(), traffic.output.min()) == (pytest.approx(100, rel=0.01), pytest.approx(50, abs=1))
    assert abs(np.corrcoef(traffic.prompt, traffic.output)[0, 1]) < 0.2
    assert abs(np.corrcoef(np.arange(count), traffic.output)[0, 1]) < 0.2
    constant = traffic_of(Load(rate=9, prompt_lengths="constant:70", distinct_prompts=3))
    assert set(constant.prompt.tolist()) == {70}


def test_a_config_states_the_mean_of_its_distributions(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("10 20 30\n")
    run = load_serving(
        CONFIG,
        [f"load.output_lengths=file:{tmp_path}/lengths.txt", f"load.prompt_lengths={BY_MEAN}", "load.prompt_max=4096"],
    )
    assert (run.load.prompt, run.load.output) == (pytest.approx(598, abs=3), 20)


def test_uneven_answers_wait_longer_at_the_tail() -> None:
    """The same mean gives a batch that is as long on average, and longest answers that take longer."""
    runs = [
        load_serving(CONFIG, ["load.duration_s=30", "load.rate=4", setting])
        for setting in ("load.output=50", "load.output_lengths=lognormal:mean=50,p90=100")
    ]
    even, uneven = (LoadedServer(run, stepper(run.server, "formula")).as_configured().latency for run in runs)
    assert uneven.e2e.mean_us == pytest.approx(even.e2e.mean_us, rel=0.1)
    assert uneven.e2e.percentiles_us[99] > 2 * even.e2e.percentiles_us[99]


def test_lengths_and_prompts_without_end_are_cut_or_refused() -> None:
    assert real_lengths(f"constant:{'9' * 30}", 2, Path()) == real_lengths("lognormal:1e9,9", 2, Path())[1:] * 2
    with pytest.raises(UserError, match=r"load\.distinct_prompts: 1,000,000,000 are more than"):
        traffic_of(Load(rate=1, duration_s=10, prompt=10, output=10, distinct_prompts=10**9))


def under_conversations(*, rate: float, duration_s: float, turns: int, pause_s: float) -> Latency:
    """Conversations with an engine whose steps take next to no time."""
    prefix = Prefix(turns=turns, pause_s=pause_s)
    traffic = traffic_of(Load(rate=rate, duration_s=duration_s, prompt=2, output=2, prefix=prefix))
    return latency_of(fleet(traffic, blocks=1000, max_num_seqs=64), Client())


def test_conversations_are_answered_at_the_rate_that_is_stated() -> None:
    """However long their pauses are beside the load: turns that follow on one another once arrived over as long again after it."""
    for pause_s in (0.0, 5.0):
        found = under_conversations(rate=30, duration_s=15, turns=4, pause_s=pause_s)
        assert found.requests_per_s == pytest.approx(30, rel=0.1)
        assert found.is_steady


def test_a_load_whose_conversations_outlast_it_is_not_steady() -> None:
    """Ten turns of an answer that takes a second, all of which begin within one: few of them, with which the engine keeps up."""
    config = ["load.rate=10", "load.duration_s=1", "load.prompt=20", "load.output=150", "load.prefix.turns=10"]
    run = load_serving(CONFIG, config)
    found = LoadedServer(run, stepper(run.server)).as_configured()
    assert (found.latency.is_steady, found.grows) == (False, False)


def test_conversations_that_an_engine_does_not_keep_up_with_are_an_overload() -> None:
    """However long they come: the queue falls once no others begin, and was once taken for one that does not grow."""
    config = ["load.rate=60", "load.prompt=1000", "load.output=50", "load.prefix.turns=3", "engine.max_num_seqs=8"]
    for duration_s in (30, 60):
        run = load_serving(CONFIG, [*config, f"load.duration_s={duration_s}"])
        found = LoadedServer(run, stepper(run.server, "formula")).as_configured()
        assert (found.latency.is_steady, found.grows) == (False, True)
