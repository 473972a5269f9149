"""Which shapes are timed next: spread out, where a committee disagrees, and better than by chance."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regressors.accuracy.score import subset
from regressors.active import guided_sampling
from regressors.active.choice import Timed, Untimed, ask_committee, batch_rows, fill_space, most_to_learn, next_rows
from regressors.active.guided_sampling import guided, main, next_batch, shared_out
from regressors.dataset.training_data import TrainingData
from regressors.features.arrays import Floats
from regressors.models.candidates import BLEND, fit_candidate
from sampling.call import Call, Request, make_call
from sampling.choosing.tasks import SamplingTask
from sampling.hardware.cluster import load_cluster
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import RMSNorm
from sampling.ranks.job import Job
from sampling.session.run_tasks import SessionOutcome
from sampling.store.journal import append_to_journal
from sampling.store.profiles import Manifest
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples
from sampling.timing.timer import TimerSettings
from tests.made_rows import row
from tests.regressors.synthetic_operators import Product, random_products, roofline_time, sampled


def cliff(call: Call) -> float:
    """A kernel that takes one and a half times as long, and unevenly so, for narrow outputs."""
    narrow = call.n < 256
    ripple = 0.25 * math.sin(3 * math.log2(call.m)) if narrow else 0.0
    return roofline_time(call) * (1.5 if narrow else 1.0) * math.exp(ripple)


def timed(data: TrainingData) -> Timed:
    return Timed(terms=data.terms, features=data.features, time_us=data.time_us)


def untimed(data: TrainingData) -> Untimed:
    return Untimed(terms=data.terms, features=data.features, cost_s=np.ones(len(data)))


def part(
    data: TrainingData, places: Floats | list[int] | range | np.ndarray[tuple[int, ...], np.dtype[np.intp]]
) -> TrainingData:
    mask = np.zeros(len(data), dtype=np.bool_)
    mask[np.asarray(places, dtype=np.intp)] = True
    return subset(data, mask)


def test_batches_fill_the_space_then_grow_by_a_quarter() -> None:
    assert batch_rows(0) == 64
    assert batch_rows(50) == 14
    assert batch_rows(400) == 100


def test_filling_the_space_takes_one_of_each_cluster_before_two_of_any() -> None:
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    rows = (centres[:, None, :] + np.random.default_rng(0).normal(0, 0.1, (4, 10, 2))).reshape(-1, 2)
    assert sorted(fill_space(rows, 4) // 10) == [0, 1, 2, 3]
    assert len(fill_space(rows[:3], 10)) == 3


def test_no_two_of_a_batch_lie_next_to_each_other() -> None:
    rows = np.linspace(0, 1, 101)[:, None]
    chosen = np.sort(rows[most_to_learn(rows[:1], rows, np.ones(101), 9), 0])
    assert np.diff(chosen).min() > 0.05
    assert len(set(chosen)) == 9


def test_a_batch_never_repeats_a_shape_even_where_nothing_is_left_to_learn() -> None:
    rows = np.zeros((5, 2))
    assert sorted(most_to_learn(rows[:1], rows, np.ones(5), 9)) == [0, 1, 2, 3, 4]


def test_shapes_worth_more_are_chosen_more_often() -> None:
    rows = np.linspace(0, 1, 200)[:, None]
    value = np.where(rows[:, 0] < 0.5, 10.0, 1.0)
    chosen = rows[most_to_learn(rows[[0, -1]], rows, value, 20), 0]
    assert (chosen < 0.5).sum() > 12


def test_the_committee_disagrees_at_the_cliff_and_the_batch_goes_there() -> None:
    data = sampled(random_products(500, seed=1), truth=cliff)
    known, rest = part(data, range(100)), part(data, range(100, 500))
    narrow = 2 ** rest.features[:, list(rest.schema.features).index("n")] < 256
    disagreement = ask_committee(timed(known), untimed(rest)).disagreement[100:]
    assert disagreement[narrow].mean() > 1.5 * disagreement[~narrow].mean()
    chosen = next_rows(timed(known), untimed(rest), 40).places
    assert narrow[chosen].mean() > narrow.mean()


def test_the_same_rows_give_the_same_choice() -> None:
    data = sampled(random_products(200, seed=2), truth=cliff)
    known, rest = timed(part(data, range(60))), untimed(part(data, range(60, 200)))
    assert next_rows(known, rest, 20).places.tolist() == next_rows(known, rest, 20).places.tolist()


def test_what_costs_more_is_chosen_less() -> None:
    data = sampled(random_products(400, seed=3), truth=cliff)
    known, rest = timed(part(data, range(60))), untimed(part(data, range(60, 400)))
    dear = np.arange(340) % 2 == 0
    chosen = next_rows(known, replace(rest, cost_s=np.where(dear, 25.0, 1.0)), 60).places
    assert dear[chosen].mean() < 0.4


def test_where_a_named_run_would_extrapolate_comes_first() -> None:
    known = timed(sampled(random_products(80, seed=4, high=512)))
    rest = untimed(sampled(random_products(200, seed=5, high=8192)))
    far = untimed(sampled([Product(m=8000, n=8000, k=8000)]))
    first = next_rows(known, rest, 10, far).places[0]
    nearest = ((rest.features - far.features) ** 2).sum(axis=1).argmin()
    assert first == nearest
    inside = untimed(sampled([Product(m=200, n=200, k=200)]))
    assert next_rows(known, rest, 10, inside).places.tolist() == next_rows(known, rest, 10).places.tolist()


def test_too_few_rows_for_a_committee_are_filled_up_evenly() -> None:
    rest = untimed(sampled(random_products(50, seed=6)))
    known = timed(sampled(random_products(3, seed=7)))
    assert next_rows(known, rest, 8).places.tolist() == fill_space(rest.features, 8).tolist()


def test_chosen_rows_beat_random_ones_on_a_kernel_with_a_cliff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regressors.models.candidates.SMOOTH_ROWS", 0)  # the slowest to fit
    data = sampled(random_products(1200, seed=8), truth=cliff, noise=0.005)
    pool, test = part(data, range(800)), part(data, range(800, 1200))

    def error(places: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> float:
        rows = part(pool, places)
        model = fit_candidate(BLEND, rows.terms, rows.features, rows.time_us)
        return float(np.abs(model.time_us(test.terms, test.features) / test.time_us - 1).mean())

    chosen = fill_space(pool.features, 64)
    while len(chosen) < 150:
        left = np.setdiff1d(np.arange(800), chosen)
        batch = next_rows(
            timed(subset_in_order(pool, chosen)), untimed(subset_in_order(pool, left)), batch_rows(len(chosen))
        )
        chosen = np.concatenate([chosen, left[batch.places]])
    by_chance = [error(np.random.default_rng(seed).permutation(800)[: len(chosen)]) for seed in range(3)]
    assert error(chosen) < 0.95 * float(np.mean(by_chance))


def subset_in_order(data: TrainingData, places: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> TrainingData:
    return replace(data, terms=data.terms[places], features=data.features[places], time_us=data.time_us[places])


# A guided session: named calls first, a space-filling share, then what teaches most, within the budget and resumable.

CLUSTER = load_cluster(hardware="cpu", nodes=1, gpus_per_node=1, profile="test", cores=1)
MANIFEST = Manifest(profile="test", hardware="cpu", device={"name": "abacus", "cores": 1}, sessions=[{"id": 0}])


def rows_of(request: Request) -> Iterator[Sample]:
    for phase in request.phases:
        time_us = sum(request.call.terms(phase, CLUSTER).values()) + 5
        time_us *= 1.5 if request.call.fields().get("n", 0) > 500 else 1.0
        yield row(request.call, phase, time_us, threads=1)


class Stopwatchless:
    """In the place of ranks that time: rows by formula, at most `calls_a_job`, and what each job was asked for."""

    def __init__(self, calls_a_job: int = 10**6) -> None:
        self.calls_a_job = calls_a_job
        self.jobs: list[list[Request]] = []

    def __call__(self, job: Job, meanwhile: Callable[[], None]) -> None:
        requests = [
            Request(call=make_call(name, fields), phases=tuple(phases)) for name, fields, phases in job.requests
        ]
        self.jobs.append(requests)
        for request in requests[: self.calls_a_job]:
            for sample in rows_of(request):
                append_to_journal(Path(job.directory), replace(sample, at_s=time.time()))


def pool(count: int) -> list[Request]:
    calls: list[Gemm | RMSNorm] = []
    for index in range(count):
        m, n = 16 + 37 * index % 900, 16 + 101 * index % 1000
        calls += [Gemm(dtype="fp32", m=m, n=n, k=64), RMSNorm(dtype="fp32", tokens=m, hidden=n)]
    return [Request(call=call, phases=("forward",)) for call in calls]


def session(directory: Path, ranks: Stopwatchless, requests: list[Request], named: list[Request]) -> SessionOutcome:
    tasks = [
        SamplingTask(busy_ranks=1, requests=named, visits=2),
        SamplingTask(busy_ranks=1, requests=requests, visits=1, fills_space=True),
    ]
    return guided(directory, MANIFEST, tasks, budget_s=60, run_job=ranks)


def test_named_calls_come_first_then_some_of_each_kind_then_batches_and_a_last_moment_of_the_named(
    tmp_path: Path,
) -> None:
    ranks, requests = Stopwatchless(), pool(40)
    named = [Request(call=Gemm(dtype="fp32", m=999, n=999, k=64), phases=("forward",))]
    outcome = session(tmp_path, ranks, requests, named)
    assert ranks.jobs[0] == ranks.jobs[-1] == named
    # of the GEMMs one was timed for the named run
    assert ranks.jobs[1] == [
        request for request in requests[: 2 * guided_sampling.FIRST_OF_EACH] if request != requests[10]
    ]
    assert all(len(job) <= guided_sampling.LEAST_BATCH for job in ranks.jobs[2:-1])
    assert len(ranks.jobs) > 3
    assert outcome.named_left == 0
    assert outcome.kept == len(list(iterate_samples(read_samples(tmp_path)))) == 82


def test_a_second_session_goes_on_where_the_first_was_cut_off(tmp_path: Path) -> None:
    requests = pool(30)
    short = Stopwatchless(calls_a_job=5)
    session(tmp_path, short, requests, [])
    before = len(list(iterate_samples(read_samples(tmp_path))))
    assert 0 < before < len(requests)
    ranks = Stopwatchless()
    session(tmp_path, ranks, requests, [])
    assert len(list(iterate_samples(read_samples(tmp_path)))) == len(requests)
    timed_before = {request.call for job in short.jobs for request in job[:5]}
    assert not timed_before & {request.call for job in ranks.jobs for request in job}


def test_a_session_that_resumes_with_all_but_the_last_moment_takes_it_first(tmp_path: Path) -> None:
    named = [Request(call=Gemm(dtype="fp32", m=999, n=999, k=64), phases=("forward",))]
    task = SamplingTask(busy_ranks=1, requests=named, visits=1)
    guided(tmp_path, MANIFEST, [task], budget_s=60, run_job=Stopwatchless())
    ranks = Stopwatchless()
    resumed = replace(MANIFEST, sessions=[{"id": 0}, {"id": 1}])
    tasks = [replace(task, visits=2), SamplingTask(busy_ranks=1, requests=pool(9), visits=1, fills_space=True)]
    guided(tmp_path, resumed, tasks, budget_s=60, run_job=ranks)
    assert ranks.jobs[0] == named
    assert named not in ranks.jobs[1:]


def test_a_budget_that_is_over_times_nothing(tmp_path: Path) -> None:
    ranks = Stopwatchless()
    tasks = [
        SamplingTask(busy_ranks=1, requests=pool(5), visits=1),
        SamplingTask(busy_ranks=1, requests=pool(9), visits=1, fills_space=True),
    ]
    outcome = guided(tmp_path, MANIFEST, tasks, budget_s=0, run_job=ranks)
    assert not ranks.jobs
    assert outcome.named_left == 10


def test_a_kind_whose_rows_were_all_bad_holds_no_other_up() -> None:
    requests = pool(60)
    rows = [sample for request in requests[:80:2] for sample in rows_of(request)]
    batch = next_batch(rows, requests[80:], [], CLUSTER)
    assert {request.call.NAME for request in batch} == {"gemm", "rms_norm"}


def test_seats_go_by_disagreement() -> None:
    requests = pool(20)
    gemms, norms = requests[::2], requests[1::2]
    batch = shared_out({"gemm": (gemms, 0.3), "norm": (norms, 0.1)}, 8)
    assert batch[0] == gemms[0]
    assert sum(isinstance(request.call, Gemm) for request in batch) == 6


def test_where_a_named_run_extrapolates_is_in_the_batch() -> None:
    requests = [
        Request(call=Gemm(dtype="fp32", m=2**i, n=2**j, k=64), phases=("forward",))
        for i in range(4, 13)
        for j in range(4, 13)
    ]
    small = [request for request in requests if math.prod(request.call.fields()[name] for name in "mn") <= 2**12]
    lacking = [request for request in requests if request not in small]
    named = [Request(call=Gemm(dtype="fp32", m=4096, n=4095, k=64), phases=("forward",))]
    batch = next_batch([sample for request in small for sample in rows_of(request)], lacking, named, CLUSTER)
    assert Gemm(dtype="fp32", m=4096, n=4096, k=64) in [request.call for request in batch]


def test_one_rank_of_several_is_sent_to_the_plain_sampler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert main([]) == 2
    assert "python -m sampling" in capsys.readouterr().err


def test_a_call_on_a_gpu_costs_the_time_of_the_devices_states() -> None:
    requests = [Request(call=Gemm(dtype="bf16", m=m, n=64, k=64), phases=("forward",)) for m in (64, 128)]
    terms = np.array([[1.0], [2.0]])
    timed = Timed(terms=terms, features=terms, time_us=np.array([2.0, 4.0]))
    gpu = load_cluster(hardware="h100-sxm", nodes=1, gpus_per_node=1, profile="test")
    on_cpu, on_gpu = (guided_sampling._seconds(terms, timed, requests, cluster) for cluster in (CLUSTER, gpu))
    settings = TimerSettings()
    assert min(on_gpu) > settings.sustained_seconds + settings.burst_repeats * settings.rest_seconds
    assert max(on_cpu) < settings.sustained_seconds
