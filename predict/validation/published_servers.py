"""Published figures of servers next to their predictions: rates of prompts and answers of whole inference systems, gains of speculation,
and shares of prompts that were in a cache."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from predict.interval import Interval
from predict.serialise import as_json, each_picked, picked, versioned
from predict.serving.batch import Chunk, StepBatch
from predict.serving.config import ServingRun, load_serving
from predict.serving.loaded_server import LoadedServer
from predict.serving.stepper import stepper
from predict.serving.traffic import traffic_of
from predict.truth_table import columns_of, read_declared
from predict.validation.compared import Compared, Refused
from sampling.errors import UserError
from sampling.files.places import SHIPPED_DATA
from sampling.files.schema import Key, one_of
from sampling.units import SECOND_US

Figure = Literal["prompts", "answers", "speedup", "found"]
Count = Annotated[int, Key(minimum=0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedServer:
    """One published figure of a server, and the settings that its source states."""

    row_id: str
    source: str
    url: str
    date: str
    model: str
    hardware: str
    engine: str
    """An engine of configs/engines."""
    figure: Annotated[str, one_of(*get_args(Figure))]
    """prompts and answers: tokens per second, of steps that compute prompts or answers alone; speedup: time of a token without drafts over
    that with them; found: share of the prompts' tokens that were in a cache."""
    value: Annotated[float, Key(minimum=0)]
    gpus: Annotated[int, Key(minimum=1)] = 1
    """GPUs that the rate is of: 8 for one of a node."""
    tokens: Count = 0
    """Tokens of a step of a replica that computes prompts."""
    prompt: Count = 0
    """Tokens of each of these prompts."""
    requests: Count = 0
    """Requests of a step of a replica that computes answers."""
    context: Count = 0
    """Tokens of each of these requests in the cache."""
    settings: str = ""
    """Further settings of the serving config, as `placement.tp=1; engine.two_batch_overlap=true`."""
    explained: str = ""
    """Why the figure is not within the interval, or what of it is assumed."""

    def run(self) -> ServingRun:
        """The server and its load. UserError for settings that cannot be."""
        settings = [setting.strip() for setting in self.settings.split(";") if setting.strip()]
        engine: dict[str, Any] = {"name": self.engine, "max_num_seqs": self.requests or MANY}
        if self.tokens:
            engine["max_num_batched_tokens"] = self.tokens
        load = {"rate": 1.0, "prompt": max(1, self.prompt or self.context), "output": 1}
        return load_serving({"model": self.model, "hardware": self.hardware, "engine": engine, "load": load}, settings)


MANY = 64
"""Requests at once where a figure says nothing of them."""
TABLE = columns_of(PublishedServer, "a table of published figures of servers")
SHIPPED = SHIPPED_DATA / "published" / "servers.csv"
FOUND_WIDTH = 0.03
"""Log half-width at 90 % of shares of prompts that were found: traces have turns and lengths that differ, in place of equal ones.
Assumed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedServer(Compared):
    """A figure and its prediction, both in the figure's own unit."""

    row: PublishedServer


def compare_servers(
    rows: Sequence[PublishedServer],
) -> tuple[list[ComparedServer], list[Refused[PublishedServer]]]:
    """Every row predicted, by the coefficients that come with the program; those that cannot be, with the reason."""
    compared, refused = [], []
    for row in rows:
        try:
            compared.append(ComparedServer(row=row, predicted=FIGURES[row.figure](row), measured=row.value))
        except UserError as error:
            refused.append(Refused(row=row, why=str(error)))
    return compared, refused


def _prompts_per_s(row: PublishedServer) -> Interval:
    """Tokens of prompts per second of steps full of whole prompts."""
    return _tokens_per_s(row, StepBatch(chunks=(Chunk(tokens=row.prompt),) * (row.tokens // row.prompt)), row.tokens)


def _answers_per_s(row: PublishedServer) -> Interval:
    """Tokens of answers per second, those of accepted drafts among them."""
    return _tokens_per_s(row, StepBatch(decodes=(row.context,) * row.requests), row.requests)


def _tokens_per_s(row: PublishedServer, batch: StepBatch, tokens: int) -> Interval:
    server = row.run().server
    (time,) = stepper(server).step_times([batch])
    of_decode = server.speculation.tokens_per_step if batch.decodes else 1.0
    share = row.gpus * server.placement.streams / server.placement.gpus
    return time.dividing(share * tokens * of_decode * SECOND_US)


def _speedup(row: PublishedServer) -> Interval:
    """The gain of drafts with the requests of the row at once."""
    return stepper(row.run().server).paying(row.context).speedups[-1]


def _found(row: PublishedServer) -> Interval:
    """The share of prompts that was in a cache, or came from memory behind it."""
    run = row.run()
    server = LoadedServer(run, stepper(run.server))
    served = server.serve(traffic_of(run.load), server.tables[1])
    brought = sum(served.fleet.brought_tokens.values()) if served.fleet else 0.0
    return Interval.from_log((served.found_tokens + brought) / float(served.traffic.prompt.sum()), FOUND_WIDTH)


FIGURES: Mapping[str, Callable[[PublishedServer], Interval]] = {
    "prompts": _prompts_per_s,
    "answers": _answers_per_s,
    "speedup": _speedup,
    "found": _found,
}


def validate_published_servers(
    truth: Path | None,
) -> tuple[list[ComparedServer], list[Refused[PublishedServer]]]:
    """The figures of a table, or those that ship. ConfigError lists every fault of the table."""
    return compare_servers(read_declared(truth or SHIPPED, PublishedServer, TABLE))


def published_servers_json(
    found: tuple[Sequence[ComparedServer], Sequence[Refused[PublishedServer]]],
) -> dict[str, Any]:
    """The content of `predict validate servers --json`."""
    compared, refused = found
    return versioned(
        "validate-servers",
        {
            "rows": [{**as_json(one.row), **picked(one, "predicted error covered")} for one in compared],
            "refused": each_picked(refused, "row_id=row.row_id reason=why"),
        },
    )
