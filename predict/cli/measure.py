"""`predict measure`: the step run for real on this machine, and timed."""

from __future__ import annotations

import argparse
from pathlib import Path

from predict.cli.options import (
    add_config,
    add_json,
    given,
    loaded,
    log,
    print_json,
    refuse,
    require_folder,
    require_positive,
)
from sampling.errors import Checks, UserError

EXAMPLES = """\
examples:
  predict measure configs/runs/demo.yml
  predict measure configs/runs/demo.yml --steps 20 --json
  predict measure configs/runs/demo.yml --set plan.schedule=afab
  predict measure configs/serving/this-machine/busy.yml
  predict measure configs/rl/this-machine/grpo.yml
  predict measure configs/runs/demo.yml --trace traces
"""


def add_options(command: argparse.ArgumentParser) -> None:
    add_config(command)
    command.add_argument(
        "--steps", type=int, help="timed steps (default: 10 on a CPU, as many as fill 10 s on a GPU, five at least)"
    )
    command.add_argument(
        "--implementation",
        choices=("torch", "transformers"),
        default="torch",
        help="whose model is trained: this project's plain torch one, or the transformers library's (default: torch)",
    )
    command.add_argument(
        "--trace",
        type=Path,
        metavar="DIR",
        help="also record a few steps with torch's profiler, one trace per rank, for `predict explain`",
    )
    add_json(command)


def run(options: argparse.Namespace) -> None:
    require_positive(options, "steps")
    from predict.kinds import RL, SERVING, kind_of

    kind = kind_of(options.config)
    if kind == RL:
        _run_rl(options)
        return
    if kind == SERVING:
        _serve(options)
        return
    require_folder("--trace", options.trace)
    from predict.measurement.real_step import measure
    from predict.reports.measurement import measurement_text

    result = measure(loaded(options), steps=options.steps, implementation=options.implementation, trace=options.trace)
    if options.json:
        print_json(result.to_json())
    else:
        print(measurement_text(result))
    if options.trace:
        log(f"wrote a trace of {len(result.traced_us)} steps of each rank to {options.trace}")


def _run_rl(options: argparse.Namespace) -> None:
    """A step of reinforcement learning, phase by phase."""
    with Checks() as checks:
        with checks.one():
            if options.implementation != "torch":
                raise UserError(
                    f"--implementation {options.implementation}: an RL step runs in this project's plain torch; omit it"
                )
        with checks.one():
            if options.trace:
                raise UserError("--trace: an RL step is not traced; omit it")
    from predict.measurement.real_rl import measure_rl
    from predict.reports.rl.measured import rl_measurement_text
    from predict.reports.text import show

    result = measure_rl(options.config, options.overrides, steps=options.steps)
    if options.json:
        print_json(result.to_json())
    else:
        show(rl_measurement_text(result))


def _serve(options: argparse.Namespace) -> None:
    """Serve the load of a serving config for real."""
    implementation = ["--implementation"] if options.implementation != "torch" else []
    extra = given(options, "steps", "trace") + implementation
    refuse(extra, "does not go with a serving config, whose load.duration_s says how long; omit it")
    from predict.measurement.serving.real_server import serve_for_real
    from predict.reports.measurement import served_json, served_text
    from predict.serving.config import load_serving

    found = serve_for_real(load_serving(options.config, options.overrides), options.config, options.overrides)
    if options.json:
        print_json(served_json(found))
    else:
        print(served_text(found))
