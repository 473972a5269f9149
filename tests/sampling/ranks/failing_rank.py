"""Ranks of the failure tests: `fails`, the last rank raises while the others wait for it; `hangs`, all wait for ever.

    torchrun … failing_rank.py FOLDER fails|hangs

Each rank first leaves its process id in FOLDER.
"""

import os
import signal
import sys
from pathlib import Path

from sampling.ranks.launch import die_with_launcher


def main() -> None:
    die_with_launcher()
    Path(sys.argv[1], os.environ["RANK"]).write_text(str(os.getpid()))
    if sys.argv[2] == "hangs":
        signal.pause()
    from torch.distributed.elastic.multiprocessing.errors import record

    record(fail)()


def fail() -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == dist.get_world_size() - 1:
        raise RuntimeError("the weights turned to lead")
    dist.barrier()


if __name__ == "__main__":
    main()
