"""Serving configs as sweeps, searches and comparisons see them: each under its load, with the rate that it carries."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from predict.config.document import path_of, read_config
from predict.interval import Interval, width_of_ratio
from predict.kinds import SERVING, EnumeratedKind, Measure, Order, ServerOptions, Setting, Values, settings_of_section
from predict.plan_search.ties import REPEATS, Ratio
from predict.run.plan import AUTO
from predict.serving.coefficients import chosen_coefficients
from predict.serving.config import DECLARED_SECTIONS, ENGINE_NAME, ServingRun, load_serving, read_serving
from predict.serving.kv_cache import CacheRoom
from predict.serving.loaded_server import LoadedServer
from predict.serving.questions import Questions, ServerAnswer, TokenCost, answer, binding_text, questions_of
from predict.serving.server import EngineSettings, ServerPlacement
from predict.serving.speculation import NAME as SPECULATION
from predict.serving.speculation import NONE
from predict.serving.stepper import Stepper
from predict.step.scheduling import Estimate
from sampling.errors import Checks, UserError
from sampling.files.schema import Key, keys_of
from sampling.hardware.cluster import Cluster, hardware_beside, hardware_facts
from sampling.units import SECOND_US

TP = "placement.tp"
"""The key that may be `auto`: then it goes up to the GPUs of one node."""
OF_ENGINES = ("memory_share_of", "never_preempts")
"""Keys that say how an engine works rather than what is chosen of it."""
WHOLE = ("model", "hardware", "profile", "engine.name")
"""Keys that a name stands for."""
COLUMNS = """
model commit device n_cards tp pp dp precision kv_precision engine seq_prompt seq_response rate_rps requests_at_once e2e_s e2e_low_s e2e_high_s
ttft_s ttft_low_s ttft_high_s tpot_s tpot_low_s tpot_high_s overloaded capacity_rps capacity_low_rps capacity_high_rps slo_rps slo_low_rps
slo_high_rps slo_binding cost_per_million_output reason
"""
"""Columns of the long table: times in seconds, rates in requests per second of all replicas, the cost at the rate that is carried."""


FIGURES = ("e2e", "ttft", "tpot")
"""Latencies of a request."""


def carried(found: ServerAnswer) -> Interval:
    """The rate that a server carries: with objectives the highest at which they hold, else its capacity."""
    rate = found.kept.rate if found.kept else found.capacity
    assert rate is not None
    return rate


def width_apart(first: ServerAnswer, other: ServerAnswer, of: Callable[[ServerAnswer], Interval]) -> float:
    """Half-width in log at 90 % of the ratio of a figure of two servers, without what is common to both.

    Of one model on one GPU an architecture without fitted weights, terms that no measurement covers and rows of another CPU move both
    alike. Errors of the fitted weights do not: between measured servers of one model on one GPU that differ in settings, they differ as
    much as between any two (docs/explanation/accuracy-of-servers.md). One server beside itself has the noise of repeated measurements
    alone.
    """
    if KIND.settings(first) == KIND.settings(other):
        return REPEATS
    servers = [each.server.run.server for each in (first, other)]
    is_alike = servers[0].model == servers[1].model and servers[0].cluster.gpu == servers[1].cluster.gpu
    widths = []
    for each in (first, other):
        stepper, interval = each.server.stepper, of(each)
        share = stepper.coefficients.half_width / stepper.half_width if is_alike and stepper.half_width else 1.0
        widths.append(share * interval.half_width_log if interval.low else 0.0)
    return width_of_ratio(*widths)


def per_gpu(found: ServerAnswer) -> float:
    return carried(found).median / found.server.run.gpus


def carried_cost(found: ServerAnswer) -> TokenCost | None:
    """The cost of tokens at the rate that is carried; None without a price."""
    return found.kept_cost or found.capacity_cost


def money(found: ServerAnswer) -> float:
    """Money per million output tokens at that rate, for an answer with a price."""
    cost = carried_cost(found)
    assert cost is not None
    return cost.output.median


def _mean_us(found: ServerAnswer, figure: str) -> float:
    return mean_latency(found, figure).median_us


def mean_latency(found: ServerAnswer, figure: str) -> Interval:
    """The mean latency of the load, with its bounds."""
    return found.outcomes[0].mean_us(figure)


ORDERS: Mapping[str, Order[ServerAnswer]] = {
    "cost": Order(meaning="money per million output tokens at the rate that is carried", value=money, needs_price=True),
    "gpu-time": Order(
        meaning="GPU time per request at the rate that is carried", value=lambda found: 1 / per_gpu(found)
    ),
    "rate": Order(meaning="requests per second that a server carries", value=lambda found: 1 / carried(found).median),
    **{
        name: Order(meaning=f"mean {name.upper()}", value=lambda found, name=name: _mean_us(found, name))  # type: ignore[misc]
        for name in FIGURES
    },
}


class ServingKind(EnumeratedKind[ServingRun, ServerAnswer]):
    """Servers under a load."""

    name = SERVING
    columns = COLUMNS
    orders = ORDERS
    measures: ClassVar[Mapping[str, Measure[ServerAnswer]]] = {
        "carried_rps": Measure(title="carries, requests/s", value=lambda found: carried(found).median, is_rate=True),
        **{
            f"{name}_us": Measure(title=f"{name.upper()}, mean", value=lambda found, name=name: _mean_us(found, name))  # type: ignore[misc]
            for name in FIGURES
        },
    }
    can_be_auto = (TP,)

    def load(self, config: Any, overrides: Sequence[str]) -> ServingRun:
        return load_serving(config, overrides)

    def key(self, path: str) -> Key | None:
        return _keys().get(path)

    def paths(self) -> Sequence[str]:
        return list(_keys())

    def predictor(self, estimate: Estimate, of_servers: ServerOptions) -> Callable[[ServingRun], ServerAnswer]:
        questions, file = Questions(), of_servers.coefficients
        with Checks() as checks:
            with checks.one():
                questions = replace(questions_of(of_servers.slo, of_servers.price), capacity=True)
            with checks.one():
                coefficients = chosen_coefficients(of_servers.model, Path(file) if file else None)
        return lambda run: answer(LoadedServer(run, Stepper(run.server, coefficients), questions.tpot_us), questions)

    def row(self, predicted: ServerAnswer) -> dict[str, Any]:
        return _cells(predicted)

    def memory(self, predicted: ServerAnswer) -> CacheRoom:
        return predicted.server.room

    def settings(self, predicted: ServerAnswer) -> Values:
        run, server = predicted.server.run, predicted.server.run.server
        sections: Mapping[str, Any] = {
            **{"placement": server.placement, "engine": server.engine, "load": run.load},
            **{"load.prefix": run.load.prefix, "fleet": run.fleet, "tiers": run.tiers},
        }
        if server.speculation.kind != NONE:
            sections = {**sections, SPECULATION: server.speculation}
        return {
            "model": server.model.name,
            "hardware": server.cluster.gpu.name,
            "profile": server.cluster.profile,
            "engine.name": run.engine_name,
            **{
                f"{section}.{name}": value
                for section, held in sections.items()
                for name, value in asdict(held).items()
                if not isinstance(value, dict)
            },
        }

    def run_of(self, predicted: ServerAnswer) -> ServingRun:
        return predicted.server.run

    def cluster_of(self, run: ServingRun) -> Cluster:
        return run.server.cluster

    def on_cluster(self, run: ServingRun, cluster: Cluster) -> ServingRun:
        return replace(run, server=replace(run.server, cluster=cluster))

    def switched(self, run: ServingRun) -> Iterator[Setting]:
        yield from settings_of_section("placement", run.server.placement, keys_of(ServerPlacement))
        yield from settings_of_section("engine", run.server.engine, keys_of(EngineSettings), but=OF_ENGINES)

    def ratio(self, best: ServerAnswer, other: ServerAnswer, objective: str) -> Ratio:
        value = ORDERS[objective].value
        figure = partial(mean_latency, figure=objective) if objective in FIGURES else carried
        return Ratio.from_log(value(other) / value(best), width_apart(best, other, figure))

    def rate_ratio(self, first: ServerAnswer, other: ServerAnswer) -> Interval:
        """The rate that is carried."""
        return Interval.from_log(carried(other).median / carried(first).median, width_apart(first, other, carried))

    def content(self, config: Any, overrides: Sequence[str]) -> Values:
        return read_serving(config, overrides)[0].content

    def opened(self, overrides: Sequence[str]) -> dict[str, Any]:
        given = read_config({})
        given.put_settings(overrides, ())
        placement = given.content.get("placement")
        if isinstance(placement, Mapping) and placement.get("tp") is not None:
            raise UserError(
                f"{TP}: --set gives it, and no other key is open; leave one open, as in --set engine.max_num_seqs=64..256, or ask `predict "
                "serving`"
            )
        return {TP: AUTO}

    def automatic(
        self, config: Any, overrides: Sequence[str], varied: Values, wanted: Collection[str]
    ) -> dict[str, tuple[Any, ...]]:
        """Tensor parallelism in powers of two up to the largest node of the devices that a config names."""
        given = varied.get("hardware") or self.content(config, overrides).get("hardware")
        names = given if isinstance(given, list | tuple) else [given]
        facts = [hardware_facts(hardware_beside(str(each), path_of(config))) for each in names if each]
        most = max((each.gpus_per_node for each in facts), default=1)
        return {TP: tuple(2**power for power in range(most.bit_length()))}


KIND = ServingKind()


def _keys() -> dict[str, Key]:
    """Path → the key, of those that have one value."""
    known = {path: Key(name=path, kind="string", meaning=ENGINE_NAME) for path in WHOLE}
    for section, (declared, _) in DECLARED_SECTIONS.items():
        for key in keys_of(declared):
            if key.kind == "section":
                known |= {f"{section}.{key.name}.{of.name}": of for of in keys_of(key.of)}
            elif key.kind != "list":
                known[f"{section}.{key.name}"] = key
    return known


def _cells(found: ServerAnswer) -> dict[str, Any]:
    run, one, capacity = found.server.run, found.outcomes[0], found.capacity
    placed, traffic = run.server.placement, one.served.traffic
    cost = carried_cost(found)
    cells: dict[str, Any] = {
        "model": run.server.model.name,
        "device": run.server.cluster.gpu.name,
        "n_cards": run.gpus,
        **{name: getattr(placed, name) for name in ("tp", "pp", "dp", "precision", "kv_precision")},
        "engine": run.engine_name,
        "seq_prompt": float(traffic.prompt.mean()),
        "seq_response": float(traffic.output.mean()),
        "rate_rps": one.load.rate,
        "requests_at_once": found.server.at_once,
        "overloaded": one.grows,
        **_rate_columns("capacity", capacity),
        **_rate_columns("slo", found.kept.rate if found.kept else None),
        "slo_binding": binding_text(found.kept) if found.kept else None,
        "cost_per_million_output": cost.output.median if cost else None,
    }
    for name in FIGURES:
        mean = one.mean_us(name)
        for end, us in (("", mean.median), ("_low", mean.low), ("_high", mean.high)):
            cells[f"{name}{end}_s"] = us / SECOND_US
    return cells


def _rate_columns(name: str, rate: Interval | None) -> dict[str, float]:
    if rate is None:
        return {}
    return {f"{name}_rps": rate.median, f"{name}_low_rps": rate.low, f"{name}_high_rps": rate.high}
