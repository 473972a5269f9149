"""Columns of a search's result, in a terminal and as JSON: those of every kind of config in COMMON, and those of one kind below."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, Generic, TypeVar

from predict.interval import Interval
from predict.kinds import Kind
from predict.plan_search.answer import RankedPlan, RankedPrediction
from predict.plan_search.search import settings_json
from predict.plan_search.serving import FIGURES, carried_cost, mean_latency, per_gpu
from predict.reports.money import amount_text
from predict.rl.books import RlLedger
from predict.rl.step import RlStep
from predict.serialise import as_json, picked
from predict.serving.questions import ServerAnswer, ServersForLoad, binding_text
from predict.step.prediction import Prediction
from sampling.number_text import count, duration, durations, gib, percent, plain, significant, size, whole_percent

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True, slots=True)
class Column(Generic[Row]):
    """One figure of a row."""

    value: Callable[[Row], Any]
    key: str = ""
    """Its name in JSON; '' for one that a terminal alone shows."""
    heading: str = ""
    """Its heading in a terminal; '' for one that JSON alone has."""
    write: Callable[[Any], str] = str
    """Writes the value as its cell in a terminal."""


Columns = Sequence[Column[Row]]
COMMON: Columns[Mapping[str, Any]] = (Column(key="gpus", value=itemgetter("n_cards")),)
"""Columns of every kind of config, by what they take of the prediction's row in the long table; they follow those of the kind."""


def as_content(columns: Columns[Row], row: Row) -> dict[str, Any]:
    """The row's figures as JSON, by their keys."""
    return {column.key: as_json(column.value(row)) for column in columns if column.key}


def cells(columns: Columns[Row], row: Row) -> list[str]:
    """The row's figures in a terminal."""
    return [column.write(column.value(row)) for column in columns if column.heading]


def headings(columns: Columns[Any]) -> list[str]:
    return [column.heading for column in columns if column.heading]


Plan = TypeVar("Plan", bound=RankedPrediction[Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed(Generic[Plan]):
    """One of the best of a search and its place, from 1."""

    place: int
    plan: Plan

    @property
    def prediction(self) -> Any:
        return self.plan.prediction

    @property
    def tied(self) -> bool:
        """Whether it may be as good as the first."""
        return self.place > 1 and self.plan.ratio.tied


PlacedPlan = Placed[RankedPlan]
FIRST: Columns[Placed[Any]] = (
    Column(key="rank", value=lambda row: row.place),
    Column(key="settings", value=lambda row: row.plan.settings),
)
LAST: Columns[Placed[Any]] = (
    Column(key="tied", value=lambda row: row.tied),
    Column(key="overlap", value=lambda row: row.plan.ratio.overlap),
    Column(key="ratio", value=lambda row: picked(row.plan.ratio, "median low high")),
)


def ranked(kind: Kind[Any, Any], own: Columns[Placed[Any]]) -> Columns[Placed[Any]]:
    """The columns of a search's result: the place and the settings, those of the kind, how the plan compares with the best, and COMMON."""
    common = (_lifted(each, lambda row: kind.row(row.prediction)) for each in COMMON)
    return (*FIRST, *own, *LAST, *common)


def of_predictions(columns: Columns[Any]) -> Columns[Placed[Any]]:
    """Columns of predictions as those of a search's result."""
    return [_lifted(each, lambda row: row.prediction) for each in columns]


def _lifted(column: Column[Any], of: Callable[[Placed[Any]], Any]) -> Column[Placed[Any]]:
    return replace(column, value=lambda row: column.value(of(row)))


# Plans of training.


def _cluster(row: PlacedPlan) -> dict[str, Any]:
    return picked(row.prediction.run.cluster, "hardware=gpu.name nodes gpus=world_size")


def _around(step: Interval) -> str:
    """`−11 % +13 %`."""
    return f"−{whole_percent(1 - step.low_us / step.median_us)} +{whole_percent(step.high_us / step.median_us - 1)}"


def plan_columns(*, with_cost: bool) -> Columns[PlacedPlan]:
    """Those of ranked plans; a training whose cost was asked for has it in place of the energy in a terminal.

    Headings of two lines keep the table of a whole training within 120 columns.
    """
    energy = "" if with_cost else "J/token"
    return (
        Column(key="plan", value=lambda row: settings_json(row.plan.settings)),
        Column(key="cluster", value=_cluster),
        Column(
            key="step_time_us",
            heading="step",
            value=lambda row: row.prediction.step_time,
            write=lambda step: duration(step.median_us),
        ),
        Column(heading="90 %", value=lambda row: row.prediction.step_time, write=_around),
        Column(
            key="tokens_per_second_per_gpu",
            heading="tok/s\n/GPU",
            value=lambda row: row.prediction.tokens_per_second_per_gpu,
            write=count,
        ),
        Column(key="mfu", heading="MFU", value=lambda row: row.prediction.mfu, write=percent),
        Column(
            key="memory_bytes",
            heading="memory",
            value=lambda row: row.prediction.memory.point_bytes,
            write=size,
        ),
        Column(
            key="headroom_bytes",
            heading="free",
            value=lambda row: row.prediction.memory.headroom_bytes,
            write=gib,
        ),
        Column(key="verdict", heading="fits", value=lambda row: row.prediction.memory.verdict, write=str.lower),
        Column(key="fits_probability", value=lambda row: row.prediction.memory.fits_probability),
        Column(key="same", value=lambda row: [settings_json(settings) for settings in row.plan.same]),
        Column(
            key="energy_j_per_token",
            heading=energy,
            value=lambda row: row.plan.energy_j_per_token,
            write=lambda energy: "" if energy is None else plain(energy),
        ),
        Column(key="cost", value=lambda row: row.plan.cost),
        *(COST if with_cost else ()),
    )


COST: Columns[PlacedPlan] = (
    Column(heading="GPU-\nhours", value=lambda row: row.plan.cost, write=lambda cost: count(cost.gpu_hours.median)),
    Column(heading="days", value=lambda row: row.plan.cost, write=lambda cost: significant(cost.days.median)),
    Column(
        heading="cost",
        value=lambda row: row.plan.cost,
        write=lambda cost: "" if cost.cost is None else amount_text(cost.cost.median, cost.currency),
    ),
    Column(
        heading="MWh",
        value=lambda row: row.plan.cost,
        write=lambda cost: "" if cost.energy_mwh is None else count(cost.energy_mwh.median),
    ),
)
STEPS: Columns[Prediction] = (
    Column(heading="step time", value=lambda found: found.median_us, write=duration),
    Column(
        heading="90 %", value=lambda found: found.step_time, write=lambda step: durations(step.low_us, step.high_us)
    ),
    Column(heading="tokens/s/GPU", value=lambda found: found.tokens_per_second_per_gpu, write=count),
    Column(heading="MFU", value=lambda found: found.mfu, write=percent),
    Column(
        heading="memory GiB",
        value=lambda found: found.memory,
        write=lambda memory: f"{gib(memory.point_bytes)} of {gib(memory.capacity_bytes)}",
    ),
    Column(heading="fits", value=lambda found: found.memory.verdict),
)
"""Those of a sweep over training steps."""

# Steps of reinforcement learning.

SIDE = ("gen", "update_actor", "update_weights")
"""Phases that the table shows; `predict rl-step` shows all of one."""


def _gpus(step: RlStep) -> str:
    """GPUs of the trainer, and those of the engines where they have their own."""
    own, engines = step.rl.base.cluster.world_size, step.rl.section.rollout.gpus
    return f"{own} + {engines}" if engines else str(own)


def _phase(name: str) -> Column[RlStep]:
    return Column(
        heading=name,
        value=lambda step: step.phase(name),
        write=lambda phase: "" if phase is None else duration(phase.time.median_us),
    )


RL_STEPS: Columns[RlStep] = (
    Column(heading="GPUs", value=_gpus),
    Column(
        key="step_time_us", heading="step", value=lambda step: step.time, write=lambda time: duration(time.median_us)
    ),
    Column(heading="90 %", value=lambda step: step.time, write=lambda time: durations(time.low_us, time.high_us)),
    Column(
        key="tokens_per_second_per_gpu",
        heading="tokens/s/GPU",
        value=lambda step: step.tokens_per_second_per_gpu,
        write=count,
    ),
    Column(key="phases_us", value=lambda step: {phase.name: phase.time.median_us for phase in step.phases}),
    *map(_phase, SIDE),
    Column(key="wait_gen_us", heading="trainer waits", value=lambda step: step.wait_gen_us, write=duration),
    Column(key="idle_gen_us", heading="engines wait", value=lambda step: step.idle_gen_us, write=duration),
    Column(key="memory_bytes", value=lambda step: step.memory.worst.peak),
    Column(key="verdict", value=lambda step: step.memory.verdict),
    Column(heading="fits", value=lambda step: step.memory.verdict),
    Column(key="sources", value=lambda step: RlLedger(step=step).sources),
)

# Servers.


def _rate(rate: Interval) -> str:
    return significant(rate.median)


def _rates(rate: Interval) -> str:
    return f"{significant(rate.low)} to {significant(rate.high)}"


def _for_load(found: ServerAnswer) -> ServersForLoad:
    assert found.kept is not None
    return found.kept.servers_for(found.server.run.load.rate)


def _with_spare(servers: int | None) -> str:
    """`2 + 1`: servers for the load, and one that may fail."""
    return f"{servers} + 1" if servers else ""


KEPT: Columns[Any] = (
    Column(key="slo_rps", heading="keeps", value=lambda found: found.kept.rate, write=_rate),
    Column(heading="90 %", value=lambda found: found.kept.rate, write=_rates),
    Column(heading="limit", value=lambda found: ", ".join(one.title for one in found.kept.binding) or "queue"),
    Column(key="slo_binding", value=lambda found: binding_text(found.kept)),
    Column(key="servers_for_load", value=lambda found: _for_load(found).least),
    Column(key="servers_for_load_at_low", value=lambda found: _for_load(found).at_low),
    Column(key="servers_for_load_with_spare", value=lambda found: _for_load(found).with_spare),
    Column(heading="for load", value=lambda found: _for_load(found).least, write=_with_spare),
)
"""Columns of the rate that keeps the objectives."""


def server_columns(first: ServerAnswer) -> Columns[ServerAnswer]:
    """Those of servers: objectives and money where the first has them, as then all have."""
    cost = carried_cost(first)
    return (
        Column(heading="GPUs", value=lambda found: found.server.run.gpus),
        Column(key="requests_at_once", heading="at once", value=lambda found: found.server.at_once, write=count),
        *(Column(key=f"{name}_us", value=partial(mean_latency, figure=name)) for name in FIGURES),
        Column(key="overloaded", value=lambda found: found.outcomes[0].grows),
        Column(
            heading="E2E", value=lambda found: _unless_growing(found, duration(_latency(found).e2e.mean_us)) or GROWS
        ),
        Column(heading="90 %", value=lambda found: _unless_growing(found, _bounds(found))),
        Column(
            heading="TTFT p90",
            value=lambda found: _unless_growing(found, duration(_latency(found).ttft.percentiles_us[90])),
        ),
        Column(heading="TPOT", value=lambda found: _latency(found).tpot.mean_us, write=duration),
        Column(key="capacity_rps", heading="capacity", value=lambda found: found.capacity, write=_rate),
        *(KEPT if first.kept else (Column(heading="90 %", value=lambda found: found.capacity, write=_rates),)),
        Column(key="per_gpu_rps", heading="per GPU", value=per_gpu, write=significant),
        *((Column(key="carried_cost", heading="per M out", value=carried_cost, write=_per_million),) if cost else ()),
    )


GROWS = "queue grows"


def _latency(found: ServerAnswer) -> Any:
    return found.outcomes[0].latency


def _bounds(found: ServerAnswer) -> str:
    e2e = found.outcomes[0].mean_us("e2e")
    return durations(e2e.low, e2e.high)


def _unless_growing(found: ServerAnswer, text: str) -> str:
    """A time of requests, which says nothing where the queue grows."""
    return "" if found.outcomes[0].grows else text


def _per_million(cost: Any) -> str:
    return amount_text(cost.output.median, cost.currency)
