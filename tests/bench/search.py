"""Time of whole searches: `python tests/bench/search.py` (part of `make bench`).

Each runs as a user runs it, start-up included; the first answer is the line that `predict search` prints before the search proper.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile

SEARCHES = Path(__file__).resolve().parents[2] / "configs" / "searches"
OPENED = ("plan.layout=auto", "plan.recompute_modules=auto", "plan.count_embedding=0", "plan.count_loss=0")
"""Settings that open the layout and the recomputed modules, in place of the splits that a config counts."""
LIMITS_S: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("llama3-70b-64xh100", (), 5),
    ("deepseek-v3-1024xh100", (), 60),
    ("llama3-70b-64xh100", OPENED, 20),
    ("deepseek-v3-1024xh100", OPENED, 90),
)
FIRST_ANSWER_S = 3
"""On two cores that do nothing else."""


def main() -> None:
    for name, settings, limit_s in LIMITS_S:
        started = time.monotonic()
        first_s = float("nan")
        command = [sys.executable, "-m", "predict", "search", str(SEARCHES / f"{name}.yml"), "--json"]
        command += [word for setting in settings for word in ("--set", setting)]
        with (
            TemporaryFile("w+") as answer,
            subprocess.Popen(command, stdout=answer, stderr=subprocess.PIPE, text=True) as running,
        ):
            assert running.stderr is not None
            for line in running.stderr:  # to its end: a full pipe would stop the search
                if line.startswith("first answer"):
                    first_s = time.monotonic() - started
            running.wait()
            answer.seek(0)
            space = json.load(answer)["space"]
        print(
            f"{' '.join((name, *settings[:2]))}: {space['legal']:,} legal plans, {space['priced']} priced in full: top 20 in {time.monotonic() - started:.1f} s "
            f"(limit {limit_s}), first answer in {first_s:.1f} s (limit {FIRST_ANSWER_S})"
        )


if __name__ == "__main__":
    main()
