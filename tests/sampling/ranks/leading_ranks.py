"""A rank of two nodes with two ranks each, as `python -m sampling` is there, with a plan of its own: three quick jobs.

torchrun --nnodes 2 --nproc-per-node 2 … leading_ranks.py JOBS.json
"""

import json
import os
import sys
from pathlib import Path

from sampling.ranks.job import Job
from sampling.ranks.rank import rank_from
from sampling.ranks.worker import World, as_rank


def lead(world: World) -> int:
    for job in json.loads(Path(sys.argv[1]).read_text()):
        world(Job(**job), lambda: None)
    Path(sys.argv[1]).with_name("provenance.json").write_text(json.dumps(world.provenance()))
    return 0


if __name__ == "__main__":
    rank = rank_from(os.environ)
    as_rank(rank, lead, lambda: {"name": "abacus"})
