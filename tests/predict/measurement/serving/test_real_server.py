"""Serving configs served for real: what is refused, and one small load from the config to its figures."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from predict.measurement.requirements import require_servable
from predict.measurement.serving.real_server import ServedLoad, serve_for_real
from predict.serving.config import load_serving
from predict.serving.fit_own_server import TimedBatch
from predict.validation import own_loads
from predict.validation.own_loads import validate_loads
from sampling.errors import UserError
from sampling.files.places import CONFIGS
from tests.predict.serving.step_batches import batches

OWN = CONFIGS / "serving" / "this-machine"
SMALL = ["model=tiny-llama", "load.concurrency=3", "load.requests=5", "load.prompt=20", "load.output=4"]
WAITS = ["engine.recv_interval=10", "engine.batch_wait_steps=4", "engine.batch_wait_share=0.9"]
SMALL_POOLS = ["model=tiny-llama", "load.rate=50", "load.duration_s=0.2", "load.prompt=20", "load.output=4"]


def test_all_that_keeps_a_config_from_being_served_is_listed() -> None:
    run = load_serving(CONFIGS / "serving" / "mixtral-2xh100.yml", ["speculation.kind=eagle", *WAITS])
    with pytest.raises(UserError) as refused:
        require_servable(run)
    for fault in (
        "hardware: NVIDIA H100",
        "tp 2",
        "speculation.kind: eagle",
        "engine.asynchronous",
        "engine.recv_interval: 10; it takes prompts as they come, use 1",
        "engine.batch_wait_steps: 4; it takes prompts as they come, use 0",
        "model: mixtral-8x7b",
    ):
        assert fault in str(refused.value)


def test_a_fleet_that_is_not_served_is_refused() -> None:
    settings = [
        "fleet.replicas=2",
        "fleet.prefill_tp=2",
        "fleet.failures_s=[3, 4]",
        "fleet.layerwise=true",
        "load.concurrency=4",
        "tiers.host_gib=1",
    ]
    with pytest.raises(UserError) as refused:
        require_servable(load_serving(OWN / "two-pools.yml", settings))
    for fault in (
        "fleet.replicas: 2",
        "fleet.prefill_tp: 2",
        "fleet.failures_s: 3, 4",
        "fleet.layerwise: true",
        "load.concurrency: 4",
        "tiers: host",
    ):
        assert fault in str(refused.value)


def test_every_load_shipped_for_this_machine_is_of_one_server() -> None:
    runs = [load_serving(path) for path in sorted(OWN.glob("*.yml"))]
    assert len(runs) >= 6
    assert all(run.server == runs[0].server for run in runs)
    for run in runs:
        require_servable(run)


@pytest.mark.usefixtures("starts_warm")
@pytest.mark.parametrize(("name", "overrides"), [("closed-loop", SMALL), ("two-pools", SMALL_POOLS)])
def test_a_small_load_is_served(name: str, overrides: list[str]) -> None:
    config = OWN / f"{name}.yml"
    found = serve_for_real(load_serving(config, overrides), config, overrides)
    latency = found.latency
    assert latency.e2e.mean_us == pytest.approx(latency.ttft.mean_us + 3 * latency.tpot.mean_us)
    assert 0 < latency.ttft.mean_us < latency.e2e.mean_us


def test_configs_of_different_servers_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.yml"
    other.write_text((OWN / "quiet.yml").read_text().replace("demo-llama", "tiny-llama"))
    with pytest.raises(UserError, match="its server differs"):
        validate_loads([str(OWN / "quiet.yml"), str(other)], [], rounds=1, coefficients=None, report=print)


def test_loads_are_predicted_before_they_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    steps = [SimpleNamespace(batch=batch, time_us=5e3, kind=(place, 0)) for place, batch in enumerate(batches())]

    def served(*_: object) -> ServedLoad:
        order.append("served")
        outcome = own_loads.LoadedServer(run, own_loads.Stepper(run.server, fitted)).as_configured()
        return ServedLoad(
            name="it",
            latency=outcome.latency,
            requests=5,
            steps=9,
            preemptions=0,
            waited_s=0.0,
            before=slower,
            accepted_shares=(),
            paces={},
        )

    run = load_serving(OWN / "closed-loop.yml", SMALL)
    monkeypatch.setattr(own_loads, "time_steps", lambda *_: steps)
    fitted = own_loads.fitted_here(run, "", [])
    modelled = own_loads.Stepper(run.server, fitted).step_times(batches())
    # the machine is 20 % slower than when the model was fitted
    slower = [
        TimedBatch(batch=one, time_us=1.2 * time.median_us) for one, time in zip(batches(), modelled, strict=True)
    ]

    monkeypatch.setattr(own_loads, "serve_for_real", served)
    content = validate_loads(
        [str(OWN / "closed-loop.yml")], SMALL, rounds=2, coefficients=None, report=lambda line: order.append(line[:9])
    )
    assert order == ["timing st", "predicted", "2 measure", "served", "measured ", "served", "measured "]
    assert content["summary"]["e2e"] == pytest.approx(0.0, abs=1e-9)
    assert content["summary"]["paced"]["tpot"] == pytest.approx(0.2)
    assert content["rows"][0]["paces"] == pytest.approx([1.2, 1.2])
    assert content["summary"]["coverage"] == 1.0
    assert content["rows"][0]["spread"]["tpot"] == 0.0
