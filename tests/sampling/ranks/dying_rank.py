"""The worker, but one rank is killed as it enters an all-to-all: as torchrun or srun would start it.

… dying_rank.py VICTIM JOB.json
"""

import os
import signal
import sys
from typing import Any

from sampling.collectives.kinds import AllToAll
from sampling.ranks.worker import main
from sampling.torch_work.collectives.kinds import FUNCTIONS, Buffers

VICTIM = sys.argv.pop(1)


def killed(buffers: Buffers, group: Any) -> None:
    if os.environ["RANK"] == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    all_to_all(buffers, group)


all_to_all = FUNCTIONS[AllToAll]
FUNCTIONS[AllToAll] = killed

if __name__ == "__main__":
    main()
