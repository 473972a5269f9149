"""Sample this machine or cluster: `python -m sampling --profile this-machine --budget 300 [--calls FILE]`.

The way from the command to rows on disk is `run`, below:

    site       which device and how many ranks there are               session/site.py
    tasks      calls that named runs need, then space-filling shapes    choosing/tasks.py, choosing/task_placement.py
    profile    data/samples/<profile>, locked, with a new session       session/profile.py
    jobs       one per task, timed on every rank into the journal,      session/run_tasks.py → ranks/worker.py
               which is then folded into the tables                     → timing/time_calls.py → store/journal.py
"""

from __future__ import annotations

from sampling import early_interrupt  # noqa: F401

# isort: split
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from sampling.command_line import exit_code_of, log
from sampling.number_text import seconds

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from sampling.choosing.tasks import PlacedTasks, SamplingTask
    from sampling.ranks.worker import World
    from sampling.session.run_tasks import SessionOutcome, Strategy
    from sampling.session.site import Site

DESCRIPTION = """\
Time operators and collectives on this machine and keep the rows under data/samples/<profile>/.

First come the calls that named runs need (--calls, written by `predict calls RUN.yml`), then shapes that fill the space.
Rows that are already there are not timed again; an interrupted session goes on where it was.

On one machine the command starts its own ranks. On several, run the same command on every rank, by torchrun or srun:

  torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m sampling --cluster FILE
  srun --ntasks-per-node 8 python -m sampling --cluster FILE        (configs/clusters/slurm.sbatch is a whole job)

`python -m sampling import --help` shows how to bring in measurements that others published, and
`python -m sampling import-archive --help` the archive of a GPU session (`python -m sampling.gpu_session`).
"""
IMPORTS = {"import": "sampling.importers.command", "import-archive": "sampling.session.import_archive"}
"""First words that name another command → the module whose `main` it is."""
MODELS = 64
ROWS_KEPT = "interrupted: rows timed so far are kept; the same command goes on from here"


def parser() -> argparse.ArgumentParser:
    from sampling.session.site import session_parser

    return session_parser("python -m sampling", DESCRIPTION, models=MODELS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample, or import, as the command line says; the exit code. A process that torchrun or srun started is one rank."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments and (module := IMPORTS.get(arguments[0])):
        return exit_code_of(lambda: int(import_module(module).main(arguments[1:])))

    def sample() -> int:
        from sampling.ranks.rank import become_rank, rank_from
        from sampling.session.site import device_of_node

        options = parser().parse_args(arguments)
        become_rank(arguments)
        rank = rank_from(os.environ)
        if rank is None:
            return run(options)
        from sampling.ranks.worker import as_rank

        def of_rank(world: World) -> int:
            return exit_code_of(lambda: run(options, world), interrupted=ROWS_KEPT)

        return as_rank(rank, of_rank, lambda: device_of_node(options))

    return exit_code_of(sample, interrupted=ROWS_KEPT)


def run(options: argparse.Namespace, world: World | None = None, strategy: Strategy | None = None) -> int:
    """A whole session; `world` are ranks that already run, `strategy` spends the budget (default: tasks in their order)."""
    from sampling.hardware.this_device import communication_facts
    from sampling.ranks.job import run_on_local_ranks
    from sampling.session.profile import close_session, forget_session, open_profile, profile_lock
    from sampling.session.run_tasks import run_tasks
    from sampling.session.site import check_options, find_site
    from sampling.store.profiles import samples_directory

    start = time.monotonic()
    check_options(options)
    site = find_site(options, world)
    placed = _placed_tasks(options, site)
    directory = samples_directory(site.profile, options.data)
    with profile_lock(directory) as lock:
        manifest = open_profile(
            directory,
            profile=site.profile,
            hardware=site.hardware,
            fresh=options.fresh,
            communication=communication_facts(site.hardware) | (world.provenance() if world else {}),
        )
        log(f"{site.profile}: {manifest.device['name']}, at most {seconds(options.budget)}")
        _warn_of_given_up(directory)
        outcome = (strategy or run_tasks)(
            directory,
            manifest,
            placed.tasks,
            budget_s=options.budget - (time.monotonic() - start),
            run_job=world or partial(run_on_local_ranks, lock=lock),
        )
        if outcome.kept:
            close_session(directory, manifest)
        else:
            forget_session(directory, manifest)
    too_large = f"{placed.too_large} collectives too large for the memory left out; " if placed.too_large else ""
    print(
        f"timed {outcome.kept} rows in {seconds(time.monotonic() - start)}, {outcome.kept - outcome.quarantined.total()} usable and "
        f"{outcome.quarantined.total()} set aside, in {directory}; {too_large}{_left(outcome, named=bool(options.calls))}"
    )
    for line in _quarantined(outcome):
        print(line)
    return 0


def _placed_tasks(options: argparse.Namespace, site: Site) -> PlacedTasks:
    """The calls that named runs need, then those that fill the space of shapes, on the ranks that they fit; a warning of those that fit
    none."""
    from sampling.choosing.ranges import read_ranges
    from sampling.choosing.tasks import (
        VISITS_OF_NAMED,
        memory_of_a_rank,
        place_tasks,
        space_filling_tasks,
        tasks_of_runs,
    )

    tasks: list[SamplingTask] = []
    if options.calls:
        visits = options.visits or VISITS_OF_NAMED
        tasks += tasks_of_runs(options.calls, site.hardware, site.machine.gpus_per_node, visits)
    if options.visits is None:
        ranges = read_ranges(options.ranges, site.hardware)
        tasks += space_filling_tasks(ranges, options.models, site.machine, site.rank_counts)
    placed = place_tasks(site.machine, tasks, lambda ranks: memory_of_a_rank(site.hardware, ranks))
    if placed.misplaced:
        log(f"{placed.misplaced} calls of groups that this machine cannot form are left out")
    return placed


def _warn_of_given_up(directory: Path) -> None:
    from sampling.store.journal import FAILED, given_up

    if faulty := given_up(directory):
        names = ", ".join(sorted({call.NAME for call, _ in faulty}))
        log(
            f"{len(faulty)} calls left out ({names}), since ranks failed while they were timed; "
            f"delete {directory / FAILED} to try them again"
        )


def _left(outcome: SessionOutcome, *, named: bool) -> str:
    """The calls that the budget did not reach, in words."""
    if outcome.named_left:
        return f"{outcome.named_left:,} timings of named calls left: run again to go on"
    done = ["named calls done"] if named else []
    optional = [f"{outcome.optional_left:,} timings of optional shapes left"] if outcome.optional_left else []
    return "; ".join([*done, *optional]) or "all shapes done"


def _quarantined(outcome: SessionOutcome) -> list[str]:
    """Why rows are set aside, which keeps them out of the time models, and what to do, a line for each reason."""
    return [
        f"  {count} set aside for {kind.in_words}: {kind.advice}" for kind, count in outcome.quarantined.most_common()
    ]


if __name__ == "__main__":
    sys.exit(main())
