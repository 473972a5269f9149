"""What the tests of ranks share: quick jobs, their rows, and a port to meet at."""

import socket
from pathlib import Path

from sampling.call import Call
from sampling.ranks.job import Job
from sampling.store.journal import fold_journal
from sampling.store.sample import Sample
from sampling.store.tables import iterate_samples, read_samples

QUICK = {"warmup_repeats": 1, "least_repeats": 3, "most_repeats": 3, "seconds": 0.0, "most_batches": 1, "attempts": 1}


def job_of(directory: Path, ranks: int, *calls: Call) -> Job:
    return Job(
        directory=str(directory),
        profile="test",
        hardware="cpu",
        cores=ranks,
        ranks_per_node=ranks,
        session=0,
        budget_s=100.0,
        timer=QUICK,
        requests=[(call.NAME, call.fields(), list(call.PHASES)) for call in calls],
    )


def kept(directory: Path) -> list[Sample]:
    fold_journal(directory)
    return list(iterate_samples(read_samples(directory)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
