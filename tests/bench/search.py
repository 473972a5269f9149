"""Time of whole searches: `python tests/bench/search.py` (part of `make bench`).

Each runs as a user runs it, start-up included; the first answer is the line that `predict search` prints before the search proper.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

SEARCHES = Path(__file__).resolve().parents[2] / "configs" / "searches"
LIMITS_S = {"llama3-70b-64xh100": 5, "deepseek-v3-1024xh100": 60}
FIRST_ANSWER_S = 3
"""On two cores that do nothing else."""


def main() -> None:
    for name, limit_s in LIMITS_S.items():
        started = time.monotonic()
        first_s = float("nan")
        command = [sys.executable, "-m", "predict", "search", str(SEARCHES / f"{name}.yml"), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr is not None
            assert running.stdout is not None
            for line in running.stderr:
                if line.startswith("first answer"):
                    first_s = time.monotonic() - started
                    break
            space = json.loads(running.stdout.read())["space"]
        print(
            f"{name}: {space['legal']:,} legal plans, {space['priced']} priced in full: top 20 in {time.monotonic() - started:.1f} s "
            f"(limit {limit_s}), first answer in {first_s:.1f} s (limit {FIRST_ANSWER_S})"
        )


if __name__ == "__main__":
    main()
