"""torchrun, as `launch` starts it: it dies with the process that started it, and its ranks die with it.

python -m sampling.ranks.agent ARGUMENTS OF TORCHRUN…
"""

from __future__ import annotations

import os

from sampling.ranks.launch import LAUNCHER, die_with_launcher


def main() -> None:
    die_with_launcher()
    os.environ[LAUNCHER] = str(os.getpid())
    from torch.distributed.run import main as torchrun

    torchrun()


if __name__ == "__main__":
    main()
