"""The assumptions of a prediction, each with its source: figures of the device, of its framework, of memory, and what is open."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from predict.ledger.books import Ledger
from predict.step.prediction import Prediction
from sampling.number_text import size


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumption:
    """Assumptions, each with its kind, its value in words and its source."""

    kind: str
    name: str
    value: str
    source: str


def assumptions(prediction: Prediction, ledger: Ledger | None) -> tuple[Assumption, ...]:
    """The assumptions of one run; with its ledger, the constants of published runs that moved it."""
    return (*_of_prediction(prediction), *_of_memory(prediction), *(_of_constants(ledger) if ledger else ()))


def _of_prediction(prediction: Prediction) -> Iterator[Assumption]:
    provenance = prediction.provenance
    for note in (*provenance.get("better_rows", ()), *provenance["notes"]):
        yield Assumption(kind="note", name="samples", value="", source=note)
    for name, width in prediction.unknowns.items():
        yield Assumption(
            kind="interval", name=name, value=f"± {math.expm1(width):.1%}", source="half-width at 90 %, by itself"
        )
    for name, share in prediction.sources.items():
        if share:
            yield Assumption(kind="times", name=name, value=f"{share:.1%}", source="share of the step's work")
    for figure, source in provenance.get("sources", {}).items():
        yield Assumption(kind="device", name=figure, value=_figure(prediction, figure), source=source)
    contention = provenance.get("slow_down")
    if contention:
        yield Assumption(
            kind="overlap",
            name="slowdown beside communication",
            value=f"{contention['value']:.1%}",
            source=contention["source"],
        )


def _figure(prediction: Prediction, figure: str) -> str:
    """The value of a figure of the hardware file, such as `peak_tflops` or `intra_node`; empty where it has none of its own."""
    value = getattr(prediction.run.cluster.gpu, figure, None)
    if isinstance(value, int | float | str):
        return f"{value:,.6g}" if isinstance(value, int | float) else value
    return ", ".join(f"{name} {each:g}" for name, each in value.items()) if isinstance(value, dict) else ""


def _of_memory(prediction: Prediction) -> Iterator[Assumption]:
    for buffer in prediction.memory.buffers:
        told = f"{size(buffer.size_bytes)} ± {size(buffer.width_bytes)}"
        yield Assumption(kind="memory", name=buffer.name, value=told, source=buffer.source)


def _of_constants(ledger: Ledger) -> Iterator[Assumption]:
    for name, constant in ledger.calibration.constants.items():
        yield Assumption(
            kind="published runs",
            name=name,
            value=f"{constant.value:g} ({constant.low:g} to {constant.high:g})",
            source=f"{constant.moves}; {constant.source}",
        )
