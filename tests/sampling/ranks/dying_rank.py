"""The worker, but one rank is killed as it enters an all-to-all: as torchrun or srun would start it.

… dying_rank.py VICTIM JOB.json
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from sampling.collectives.kinds import AllToAll, Buffers
from sampling.ranks.worker import main

VICTIM = sys.argv.pop(1)


def killed(self: AllToAll, buffers: Buffers, group: Any) -> None:
    if os.environ["RANK"] == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    run_once(self, buffers, group)


run_once = AllToAll.run_once
AllToAll.run_once = killed  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
