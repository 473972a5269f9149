"""Published jobs compared with predictions: `predict validate jobs`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from predict import estimate, job, load
from predict.config.document import Document
from predict.interval import Interval
from predict.ledger.job_energy import W_PER_MW, JobEnergy
from predict.ledger.job_settings import job_settings
from predict.ledger.training_cost import HOURS_PER_DAY, parse_tokens
from predict.ledger.whole_job import MINUTES, Phase, WholeJob
from predict.serialise import each_picked, versioned
from predict.truth_table import columns_of
from predict.validation.compared import Compared, Refused, scores
from predict.validation.published_row import PublishedRow, read_rows
from sampling.errors import UserError
from sampling.files.places import SHIPPED_DATA
from sampling.files.schema import Key, Text, one_of
from sampling.progress import Progress, silent

SHIPPED_JOBS = SHIPPED_DATA / "published" / "jobs.csv"
"""Jobs whose figures papers, cards and logs print, typed from them, each with its source."""
LIMIT, BOARDS, COMPUTERS = "limit", "boards", "computers"
Positive = Annotated[float | None, Key(minimum=0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRow:
    """A published job. A blank figure was not published."""

    row_id: str = ""
    """Name of the row."""
    source: Text
    """The figures' source."""
    url: str = ""
    settings: Text
    """The keys of its config, such as `model=llama3.1-405b plan.tp=8`, separated by spaces."""
    tokens: Text
    """All tokens, as 15.6T."""
    phases: str = ""
    """Tokens with other settings, separated by semicolons, as `800B batch.seq_len=131072`."""
    beside: str = ""
    """What is known of its failures and saves, as `predict job --with` takes it."""
    gpu_hours: Positive = None
    minutes: Positive = None
    """Minutes from start to stop."""
    failures: Positive = None
    """Unexpected interruptions in `failure_days`."""
    failure_days: Positive = None
    kept_share: Positive = None
    """Share of the time that was effective, at least."""
    energy_mwh: Positive = None
    energy_of: Annotated[str, one_of(LIMIT, BOARDS, COMPUTERS)] = ""
    """What the energy is of: boards, computers (boards, hosts and network), or GPU-hours at the limit of the boards."""
    notes: str = ""


JOBS = columns_of(JobRow, "a table of published jobs, one per row")


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedFigure(Compared):
    """A figure of a published job beside its prediction."""

    row_id: str
    figure: str
    source: str
    at_least: bool = False
    """Whether a lower bound was published: a prediction above it is no error."""

    @property
    def error(self) -> float:
        beyond = self.predicted.median / self.measured - 1
        return min(0.0, beyond) if self.at_least else beyond

    @property
    def covered(self) -> bool:
        return self.predicted.high >= self.measured if self.at_least else self.predicted.covers(self.measured)


ComparedJob = ComparedFigure | Refused[PublishedRow]


def validate_jobs(truth: Path | None, progress: Progress = silent) -> list[ComparedJob]:
    """The figures of the jobs of a table, by default those that ship, beside their predictions."""
    rows, found = read_rows(truth or SHIPPED_JOBS, columns=JOBS), list[ComparedJob]()
    for done, row in enumerate(rows, 1):
        try:
            if row.fault:
                raise UserError(row.fault)
            found += _compared(row, predicted_job(row))
        except UserError as error:
            found.append(Refused(row=row, why=str(error)))
        progress(done, len(rows), row.row_id)
    return found


def predicted_job(row: PublishedRow) -> WholeJob:
    """The prediction of a row."""
    document = Document(name=row.row_id, content={})
    settings = row.text("settings").split()
    phases = [each.split() for each in row.text("phases").split(";") if each.strip()]
    return job(
        estimate(load(document.with_settings(settings))),
        row.text("tokens"),
        settings=job_settings(row.text("beside").split()),
        phases=[
            Phase(prediction=estimate(load(document.with_settings([*settings, *changed]))), tokens=parse_tokens(tokens))
            for tokens, *changed in phases
        ],
    )


def _compared(row: PublishedRow, found: WholeJob) -> Iterator[ComparedFigure]:
    """The figures that the row has."""
    for figure, predicted in _predicted(row, found).items():
        if (measured := row.number(figure)) is not None:
            yield ComparedFigure(
                predicted=predicted,
                measured=measured,
                row_id=row.row_id,
                figure=figure,
                source=row.text("source"),
                at_least=figure == "kept_share",
            )


def _predicted(row: PublishedRow, found: WholeJob) -> dict[str, Interval]:
    figures = {
        "gpu_hours": found.gpu_hours,
        "minutes": found.days.scaled(HOURS_PER_DAY * MINUTES),
        "failures": found.failures.scaled((row.number("failure_days") or 0.0) / found.days.median),
        "kept_share": found.goodput,
    }
    if found.energy:
        figures["energy_mwh"] = _energy(row.text("energy_of"), found.gpu_hours, found.energy)
    return figures


def _energy(of: str, gpu_hours: Interval, energy: JobEnergy) -> Interval:
    """MWh of what the row counts: at the limit of the boards, hours alone are predicted."""
    if of == LIMIT:
        return gpu_hours.scaled(energy.limit_w / W_PER_MW)
    beside = energy.hosts_mwh + energy.network_mwh if of == COMPUTERS else 0.0
    whole = energy.boards_mwh + energy.hosts_mwh + energy.network_mwh + energy.cooling_mwh
    return energy.total_mwh.scaled((energy.boards_mwh + beside) / whole)


def jobs_json(found: Sequence[ComparedJob]) -> dict[str, Any]:
    """Each figure, and the scores of all."""
    compared = [one for one in found if isinstance(one, ComparedFigure)]
    figures = scores(compared)
    return versioned(
        "validate-jobs",
        {
            "figures": each_picked(
                compared, "row_id figure published=measured at_least predicted error covered source"
            ),
            "refused": {one.row.row_id: one.why for one in found if isinstance(one, Refused)},
            "coverage": figures.coverage,
            **figures.percent,
        },
    )
