"""Units of the accuracy benchmark: tables of published measurements, and the models of our own profiles."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regressors.dataset.training_data import TrainingData, load_profile, training_data
from sampling.call import Call
from sampling.errors import UserError
from sampling.hardware.cluster import Cluster
from sampling.importers import aiconfigurator, estimate_train_time
from sampling.importers.storing import cluster_of, good_samples
from sampling.importers.table import ImportRequest, Row, Table
from sampling.store.sample import Sample

FAMILIES = {
    "gemm": "gemm",
    "attention": "attention",
    "expert_mlp": "moe",
    "all_reduce": "nccl",
    "all_gather": "nccl",
    "reduce_scatter": "nccl",
    "all_to_all": "nccl",
}
TRAINED_IN = ("bf16", "fp16", "fp32")
"""Precisions whose published kernels are benchmarked; the others are used for inference."""
STANDARD_TABLES = {"gemm": "gemm", "attention": "context_attention", "moe": "moe", "nccl": "nccl"}
"""The table that stands for each family; another table of the same kind of call is a group of its own."""
OWN = "own samples"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """One table or model. Units of one `group` are averaged; `family` decides which rows are held out.

    `samples` are its rows on `cluster`. A table that was quarantined as a whole has no samples, and its data is None.
    """

    group: tuple[str, ...]
    operator: str
    family: str
    data: TrainingData | None
    quarantined: int
    samples: Sequence[Sample] = ()
    cluster: Cluster | None = None

    @property
    def calls(self) -> list[Call]:
        return [sample.call for sample in self.samples]


def own_units(profiles: Path) -> Iterator[Unit]:
    """One unit per model of every profile under data/samples."""
    for directory in sorted(path.parent for path in profiles.glob("*/manifest.json")):
        for data in load_profile(directory).operators:
            yield Unit(group=(OWN, directory.name), operator=str(data.key), family="", data=data, quarantined=0)


def published_units(data: Path) -> Iterator[Unit]:
    """One unit per table of estimate-train-time/ and aiconfigurator/ under `data`; UserError if both are missing."""
    trained, configurator = data / estimate_train_time.SOURCE, data / aiconfigurator.SOURCE
    if not (trained.is_dir() or configurator.is_dir()):
        raise UserError(
            f"--measurements: {data}: has neither {trained.name}/ nor {configurator.name}/; give the folder that holds them"
        )
    if trained.is_dir():
        for table in estimate_train_time.read(ImportRequest(path=trained)):
            yield _unit(table, (table.source, _device(table)), table.name, "", table.rows)
    if configurator.is_dir():
        for system in sorted({file.system for file in aiconfigurator.find(configurator)}):
            if system in aiconfigurator.SYSTEMS:
                for table in aiconfigurator.read(ImportRequest(path=configurator, system=system)):
                    yield from _by_operator(table)


def _by_operator(table: Table) -> Iterator[Unit]:
    """One unit per kind of call in a table, without the rows of precisions that training does not use."""
    by_name: dict[str, list[Row]] = {}
    for row in table.rows:
        if getattr(row.call, "dtype", "bf16") in TRAINED_IN:
            by_name.setdefault(row.call.NAME, []).append(row)
    for name, rows in by_name.items():
        family = FAMILIES.get(name, "")
        kind = (
            family
            if len(by_name) > 1 or table.name.startswith(STANDARD_TABLES.get(family, "-"))
            else table.name.split()[0]
        )
        yield _unit(table, (table.source, _device(table), kind), f"{table.name} {name}", family, rows)


def _unit(table: Table, group: tuple[str, ...], operator: str, family: str, rows: Sequence[Row]) -> Unit:
    part = Table(source=table.source, name=operator, hardware=table.hardware, rows=tuple(rows))
    samples, cluster = good_samples(part), cluster_of(table)
    found = training_data((sample, cluster) for sample in samples)
    return Unit(
        group=group,
        operator=operator,
        family=family,
        data=found[0] if found else None,
        quarantined=len(rows) - len(samples),
        samples=samples,
        cluster=cluster,
    )


def _device(table: Table) -> str:
    """`h100` of the catalogue's h100-sxm."""
    return table.hardware.partition("-")[0]
