"""A load that a real server bore, for a reader in a terminal and as JSON."""

from __future__ import annotations

from typing import Any

from predict.measurement.serving.real_server import ServedLoad
from predict.serialise import version_of
from predict.serving.scheduler.latency import Spread
from sampling.number_text import duration


def served_text(served: ServedLoad) -> str:
    latency = served.latency
    lines = [
        f"{served.name}: {served.requests} requests in {served.steps:,} steps, {latency.requests_per_s:.2f} requests/s"
    ]
    for name, spread in (("E2E", latency.e2e), ("TTFT", latency.ttft), ("TPOT", latency.tpot)):
        percentiles = ", ".join(f"p{place} {duration(time)}" for place, time in spread.percentiles_us.items())
        lines.append(f"  {name:4} {duration(spread.mean_us)} on average; {percentiles}")
    lines.append(
        f"  {served.preemptions} preemptions; other processes kept the server waiting for {served.waited_s:.1f} s, which no time contains"
    )
    return "\n".join(lines)


def served_json(served: ServedLoad) -> dict[str, Any]:
    latency = served.latency
    return {
        "version": version_of("served"),
        "run": served.name,
        "requests": served.requests,
        "steps": served.steps,
        "preemptions": served.preemptions,
        "requests_per_s": latency.requests_per_s,
        "waited_s": served.waited_s,
        **{
            f"{name}_us": _spread(spread)
            for name, spread in (("e2e", latency.e2e), ("ttft", latency.ttft), ("tpot", latency.tpot))
        },
    }


def _spread(spread: Spread) -> dict[str, float]:
    return {"mean": spread.mean_us, **{f"p{place}": time for place, time in spread.percentiles_us.items()}}
