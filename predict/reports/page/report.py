"""Plans, or steps of reinforcement learning, as one HTML page that opens from disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predict import days, estimate, job, load, rl_step
from predict.kinds import RL, kind_of
from predict.plan_search.rl import length_map
from predict.reports.page.content import report_content
from predict.reports.page.document import report_page
from predict.reports.page.rl import rl_content
from sampling.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A page, and the names of another tool's config that change nothing on it, config by config."""

    html: str
    not_read: Sequence[Mapping[str, Any]] = ()


def report(
    configs: Sequence[Path | str],
    overrides: Sequence[str] = (),
    *,
    tokens: str | float | None = None,
    price: str | None = None,
) -> Page:
    """One page of the steps of configs, side by side, or of one with its throughput at other lengths; `.html` is the page.

    With `tokens` such as `2T`, also what a whole training takes and costs, with its saves and failures, at a `price` such as `2.5/gpu-h`.
    UserError for configs of several kinds; ConfigError lists every fault of a config.
    """
    kinds = [kind_of(config) for config in configs]
    if RL not in kinds:
        predictions = [estimate(load(config, overrides), require_fit=False) for config in configs]
        costs = [None if tokens is None else days(each, tokens, price=price) for each in predictions]
        jobs = [None if tokens is None else job(each, tokens, price=price) for each in predictions]
        content = report_content(configs, overrides, predictions, costs, jobs)
        return Page(html=report_page(content, title=" and ".join(each.run.name for each in predictions)))
    if others := [str(config) for config, kind in zip(configs, kinds, strict=True) if kind != RL]:
        raise UserError(
            f"CONFIG: {', '.join(others)}: not an RL config, where others here are; give each kind a page of its own"
        )
    steps = [rl_step(config, overrides) for config in configs]
    maps = [length_map(config, overrides, estimate) for config in configs] if len(steps) == 1 else []
    title = " and ".join(step.rl.name for step in steps)
    return Page(
        html=report_page(rl_content(steps, maps), title=title), not_read=tuple(step.rl.not_read for step in steps)
    )
