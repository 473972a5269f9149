"""Every kind of config keeps the same laws: what ships is in its schema, answers alike each time, and is refused with the key and the fix."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import predict
from predict.config.json_schema import json_schema
from predict.interval import Interval
from predict.kinds import KINDS, RL, SERVING, TRAINING, kind_of
from predict.rl.config import rl_schema
from predict.serving.config import serving_schema
from sampling.files.documents import read_yaml
from sampling.files.places import CONFIGS


@dataclass(frozen=True, kw_only=True)
class Conforming:
    """The folder of a kind's shipped configs, its schema, its answer's time, and a setting that lengthens that."""

    folder: str
    schema: Callable[[], dict[str, Any]]
    time: Callable[[Path, list[str]], Interval]
    longer: tuple[str, str, Any]


def latency(config: Path, settings: list[str]) -> Interval:
    """The mean time of a whole request."""
    (outcome,) = predict.serving_answer(config, settings).outcomes
    low, median, high = (each.e2e.mean_us for each in (outcome.low, outcome.latency, outcome.high))
    return Interval(median=median, low=low, high=high)


OF_KIND: Mapping[str, Conforming] = {
    TRAINING: Conforming(
        folder="runs",
        schema=json_schema,
        time=lambda config, settings: predict.one_batch(config, settings).step_time,
        longer=("plan", "recompute", "full"),
    ),
    SERVING: Conforming(folder="serving", schema=serving_schema, time=latency, longer=("load", "output", 500)),
    RL: Conforming(
        folder="rl",
        schema=rl_schema,
        time=lambda config, settings: predict.rl_step(config, settings).time,
        longer=("rl", "n", 64),
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def shipped(kind: str, pattern: str = "*.yml") -> list[Path]:
    return sorted((CONFIGS / OF_KIND[kind].folder).glob(pattern))


def test_a_shipped_config_is_of_its_kind_and_its_schema_knows_every_key(kind: str) -> None:
    schema, paths = OF_KIND[kind].schema(), shipped(kind, "**/*.yml")
    assert paths
    for path in paths:
        assert kind_of(path) == kind
        document, faults = read_yaml(path)
        assert document is not None and not faults
        assert unknown_keys(document, schema) == []
        assert set(schema["required"]) <= set(document)


def unknown_keys(values: Mapping[Any, Any], schema: Mapping[str, Any]) -> list[str]:
    """Keys that the schema has not, of sections that are mappings in both."""
    found = []
    for name, value in values.items():
        known = schema["properties"].get(name)
        if known is None:
            found.append(name)
        elif isinstance(value, dict) and "properties" in known:
            found += [f"{name}.{each}" for each in unknown_keys(value, known)]
    return found


def test_the_interval_holds_its_median(kind: str) -> None:
    for path in shipped(kind):
        found = OF_KIND[kind].time(path, [])
        assert 0 < found.low < found.median < found.high


def test_a_setting_is_the_same_in_the_file_and_beside_it(kind: str, tmp_path: Path) -> None:
    path, (section, key, value) = shipped(kind)[0], OF_KIND[kind].longer
    document = yaml.safe_load(path.read_text())
    document.setdefault(section, {})[key] = value
    written = tmp_path / path.name
    written.write_text(yaml.safe_dump(document))
    beside = OF_KIND[kind].time(path, [f"{section}.{key}={value}"])
    assert OF_KIND[kind].time(written, []) == beside
    assert beside.median > OF_KIND[kind].time(path, []).median


def test_a_misspelt_key_is_refused_with_the_nearest_and_with_the_faults_beside_it(kind: str) -> None:
    section, key, _ = OF_KIND[kind].longer
    with pytest.raises(predict.ConfigError) as refused:
        OF_KIND[kind].time(shipped(kind)[0], [f"{section}.{key}s=1", "precison=bf16"])
    assert f"--set: {section}.{key}s: unknown key; did you mean '{key}'" in str(refused.value)
    assert "--set: precison: unknown key" in str(refused.value)
    assert refused.value.exit_code == 2
