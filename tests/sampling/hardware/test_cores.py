"""The cores of a rank: shares of those allowed, for the threads that compute alone."""

import os
import subprocess
import sys

import pytest

from sampling.hardware.cores import own_cores

BOUND_AND_RELEASED = """
import os, threading
from sampling.hardware.cores import bind_to_own_cores, release_other_threads
bind_to_own_cores()
begun, done = threading.Event(), threading.Event()
other = threading.Thread(target=lambda: (begun.set(), done.wait()))
other.start()
begun.wait()
before = os.sched_getaffinity(other.native_id)
release_other_threads()
print(sorted(os.sched_getaffinity(0)), sorted(before), sorted(os.sched_getaffinity(other.native_id)))
done.set()
"""


def test_each_rank_gets_an_even_share_of_the_cores_it_may_use() -> None:
    allowed = {1, 2, 3, 5, 8, 9}
    assert [own_cores(rank=rank, ranks=3, threads=2, allowed=allowed) for rank in range(3)] == [{1, 2}, {3, 5}, {8, 9}]
    assert own_cores(rank=1, ranks=2, threads=1, allowed=allowed) == {5, 8, 9}


def test_ranks_have_no_cores_of_their_own_where_these_are_too_few_for_their_threads() -> None:
    assert own_cores(rank=3, ranks=4, threads=1, allowed={0, 1, 2}) == set()
    assert own_cores(rank=1, ranks=2, threads=2, allowed={0, 1}) == set()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux binds threads to cores")
def test_a_thread_that_a_bound_rank_starts_may_use_all_cores() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    own = sorted(own_cores(rank=1, ranks=2, threads=1, allowed=allowed))
    environment = {**os.environ, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", BOUND_AND_RELEASED], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"{own} {own} {allowed}"
