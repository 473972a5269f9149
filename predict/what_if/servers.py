"""Servers side by side: a serving config under every combination of some keys' values, ordered by an objective, and several configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from predict.config.choices import is_choice
from predict.config.overrides import parse_overrides
from predict.serving.coefficients import Coefficients
from predict.serving.config import ServingRun, load_serving
from predict.serving.planning.answer import Answer, Questions, answer
from predict.serving.planning.loaded_server import LoadedServer, Rate
from predict.serving.schema import ENGINE_NAME, SECTIONS
from predict.serving.stepper import Stepper
from predict.what_if.rows import SweptRow, SweptRows, swept_rows
from predict.what_if.vary import as_settings, parse_vary, unknown_key
from sampling.errors import UserError
from sampling.files.documents import read_yaml
from sampling.files.keys import Key, keys_of

TP, DEGREES = "placement.tp", "1..8"
"""The key that may be `auto`, and its values then: the GPUs of one node."""
WHOLE = ("model", "hardware", "profile", "engine.name")
"""Keys that a name stands for."""
ServerSweep = SweptRows[Answer]
ServerRow = SweptRow[Answer]


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """An objective that servers are ordered by: the least `value` is the best."""

    meaning: str
    value: Callable[[Answer], float]


def carried(found: Answer) -> Rate:
    """The rate that a server carries: with objectives the highest at which they hold, else its capacity."""
    rate = found.kept.rate if found.kept else found.capacity
    assert rate is not None
    return rate


def per_gpu(found: Answer) -> float:
    return carried(found).median_per_s / found.server.run.server.placement.gpus


ORDERS: Mapping[str, Order] = {
    "cost": Order(meaning="GPU time per request at the rate that is carried", value=lambda found: 1 / per_gpu(found)),
    "rate": Order(
        meaning="requests per second that a server carries", value=lambda found: -carried(found).median_per_s
    ),
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
) -> ServerSweep:
    """Predict a serving config under every combination of `vary`. UserError for a key or a range that is wrong; ConfigError where no
    combination can run."""

    def predicted(values: Mapping[str, Any]) -> Answer:
        return answer_of(load_serving(config, [*overrides, *as_settings(values)]), asked, coefficients)

    return swept_rows(Path(config).stem, parse_vary(vary, key_of_server), predicted, progress)


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
    for section, (declared, _) in SECTIONS.items():
        known |= {f"{section}.{key.name}": key for key in keys_of(declared) if key.kind != "list"}
    return known


def opened(config: Path | str, overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The keys that a config or settings leave open, as lists or ranges, in the form of `vary`; and the other settings. Where nothing is
    open, tensor parallelism is. UserError for `auto` of another key."""
    document, _ = read_yaml(Path(config))
    known, vary, others = _keys(), {}, []
    for path in known:
        section, _, name = path.partition(".")
        value = (document or {}).get(section)
        value = value.get(name) if name and isinstance(value, Mapping) else value
        if is_choice(value):
            vary[path] = f"{path}={value}"
    for text in overrides:
        settings, faults = parse_overrides([text])
        if not faults and settings and is_choice(settings[0].value) and settings[0].path in known:
            vary[settings[0].path] = text
        else:
            others.append(text)
    if wrong := [path for path, text in vary.items() if text.endswith("=auto") and path != TP]:
        raise UserError(f"{', '.join(wrong)}: auto is for {TP}; give values, as in [1, 2] or 1..8")
    if not vary or vary.get(TP, "").endswith("=auto"):
        vary[TP] = f"{TP}={DEGREES}"
    return list(vary.values()), others


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
