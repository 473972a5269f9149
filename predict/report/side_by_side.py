"""One run predicted in two ways, beside each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from predict.step.prediction import Prediction
from sampling.number_text import duration

if TYPE_CHECKING:
    from rich.console import RenderableType

LEAST_SHARE = 5e-4
"""Share of the step below which a row of the ledger would show 0.0 % in both columns."""


def side_by_side(benchmark: Prediction, simulate: Prediction) -> RenderableType:
    """Step time and ledger of the prediction from timed layers and of the simulated one; and the first over the second."""
    from rich.table import Table

    pair = (benchmark, simulate)
    table = Table(title=f"{benchmark.run.name}: from timed layers, and simulated", title_justify="left", box=None)
    for name in ("", "benchmark", "simulate", "ratio"):
        table.add_column(name, justify="left" if not name else "right")

    def row(name: str, of: Callable[[Prediction], float], show: Callable[[float], str] = duration) -> None:
        timed, simulated = (of(one) for one in pair)
        ratio = f"{timed / simulated:.2f}" if simulated > 0 else ""
        table.add_row(name, show(timed), show(simulated), ratio)

    row("step time", lambda one: one.step_time.median_us)
    row("  low (90 %)", lambda one: one.step_time.low_us)
    row("  high", lambda one: one.step_time.high_us)
    row("tokens/s", lambda one: one.tokens_per_second, lambda value: f"{value:,.0f}")
    row("MFU", lambda one: one.mfu, lambda value: f"{value:.1%}")
    row("bubble", lambda one: one.bubble_fraction, lambda value: f"{value:.1%}")
    for source in simulate.sources:
        row(f"{source} share", lambda one, source=source: one.sources[source], lambda value: f"{value:.0%}")  # type: ignore[misc]
    table.add_section()
    for name in _headings(benchmark, simulate):
        row(name, lambda one, name=name: one.breakdown_us.get(name, 0.0))  # type: ignore[misc]
    return table


def _headings(*pair: Prediction) -> list[str]:
    """The headings that are not negligible in either ledger, the largest first."""
    weights: dict[str, float] = {}
    for one in pair:
        for name, time_us in one.breakdown_us.items():
            weights[name] = max(weights.get(name, 0.0), abs(time_us) / one.step_time.median_us)
    return sorted((name for name, weight in weights.items() if weight >= LEAST_SHARE), key=lambda name: -weights[name])
