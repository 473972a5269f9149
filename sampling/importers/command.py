"""`python -m sampling import NAME [PATH]`: other people's measurements into data/imported/, judged and reported."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sampling.arguments import Parser
from sampling.errors import ConfigError
from sampling.files.faults import counted
from sampling.files.places import SHIPPED_DATA, own_data
from sampling.importers import importers
from sampling.importers.storing import StoredTable, store
from sampling.importers.table import ImportRequest, Table
from sampling.store.profiles import IMPORTED, samples_directory
from sampling.store.sample import Sample

DESCRIPTION = """\
Bring measurements that others published, or that you have from elsewhere, into data/imported/ (which git ignores).

{importers}

Rows that no device of the kind can have measured are quarantined with the reason, and never learnt from. Then:

  python -m regressors --data data/imported --profile PROFILE
"""


def listing() -> str:
    """The importers by name, a line each."""
    return "\n".join(f"  {name:19}  PATH: {importer.path}" for name, importer in importers().items())


def parser() -> argparse.ArgumentParser:
    commands = Parser(
        prog="python -m sampling import",
        description=DESCRIPTION.format(importers=listing()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit codes: 0 done, 2 wrong usage or no space, 3 files unreadable, empty or of another kind",
    )
    commands.add_argument("name", choices=list(importers()), metavar="NAME", help="whose measurements they are")
    commands.add_argument("path", type=Path, nargs="?", help="file or folder of the measurements")
    commands.add_argument(
        "--system",
        default="",
        metavar="NAME",
        help="their device: the publisher's name or the one in configs/hardware",
    )
    commands.add_argument(
        "--framework",
        default="",
        metavar="NAME",
        help="aiconfigurator: whose tables come first (default: vllm, sglang, trtllm)",
    )
    commands.add_argument(
        "--collective", default="", metavar="NAME", help="nccl-tests: what a log without a header timed"
    )
    commands.add_argument("--ranks-per-node", type=int, default=0, metavar="N", help="torch-trace: GPUs per node")
    commands.add_argument("--threads", type=int, default=0, metavar="N", help="torch-trace of a CPU: its threads")
    commands.add_argument("--profile", default="", help="name the rows are kept under (default: DEVICE-NAME)")
    commands.add_argument(
        "--data", type=Path, metavar="DIR", help=f"folder of samples/ (default: {IMPORTED}/ of the user's data)"
    )
    return commands


def main(arguments: Sequence[str]) -> int:
    for line in run(parser().parse_args(arguments)):
        print(line)
    return 0


def run(options: argparse.Namespace) -> Iterator[str]:
    """Import, and yield the lines of the report."""
    request = ImportRequest(
        path=options.path,
        system=options.system,
        framework=options.framework,
        collective=options.collective,
        ranks_per_node=options.ranks_per_node,
        threads=options.threads,
    )
    tables = importers()[options.name].tables(request)
    by_hardware: dict[str, list[Table]] = {}
    for table in tables:
        by_hardware.setdefault(table.hardware, []).append(table)
    if options.profile and len(by_hardware) > 1:
        raise ConfigError(
            f"--profile {options.profile}: one profile holds one device, and these are of {', '.join(by_hardware)}; "
            "choose one with --system"
        )
    data = options.data or own_data() / IMPORTED
    for hardware, of_device in by_hardware.items():
        directory = samples_directory(options.profile or f"{hardware}-{options.name}", data)
        outcomes = store(of_device, directory, homes=(data, own_data() / IMPORTED, own_data(), SHIPPED_DATA))
        yield from report(outcomes, directory)


def report(outcomes: Sequence[StoredTable], directory: Path) -> Iterator[str]:
    """A line per table, followed by its reasons for quarantine, each with an example, and its remarks."""
    width = max(len(outcome.table.name) for outcome in outcomes)
    yield f"{'table':{width}}  {'rows':>7} {'kept':>7} {'merged':>7} {'quarantined':>11}"
    for outcome in outcomes:
        figures = f"{outcome.rows:7} {outcome.kept:7} {outcome.merged:7} {outcome.quarantined:11}"
        yield f"{outcome.table.name:{width}}  {figures}"
        yield from (f"    {line}" for line in (*reasons(outcome.samples), *outcome.table.remarks))
    kept, bad = (sum(getattr(outcome, name) for outcome in outcomes) for name in ("kept", "quarantined"))
    yield f"kept {counted(kept, 'row')} ({bad} quarantined) in {directory}"
    if kept:
        yield f"they time {what_they_time(sample for outcome in outcomes for sample in outcome.samples)}"


def what_they_time(samples: Iterable[Sample]) -> str:
    """The calls of the good samples, each with the precisions it was timed in."""
    found: dict[str, dict[str, None]] = {}
    for sample in samples:
        if not sample.quarantine:
            dtype = sample.call.fields().get("dtype")
            found.setdefault(sample.call.NAME, {}).update(dict.fromkeys([dtype] if dtype else []))
    return ", ".join(f"{name} ({', '.join(dtypes)})" if dtypes else name for name, dtypes in sorted(found.items()))


def reasons(samples: Sequence[Sample]) -> Iterator[str]:
    """Each kind of reason with the number of its rows, and the first of them."""
    by_kind: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.quarantine:
            by_kind.setdefault(sample.quarantine.split(":")[0], []).append(sample)
    for bad in by_kind.values():
        fields = ", ".join(f"{name}={value}" for name, value in bad[0].call.fields().items())
        yield f"{len(bad)} × {bad[0].quarantine} [{bad[0].call.NAME} {bad[0].phase}: {fields}]"
