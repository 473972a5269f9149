"""The process of a real RL step: load the config, run some steps, and write the time of each phase."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import record

from predict.measurement.rl.grpo import Grpo
from predict.measurement.system_noise import Usage
from predict.rl.config import load_rl
from sampling.ranks.launch import die_with_launcher, leave


@record
def main() -> None:
    die_with_launcher()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", help="the settings, as a JSON list")
    parser.add_argument("result", type=Path, help="JSON file to write")
    parser.add_argument("steps", type=int, help="steps to run, warm-up included")
    arguments = parser.parse_args()
    grpo = Grpo(load_rl(arguments.config, json.loads(arguments.overrides)))
    steps = []
    for _ in range(arguments.steps):
        before = Usage.now()
        phases, reward = grpo.step()
        after = Usage.now()
        steps.append(
            {
                "phases": phases,
                "reward": reward,
                "machine_s": after.machine_s - before.machine_s,
                "own_s": after.own_s - before.own_s,
            }
        )
    versions = {"torch": importlib.metadata.version("torch")}
    arguments.result.write_text(json.dumps({"steps": steps, "versions": versions}))
    leave()


if __name__ == "__main__":
    main()
