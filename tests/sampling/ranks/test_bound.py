"""Programs start on cores of their own."""

import json
import os
import sys
from pathlib import Path

import pytest

from sampling.hardware.cores import own_cores
from sampling.ranks.launch import launch

WORKER = """
import json, os, sys
from pathlib import Path
found = {"cores": sorted(os.sched_getaffinity(0)), "bind": os.environ.get("OMP_PROC_BIND"), "arguments": sys.argv[1:]}
Path(sys.argv[1], os.environ["RANK"]).write_text(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux binds processes to cores")
def test_a_program_starts_bound_with_its_arguments(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    allowed = sorted(os.sched_getaffinity(0))
    for processes, threads in ((2, 1), (1, 2)):
        launch(
            [str(script), str(tmp_path), "-m", "x"], name="bound", processes=processes, threads=threads, timeout_s=60
        )
        for rank in range(processes):
            found = json.loads((tmp_path / str(rank)).read_text())
            assert found["arguments"] == [str(tmp_path), "-m", "x"]
            own = own_cores(rank=rank, ranks=processes, threads=threads, allowed=allowed)
            assert found["cores"] == (sorted(own) or allowed)
            assert found["bind"] == ("true" if 1 < threads == len(own) else None)
