"""A measured step, an RL step phase by phase, and a load that a real server bore, as text."""

from collections.abc import Callable, Mapping
from typing import Any

from predict.measurement.measurement import DeviceRecord, Measurement
from predict.measurement.real_rl import RlMeasurement
from predict.measurement.serving.real_server import ServedLoad
from predict.measurement.system_noise import noise_note
from predict.prices.pace import paces_text
from predict.reports.printed import Renderable
from predict.reports.text import escape, stacked, table
from predict.serialise import picked, versioned
from predict.serving.latency import Spread
from sampling.files.faults import counted
from sampling.number_text import count, duration, durations, multiple, seconds, significant, size

LOSS_DIGITS = 5
"""Significant digits of a loss, which falls little within a few steps."""


def measurement_text(measured: Measurement) -> str:
    lines = [
        f"{escape(measured.run)}: {duration(measured.median_us)} per step (median; p10 {duration(measured.p10_us)}, "
        f"p90 {duration(measured.p90_us)}), {count(measured.tokens_per_s)} tokens/s",
        _on_a_gpu(measured, measured.device) if measured.device else _on_a_cpu(measured),
        f"  loss {significant(measured.losses[0], LOSS_DIGITS)} → {significant(measured.losses[-1], LOSS_DIGITS)}; torch {measured.versions['torch']}",
    ]
    if measured.noise:
        lines.append(f"  {noise_note(measured.noise)}")
    return "\n".join(lines)


def _on_a_cpu(measured: Measurement) -> str:
    return (
        f"  {counted(len(measured.step_times_us), 'step')} on {counted(len(measured.parameters_per_rank), 'rank')} of {counted(measured.threads, 'thread')}, "
        f"{measured.dropped_steps} dropped since other processes took the machine"
    )


def _on_a_gpu(measured: Measurement, device: DeviceRecord) -> str:
    """The device with what it reported, and the kernels that ran; what nothing reported is left out."""
    facts = [
        f"{count(device.clock_mhz)} MHz" if device.clock_mhz is not None else "",
        f"{count(device.power_w)} W" if device.power_w is not None else "",
        f"{size(device.peak_allocated_bytes)} allocated at most" if device.peak_allocated_bytes else "",
        f"{size(device.peak_reserved_bytes)} reserved" if device.peak_reserved_bytes else "",
        f"attention {device.attention}",
        f"experts {device.expert_products}" if device.expert_products else "",
        f"busiest expert {multiple(device.busiest_expert)} the mean" if device.busiest_expert is not None else "",
    ]
    return f"  {counted(len(measured.step_times_us), 'step')} on {device.name}: {', '.join(filter(None, facts))}"


def rl_measurement_text(measured: RlMeasurement) -> Renderable:
    """The phases of a real RL step."""
    spreads = [(name, measured.spread(name)) for name in measured.phase_times_us]
    return stacked(
        f"{escape(measured.run)}: {counted(len(measured.others_shares), 'step')} on {counted(measured.threads, 'thread')}, {clock_of(measured)}",
        table(
            "",
            spreads,
            {"phase": lambda one: one[0]},
            {
                "median": lambda one: duration(one[1].median_us),
                "p10 to p90": lambda one: durations(one[1].p10_us, one[1].p90_us),
            },
        ),
        f"mean reward {significant(measured.rewards[0])} → {significant(measured.rewards[-1])}; torch {measured.versions['torch']}",
        *([noise_note(measured.noise)] if measured.noise else ()),
    )


def clock_of(measured: RlMeasurement) -> str:
    return "CPU time of the one thread" if measured.by_cpu_time else "wall time"


def served_text(served: ServedLoad) -> str:
    latency = served.latency
    lines = [
        f"{escape(served.name)}: {counted(served.requests, 'request')} in {counted(served.steps, 'step')}, {significant(latency.requests_per_s)} requests/s"
    ]
    for name, spread in (("E2E", latency.e2e), ("TTFT", latency.ttft), ("TPOT", latency.tpot)):
        percentiles = ", ".join(f"p{place} {duration(time)}" for place, time in spread.percentiles_us.items())
        lines.append(f"  {name:4} {duration(spread.mean_us)} on average; {percentiles}")
    lines.append(
        f"  {served.preemptions} preemptions; other processes kept the server waiting for {seconds(served.waited_s)}, which only times of two pools contain"
    )
    if served.accepted_shares:
        shares = ", ".join(significant(share) for share in served.accepted_shares)
        lines.append(f"  shares of drafts accepted up to each position: {shares} (speculation.by_position)")
    if served.paces:
        lines.append(f"  this machine now runs at these shares of the pace of its rows: {paces_text(served.paces)}")
    return "\n".join(lines)


def served_json(served: ServedLoad) -> dict[str, Any]:
    return versioned(
        "served",
        picked(served, "run=name requests steps preemptions requests_per_s=latency.requests_per_s waited_s")
        | {f"{name}_us": _spread(getattr(served.latency, name)) for name in ("e2e", "ttft", "tpot")}
        | ({"accepted_shares": served.accepted_shares} if served.accepted_shares else {})
        | ({"pace": {"by_resource": served.paces}} if served.paces else {}),
    )


def _spread(spread: Spread) -> dict[str, float]:
    return {"mean": spread.mean_us, **{f"p{place}": time for place, time in spread.percentiles_us.items()}}


FORMS: Mapping[type, tuple[Callable[[Any], Any], Callable[[Any], Renderable]]] = {
    Measurement: (Measurement.to_json, measurement_text),
    RlMeasurement: (RlMeasurement.to_json, rl_measurement_text),
    ServedLoad: (served_json, served_text),
}
"""What `predict measure` finds → its JSON, its text."""
