"""The provenance of a prediction in a terminal: notes before the first figure, and sources after the last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from predict.run.execution import Execution
from predict.run.frameworks import refused_by_runtime
from predict.run.training_run import TrainingRun
from predict.step.prediction import Prediction
from sampling.files.faults import counted
from sampling.hardware.cluster import Cluster

if TYPE_CHECKING:
    from rich.console import RenderableType

Provenance = Mapping[str, Any]


def first_lines_of(*predictions: Prediction) -> list[str]:
    """The first lines of predictions that are told together, each once."""
    lines = (first_lines(each.run, each.provenance, analytic=each.is_analytic) for each in predictions)
    return list(dict.fromkeys(line for each in lines for line in each))


def first_lines(run: TrainingRun, provenance: Provenance, *, analytic: bool) -> list[str]:
    """The first notes as lines that catch the eye."""
    return noted(first_notes(run, provenance, analytic=analytic))


def first_notes(run: TrainingRun, provenance: Provenance, *, analytic: bool) -> list[str]:
    """Notes that belong before the first figure: rows that are missing or of another device, terms that were fitted, and a plan that its
    framework does not run."""
    refusal = refused_by_runtime(run.execution.framework, run.plan, run.microbatches)
    refused = [f"predicted, but {run.execution.framework} does not run it: {refusal}"] if refusal else []
    return refused + notes_on_prices(run.cluster, run.execution, provenance, analytic=analytic)


def notes_on_prices(cluster: Cluster, execution: Execution, provenance: Provenance, *, analytic: bool) -> list[str]:
    """The same for the prices of a cluster, whoever asked for them."""
    notes = list(provenance.get("better_rows", []))
    notes += provenance["notes"] if provenance["samples"] is None or not analytic else []
    if analytic:
        none = "" if provenance["samples"] is None else f"No samples for profile {cluster.profile!r} cover this run: "
        notes.append(
            f"{none}kernels and links of {cluster.gpu.name} by stated priors (shares of peak: {_efficiencies(cluster, execution)})"
        )
    if provenance.get("calibration"):
        notes.append(_calibrated(provenance))
    return [_sentence(note) for note in notes]


def noted(notes: Sequence[str]) -> list[str]:
    """Notes as lines that catch the eye."""
    from rich.markup import escape

    return [f"[bold yellow]{escape(_sentence(note))}[/]" for note in notes]


def _sentence(note: str) -> str:
    return note[:1].upper() + note[1:]


def last_lines(provenance: Provenance, *, analytic: bool, full: bool = False) -> list[str]:
    """The samples and the benchmark that the times come from; the sources of the hardware's figures where there are none, which
    are counted, or with `full` listed."""
    lines = [] if analytic or provenance["samples"] is None else [_samples_line(provenance["samples"])]
    lines += _device_lines(provenance.get("device", {}))
    if "benchmark" in provenance:
        lines.append(_benchmark(provenance["benchmark"]))
    if full:
        cited = provenance["sources"].items()
        lines += ["sources:", *(f"  {figure}: {source}" for figure, source in cited)]
    elif not lines:
        lines.append(
            f"sources: {len(provenance['sources'])} cited figures of {provenance['hardware']}; list them with `predict one-batch … --sources`"
        )
    return lines


def with_provenance(
    report: RenderableType, run: TrainingRun, provenance: Provenance, *, analytic: bool, first: Sequence[str] = ()
) -> RenderableType:
    """A report between the first and the last lines; `first` are lines before them."""
    from rich.console import Group
    from rich.markup import escape

    sources = map(escape, last_lines(provenance, analytic=analytic))
    return Group(*first, *first_lines(run, provenance, analytic=analytic), report, "", *sources)


def _samples_line(samples: Mapping[str, Any]) -> str:
    """The profile, the device it was taken on, when, and by what."""
    manifest = samples["provenance"]
    dates = sorted({session["date"] for session in manifest["sessions"]})
    device, days = manifest["device"], " to ".join(dict.fromkeys((dates[0], dates[-1])))
    if device.get("imported"):
        sources = ", ".join(_sources_with_rows(manifest["sessions"]))
        return f"samples: {manifest['profile']}, imported from {sources} for {device['name']}, {days}"
    torch = manifest["sessions"][-1]["versions"]["torch"]
    return f"samples: {manifest['profile']}, taken on {device['name']}, {days}, torch {torch}"


def _device_lines(device: Mapping[str, Any]) -> Iterator[str]:
    """Lines on what samples say of the device as a whole, in place of the hardware file's and the framework's figures."""
    if floors := device.get("launch_floor_us"):
        yield f"sampled: the host launches a layer in {', '.join(_floor(*each) for each in floors.items())}"
    for dtype, ratio in device.get("sustained", {}).items():
        clocks = "".join(f"; {_clocks(state, found)}" for state, found in device.get("clocks", {}).items())
        yield f"sampled: {dtype} products take {ratio['value']:.2f} as long in a long run ({ratio['rows']} timings{clocks})"


def _floor(phase: str, floor: Mapping[str, float]) -> str:
    return f"{floor['median_us']:.0f} µs {phase} (90 %: {floor['low_us']:.0f} to {floor['high_us']:.0f} µs)"


def _clocks(state: str, found: Mapping[str, float]) -> str:
    readings = {"clock_mhz": "MHz", "power_w": "W"}
    return (
        f"{state} at {' and '.join(f'{found[name]:,.0f} {unit}' for name, unit in readings.items() if name in found)}"
    )


def _sources_with_rows(sessions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each source once; a table without rows brought nothing."""
    yield from dict.fromkeys(session["source"] for session in sessions if session.get("rows", 1))


def _efficiencies(cluster: Cluster, execution: Execution) -> str:
    shares = dict(cluster.gpu.efficiency)
    shares["gemm"] = execution.gemm_efficiency or shares["gemm"]
    return ", ".join(f"{name} {value:g}" for name, value in shares.items())


def _calibrated(provenance: Provenance) -> str:
    """The terms that change something by half a percent, and what they rest on."""
    rests = provenance["calibrated_on"]
    terms = [
        f"{name.replace('_', ' ')} × {value:.3g}"
        for name, value in provenance["calibration"].items()
        if abs(value - 1) >= 0.005
    ]
    error = rests["left_out_percent"]
    off = "" if error is None else f", each {error:.1f} % off as predicted from the others"
    runs = counted(len(rests["runs"]), "measured run")
    return f"Calibrated to {runs} ({rests['date']}{off}): {', '.join(terms) or 'no term moves'}"


def _benchmark(benchmark: Mapping[str, Any]) -> str:
    """The benchmark that timed the layers."""
    degrees = " · ".join(f"{name} {benchmark['reduced_plan'][name]}" for name in ("tp", "pp", "cp", "ep"))
    device = f"{benchmark['world_size']} × {benchmark['device']['name']}"
    return f"benchmark: whole layers of {benchmark['run']} timed at {degrees} on {device}"
