"""Sample this machine: `python -m sampling --profile this-machine --budget 300 [--calls FILE]`."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampling.errors import ConfigError, UserError

if TYPE_CHECKING:
    from sampling.shapes import Ranges

VISITS_OF_NAMED = 3
"""Moments at which a call that a named run needs is timed: a shared machine drifts by 5–15 % over minutes."""

DESCRIPTION = """\
Time operators and collectives on this machine and keep the rows under data/samples/<profile>/.

First the calls that named runs need (--calls, written by `predict calls RUN.yml`), then shapes that fill the space.
What is already there is not timed again; an interrupted session goes on where it was.
"""


def parser() -> argparse.ArgumentParser:
    commands = argparse.ArgumentParser(
        prog="python -m sampling", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands.add_argument(
        "--profile", default="this-machine", help="name the rows are kept under (default: %(default)s)"
    )
    commands.add_argument(
        "--budget", type=float, default=300.0, metavar="SECONDS", help="wall-clock budget (default: %(default)g)"
    )
    commands.add_argument("--calls", type=Path, metavar="FILE", help="calls to time first, from `predict calls`")
    commands.add_argument("--hardware", metavar="NAME", help="entry of configs/hardware (default: detected)")
    commands.add_argument(
        "--ranges", type=Path, metavar="FILE", help="box to draw shapes from (default: configs/sampling/<kind>.yml)"
    )
    commands.add_argument("--models", type=int, default=64, help="models to draw shapes from (default: %(default)s)")
    commands.add_argument("--fresh", action="store_true", help="start the profile anew; old rows are set aside")
    commands.add_argument("--data", type=Path, help="where samples/ lies (default: this project's data/)")
    return commands


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return run(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: rows timed so far are kept; the same command goes on from here", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    from sampling.device import detect_hardware, most_ranks, ranks_of_machine
    from sampling.hardware import CONFIGS, hardware_facts
    from sampling.progress import progress_display
    from sampling.requests import on_one_node, read_calls_file, space_filling
    from sampling.session import Wanted, open_profile, sample, sole_session
    from sampling.shapes import draw_models
    from sampling.store import DATA, samples_directory

    if not 0 < options.budget < math.inf:
        raise ConfigError(f"--budget: {options.budget:g} is not a positive, finite number of seconds")
    hardware = options.hardware or detect_hardware()
    facts = hardware_facts(hardware)
    kind = "cpu" if facts["kind"] == "cpu" else "gpu"
    ranges = read_ranges(options.ranges or CONFIGS / "sampling" / f"{kind}.yml")
    most = most_ranks(hardware)
    wanted = []
    if options.calls:
        needed = sorted(read_calls_file(options.calls, facts["name"]).items())
        if needed and needed[-1][0] > most:
            raise ConfigError(
                f"{options.calls}: needs {needed[-1][0]} ranks on one node, and this machine can run {most}; sample on a "
                "machine as large as the runs' nodes, or write the calls of runs with fewer cluster.gpus_per_node"
            )
        for ranks, requests in needed:
            here = [request for request in requests if on_one_node(request.call, ranks)]
            wanted.append(Wanted(busy_ranks=ranks, requests=here, visits=VISITS_OF_NAMED))
            if left_out := len(requests) - len(here):
                print(
                    f"{options.calls}: {left_out} calls that span nodes are left out: a session is on one",
                    file=sys.stderr,
                )
    models = draw_models(ranges, options.models)
    wanted += [
        Wanted(busy_ranks=ranks, requests=list(space_filling(models, ranks)), visits=1)
        for ranks in ranks_of_machine(hardware)
    ]
    directory = samples_directory(options.profile, options.data or DATA)
    with sole_session(directory):
        manifest = open_profile(directory, profile=options.profile, hardware=hardware, fresh=options.fresh)
        print(f"{options.profile}: {manifest.device['name']}, at most {options.budget:.0f} s", file=sys.stderr)
        start = time.monotonic()
        with progress_display() as tell:
            outcome = sample(directory, manifest, wanted, budget_s=options.budget, tell=tell)
    print(
        f"kept {outcome.kept} rows in {time.monotonic() - start:.0f} s ({outcome.quarantined} quarantined) in {directory}; "
        f"{outcome.not_reached} more wanted: run again to go on"
    )
    return 0


def read_ranges(path: Path) -> Ranges:
    """The box of shapes; ConfigError names the file and what is wrong with it."""
    import yaml

    from sampling.shapes import Ranges

    try:
        content = yaml.safe_load(path.read_text())
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in content.items()
        }
        return Ranges(**values)
    except (OSError, yaml.YAMLError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: no box of shapes ({error}); see configs/sampling/cpu.yml for the keys") from None


if __name__ == "__main__":
    sys.exit(main())
