"""Servers side by side: a serving config under every combination of some keys' values, ordered by an objective, and several configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from predict.config.choices import AUTO, is_choice
from predict.config.overrides import as_settings, parse_overrides
from predict.interval import Interval, width_of_ratio
from predict.plan_search.answer import Contender, Ratio, ratio
from predict.plan_search.sweep import OPTION as VARY
from predict.plan_search.sweep import SweptRows, parse_vary, swept_rows, unknown_key
from predict.serving.coefficients import Coefficients
from predict.serving.config import DECLARED_SECTIONS, ENGINE_NAME, ServingRun, load_serving, overridden
from predict.serving.loaded_server import LoadedServer
from predict.serving.questions import Answer, Questions, TokenCost, answer
from predict.serving.stepper import Stepper
from sampling.errors import UserError
from sampling.files.documents import read_yaml
from sampling.files.schema import Key, keys_of
from sampling.hardware.cluster import hardware_beside, hardware_facts

TP = "placement.tp"
"""The key that may be `auto`: then it goes up to the GPUs of one node."""
WHOLE = ("model", "hardware", "profile", "engine.name")
"""Keys that a name stands for."""
COST, GPU_TIME = "cost", "gpu-time"
"""Objectives: money, for which there must be a price, and what it is divided by where all GPUs cost alike."""
ServerSweep = SweptRows[Answer]


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """An objective that servers are ordered by: the least `value` is the best."""

    meaning: str
    value: Callable[[Answer], float]


def carried(found: Answer) -> Interval:
    """The rate that a server carries: with objectives the highest at which they hold, else its capacity."""
    rate = found.kept.rate if found.kept else found.capacity
    assert rate is not None
    return rate


def carried_ratio(first: Answer, other: Answer) -> Ratio:
    """The rate that the other carries over that of the first. Their errors count as independent: between measured servers of one model on one
    GPU they differ as much as between any two (docs/explanation/accuracy-of-servers.md), so that none of them cancels."""
    rates = [carried(each) for each in (first, other)]
    apart = width_of_ratio(*(rate.half_width_log for rate in rates if rate.low))
    values = [Contender(value=rate.median, repeats=apart) for rate in rates]
    return ratio(*values)


def per_gpu(found: Answer) -> float:
    return carried(found).median / found.server.run.server.placement.gpus


def carried_cost(found: Answer) -> TokenCost | None:
    """The cost of tokens at the rate that is carried; None without a price."""
    return found.kept_cost or found.capacity_cost


def money(found: Answer) -> float:
    """Money per million output tokens at that rate, for an answer with a price."""
    cost = carried_cost(found)
    assert cost is not None
    return cost.output.median


ORDERS: Mapping[str, Order] = {
    COST: Order(meaning="money per million output tokens at the rate that is carried", value=money),
    GPU_TIME: Order(meaning="GPU time per request at the rate that is carried", value=lambda found: 1 / per_gpu(found)),
    "rate": Order(meaning="requests per second that a server carries", value=lambda found: -carried(found).median),
    **{
        name: Order(meaning=f"mean {name.upper()}", value=lambda found, name=name: _mean_us(found, name))  # type: ignore[misc]
        for name in ("e2e", "ttft", "tpot")
    },
}


def _mean_us(found: Answer, figure: str) -> float:
    return float(getattr(found.outcomes[0].latency, figure).mean_us)


def answer_of(run: ServingRun, asked: Questions, coefficients: Coefficients) -> Answer:
    """The load of one config and the rate that it carries, with the other questions."""
    return answer(LoadedServer(run, Stepper(run.server, coefficients)), replace(asked, capacity=True))


def sweep_servers(
    config: Path | str,
    vary: Sequence[str],
    overrides: Sequence[str],
    asked: Questions,
    coefficients: Coefficients,
    progress: Callable[[int, int], None] | None = None,
    option: str = VARY,
) -> ServerSweep:
    """Predict a serving config under every combination of `vary`; errors name `option` for its keys. UserError for a key or a range that
    is wrong; ConfigError, or InfeasibleError, where no combination can run."""

    def predicted(values: Mapping[str, Any]) -> Answer:
        return answer_of(load_serving(config, [*overrides, *as_settings(values)]), asked, coefficients)

    return swept_rows(Path(config).stem, parse_vary(vary, key_of_server, option), predicted, progress, option)


def ordered(found: ServerSweep, order: str, top: int | None = None) -> ServerSweep:
    """The rows with the best first, no more than `top` of them, and then those without a prediction."""
    runs = [(ORDERS[order].value(row.prediction), row) for row in found.rows if row.prediction]
    best = [row for _, row in sorted(runs, key=lambda each: each[0])][:top]
    return replace(found, rows=(*best, *(row for row in found.rows if not row.prediction)))


def key_of_server(path: str) -> Key:
    """The declaration of a serving config's key; UserError for an unknown one, with the nearest."""
    known = _keys()
    if path not in known:
        raise unknown_key(path, list(known), "a serving config")
    return known[path]


def _keys() -> dict[str, Key]:
    """Path → the key, of those that have one value."""
    known = {path: Key(name=path, kind="string", meaning=ENGINE_NAME) for path in WHOLE}
    for section, (declared, _) in DECLARED_SECTIONS.items():
        known |= {f"{section}.{key.name}": key for key in keys_of(declared) if key.kind != "list"}
    return known


def opened(config: Path | str, overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The keys that a config, with its settings, leaves open, as lists or ranges, in the form of `vary`; and the other settings. Where nothing
    is open, tensor parallelism is. UserError where a setting gives that too, and for `auto` of another key; ConfigError for unknown hardware."""
    document, _ = read_yaml(Path(config))
    document = document or {}
    overridden(document, overrides, {})
    values = {path: _value_of(document, path) for path in _keys()}
    vary = {path: value for path, value in values.items() if is_choice(value)}
    others = [text for text in overrides if not _opens(text)]
    if wrong := [path for path, value in vary.items() if value == AUTO and path != TP]:
        raise UserError(f"{', '.join(wrong)}: auto is for {TP}; give values, as in [1, 2] or 1..8")
    given: dict[str, Any] = {}
    overridden(given, others, {})
    if not vary and _value_of(given, TP) is not None:
        raise UserError(
            f"{TP}: --set gives it, and no other key is open; leave one open, as in --set engine.max_num_seqs=64..256, or ask `predict serving`"
        )
    if not vary or vary.get(TP) == AUTO:
        vary[TP] = f"1..{_gpus_per_node(values['hardware'], Path(config))}"
    return [f"{path}={value}" for path, value in vary.items()], others


def _value_of(document: Mapping[str, Any], path: str) -> Any:
    section, _, name = path.partition(".")
    value = document.get(section)
    return value.get(name) if name and isinstance(value, Mapping) else value


def _opens(text: str) -> bool:
    """Whether a setting leaves its key open."""
    settings, faults = parse_overrides([text])
    return not faults and is_choice(settings[0].value) and settings[0].path in _keys()


def _gpus_per_node(hardware: Any, config: Path) -> int:
    """GPUs of the largest node of the devices that a config names."""
    names = hardware if isinstance(hardware, list) else [hardware]
    return max((hardware_facts(hardware_beside(str(each), config)).gpus_per_node for each in names if each), default=1)


def settings_of_server(run: ServingRun) -> dict[str, Any]:
    """Key path → value, the model and the device by their names."""
    server = run.server
    sections: Mapping[str, Any] = {"placement": server.placement, "engine": server.engine, "load": run.load}
    return {
        "model": server.model.name,
        "hardware": server.cluster.gpu.name,
        "profile": server.cluster.profile,
        "engine.name": run.engine_name,
        **{f"{section}.{name}": value for section, held in sections.items() for name, value in asdict(held).items()},
    }
