"""A guided session: named calls first, a space-filling share, then what teaches most, within the budget and resumable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from regressors.active import guided_sampling
from regressors.active.choice import Timed
from regressors.active.guided_sampling import guided, main, next_batch, shared_out
from sampling.call import Request, make_call
from sampling.choosing.tasks import SamplingTask
from sampling.hardware.cluster import load_cluster
from sampling.operators.gemm import Gemm
from sampling.operators.norm import RMSNorm
from sampling.ranks.job import Job
from sampling.session.run_tasks import Outcome
from sampling.store.journal import append_to_journal
from sampling.store.profiles import Manifest
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples
from sampling.timing.timer import TimerSettings

CLUSTER = load_cluster(hardware="cpu", nodes=1, gpus_per_node=1, profile="test", cores=1)
MANIFEST = Manifest(profile="test", hardware="cpu", device={"name": "abacus", "cores": 1}, sessions=[{"id": 0}])


def row(request: Request) -> Iterator[Sample]:
    for phase in request.phases:
        time_us = sum(request.call.terms(phase, CLUSTER).values()) + 5
        time_us *= 1.5 if request.call.fields().get("n", 0) > 500 else 1.0
        yield Sample(
            call=request.call,
            phase=phase,
            threads=1,
            busy_ranks=1,
            time_us=time_us,
            low_us=time_us,
            high_us=time_us,
            repeats=9,
            quarantine="",
            session=0,
        )


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
            for sample in row(request):
                append_to_journal(Path(job.directory), sample)


def pool(count: int) -> list[Request]:
    calls: list[Gemm | RMSNorm] = []
    for index in range(count):
        m, n = 16 + 37 * index % 900, 16 + 101 * index % 1000
        calls += [Gemm(dtype="fp32", m=m, n=n, k=64), RMSNorm(dtype="fp32", tokens=m, hidden=n)]
    return [Request(call=call, phases=("forward",)) for call in calls]


def session(directory: Path, ranks: Stopwatchless, requests: list[Request], named: list[Request]) -> Outcome:
    tasks = [
        SamplingTask(busy_ranks=1, requests=named, visits=2),
        SamplingTask(busy_ranks=1, requests=requests, visits=1, fills_space=True),
    ]
    return guided(directory, MANIFEST, tasks, budget_s=60, run_job=ranks)


def test_named_calls_come_first_then_some_of_each_kind_then_batches(tmp_path: Path) -> None:
    ranks, requests = Stopwatchless(), pool(40)
    named = [Request(call=Gemm(dtype="fp32", m=999, n=999, k=64), phases=("forward",))]
    outcome = session(tmp_path, ranks, requests, named)
    assert ranks.jobs[0] == named * 2
    # of the GEMMs one was timed for the named run
    assert ranks.jobs[1] == [
        request for request in requests[: 2 * guided_sampling.FIRST_OF_EACH] if request != requests[10]
    ]
    assert all(len(job) <= guided_sampling.LEAST_BATCH for job in ranks.jobs[2:])
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


def test_a_budget_that_is_over_times_nothing(tmp_path: Path) -> None:
    ranks = Stopwatchless()
    tasks = [
        SamplingTask(busy_ranks=1, requests=pool(5), visits=1),
        SamplingTask(busy_ranks=1, requests=pool(9), visits=1, fills_space=True),
    ]
    outcome = guided(tmp_path, MANIFEST, tasks, budget_s=0, run_job=ranks)
    assert not ranks.jobs
    assert outcome.named_left == 10


def test_a_kind_on_which_all_agree_gets_fewer_of_a_batch() -> None:
    requests = pool(200)
    rows = [sample for request in requests[:100] for sample in row(request)]
    batch = next_batch(rows, requests[100:], [], CLUSTER)
    assert len(batch) == len(set(batch)) == max(guided_sampling.LEAST_BATCH, round(0.25 * 100))


def test_a_kind_whose_rows_were_all_bad_holds_no_other_up() -> None:
    requests = pool(60)
    rows = [sample for request in requests[:80:2] for sample in row(request)]
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
    batch = next_batch([sample for request in small for sample in row(request)], lacking, named, CLUSTER)
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
