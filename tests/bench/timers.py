"""Precision that the quick timer gives up: `python tests/bench/timers.py [MODELS]`, on this machine's CPU, in about two minutes.

Each call is timed by the full timer, the quick one, and the full one again, one right after the other. The ratio of the two full
timings is what the machine's own noise makes of it; that of quick over full is read against it.
"""

import statistics
import sys
import time
from collections.abc import Sequence

import torch

from sampling.call import Request
from sampling.choosing.ranges import read_ranges
from sampling.choosing.shapes import draw_models
from sampling.choosing.tasks import requests_of_models
from sampling.hardware.cluster import load_cluster
from sampling.store.sample import Sample
from sampling.timing.time_calls import time_requests
from sampling.timing.timer import PRESETS
from sampling.torch_work.collectives.process_groups import LoneRank

CLUSTER = load_cluster(hardware="cpu", nodes=1, gpus_per_node=1, profile="", cores=1)
ORDER = ("full", "quick", "full")


def main() -> None:
    models = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    torch.set_num_threads(1)
    requests = [
        Request(call=request.call, phases=request.phases[:2])
        for request in requests_of_models(draw_models(read_ranges(None, "cpu"), models), 1)
    ]
    ratios: dict[str, list[float]] = {"quick / full": [], "full / full": []}
    seconds = dict.fromkeys(PRESETS, 0.0)
    for request in requests:
        timings = []
        for name in ORDER:
            start = time.monotonic()
            timings.append(timed(request, name))
            seconds[name] += time.monotonic() - start
        for first, quick, again in zip(*timings, strict=False):
            ratios["quick / full"].append(quick.time_us / first.time_us)
            ratios["full / full"].append(again.time_us / first.time_us)
    print(f"{len(ratios['full / full'])} phases of {len(requests)} calls, one thread")
    for name, found in ratios.items():
        print(f"  {name:13} {quantiles(found)}")
    print(f"  seconds: full {seconds['full'] / 2:.0f}, quick {seconds['quick']:.0f}")


def timed(request: Request, timer: str) -> list[Sample]:
    rows: list[Sample] = []
    time_requests(
        [request],
        device=torch.device("cpu"),
        cluster=CLUSTER,
        ranks=LoneRank(),
        session=0,
        deadline_s=float("inf"),
        settings=PRESETS[timer],
        keep=rows.append,
        say=lambda text: None,
    )
    return rows


def quantiles(ratios: Sequence[float]) -> str:
    low, median, high = (
        statistics.quantiles(ratios, n=20, method="inclusive")[place] for place in (1, 9, 17)
    )  # 10, 50 and 90 %
    return f"median {median:.3f}, 10 % below {low:.3f}, 10 % above {high:.3f}"


if __name__ == "__main__":
    main()
