"""Runs a program as a rank on cores of its own: `python -m sampling.ranks.bound -m MODULE ARGUMENTS…`, or `… SCRIPT ARGUMENTS…`."""

import runpy
import sys
from pathlib import Path

from sampling.hardware.cores import bind_to_own_cores


def main() -> None:
    bind_to_own_cores()
    del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
