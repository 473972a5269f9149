"""Service-level objectives: bounds on the E2E, TTFT or TPOT of requests, on the mean or a percentile of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predict.run.durations import duration_us
from predict.serving.scheduler.latency import RequestTimes
from sampling.errors import Checks, UserError
from sampling.files.faults import did_you_mean, shown

OPTION = "--slo"
FORM = re.compile(r"\s*(e2e|ttft|tpot)_(mean|p(\d{1,2}(?:\.\d+)?))\s*<?=\s*(.+)", re.IGNORECASE)
EXAMPLE = "write for example ttft_p90=1s, tpot_mean=50ms or e2e_p99=20s"
FIGURES = ("e2e", "ttft", "tpot")
"""Times of a request that may be bounded."""
USUAL = tuple(f"{figure}_{of}" for figure in FIGURES for of in ("mean", "p50", "p90", "p95", "p99"))
"""Objectives that a misspelt one may stand for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """A bound on one time of the requests."""

    figure: str
    """One of FIGURES."""
    percentile: float | None
    """Percentile over requests, above 0 and below 100; None for the mean."""
    limit_us: float

    @property
    def name(self) -> str:
        """`ttft_p90`."""
        return f"{self.figure}_{'mean' if self.percentile is None else f'p{self.percentile:g}'}"

    @property
    def title(self) -> str:
        """`TTFT p90`."""
        figure, _, of = self.name.partition("_")
        return f"{figure.upper()} {of}"

    def value_us(self, times: RequestTimes) -> float:
        """The time that is bounded."""
        values = times.counted(self.figure)
        return float(values.mean() if self.percentile is None else np.percentile(values, self.percentile))

    def holds(self, times: RequestTimes) -> bool:
        return self.value_us(times) <= self.limit_us


def met_share(objectives: Sequence[Objective], times: RequestTimes) -> float:
    """Share of the requests of which each keeps within every limit by itself."""
    met = np.ones(len(times.e2e), dtype=bool)
    for one in objectives:
        met &= getattr(times, one.figure) <= one.limit_us
    return float(met.mean())


def parse_objectives(texts: Sequence[str]) -> tuple[Objective, ...]:
    """The objectives of texts such as `ttft_p90=1s` or `tpot_p90<=50ms`. UserError with a line for each that is none, and for a time that is
    bounded twice."""
    found: list[Objective] = []
    with Checks() as checks:
        for text in texts:
            with checks.one():
                one = _objective(text)
                if one.name in (other.name for other in found):
                    raise UserError(f"{OPTION}: {one.name} is given twice; give it once")
                found.append(one)
    return tuple(found)


def _objective(text: str) -> Objective:
    matched = FORM.fullmatch(text)
    percentile = float(matched[3]) if matched and matched[3] else None
    if matched is None or percentile == 0:
        name = text.partition("=")[0].rstrip(" <")
        raise UserError(f"{OPTION}: {shown(text)} is not an objective{did_you_mean(name, USUAL)}; {EXAMPLE}")
    limit_us = duration_us(matched[4])
    if limit_us is None:
        problem = f"{shown(matched[4])} is not a time above 0 with its unit"
        raise UserError(f"{OPTION}: {shown(text)}: {problem}; write for example 1s, 50ms or 200us")
    return Objective(figure=matched[1].lower(), percentile=percentile, limit_us=limit_us)
