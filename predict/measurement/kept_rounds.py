"""The measurements of an interrupted validation, in a file from which the same validation goes on; a whole one leaves none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from predict.layers.run_json import dump_run
from predict.measurement.measurement import Measurement
from predict.measurement.requirements import Implementation
from predict.run.rebuild import rebuild
from predict.run.training_run import TrainingRun
from sampling.files.disk import MAKE_WRITABLE, naming_the_disk, require_place
from sampling.files.places import own_data
from sampling.hardware.this_device import cpu_name


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptRounds:
    """Measurements by their place in the order in which they are taken."""

    path: Path
    measured: dict[int, Measurement]

    @classmethod
    def of(
        cls, cases: Sequence[tuple[TrainingRun, Implementation]], *, rounds: int, steps_per_round: int | None
    ) -> KeptRounds:
        """The rounds kept of a validation of these runs on this machine; none if any run or count differs."""
        asked = [[dump_run(run), implementation] for run, implementation in cases]
        key = json.dumps([asked, rounds, steps_per_round, cpu_name()])
        name = f"validation-{hashlib.sha256(key.encode()).hexdigest()[:12]}.partial.jsonl"
        path = own_data() / "published" / name
        require_place(path, MAKE_WRITABLE)
        lines = path.read_text().splitlines() if path.is_file() else []
        return cls(path=path, measured=dict(found for line in lines if (found := _read(line))))

    def add(self, place: int, measurement: Measurement) -> None:
        self.measured[place] = measurement
        with naming_the_disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps([place, asdict(measurement)]) + "\n")

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _read(line: str) -> tuple[int, Measurement] | None:
    """The place and the measurement of a line; None for one that was cut off."""
    try:
        place, fields = json.loads(line)
    except ValueError:
        return None
    return place, rebuild(Measurement, fields)
