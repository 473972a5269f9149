"""Launches two ranks of itself, which meet over gloo; prints `met`.

meeting_ranks.py [rank]
"""

from __future__ import annotations

import sys

from sampling.ranks.launch import die_with_launcher, launch, leave


def meet() -> None:
    import torch.distributed as dist

    die_with_launcher()
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    if sys.argv[1:] == ["rank"]:
        meet()
    launch([__file__, "rank"], name="meeting", processes=2, threads=1, timeout_s=40)
    print("met")
