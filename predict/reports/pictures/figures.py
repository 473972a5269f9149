"""The figures of one config by their kinds, for `predict plot` and for Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from predict import estimate, load, rl_step
from predict.config.document import Config, name_of
from predict.kinds import RL, kind_of
from predict.plan_search.rl import length_map
from predict.plan_search.sensitivity import neighbours
from predict.reports.page.content import (
    heat_map_sweep,
    heat_map_view,
    plans_of_neighbours,
    report_content,
    rl_heat_map_view,
)
from predict.reports.page.report import report_page
from predict.reports.page.rl import rl_content
from predict.reports.pictures.charts import heat_map_figure, pareto_figure
from predict.reports.pictures.memory_plot import memory_figure
from predict.reports.pictures.rl_plots import rl_memory_figure, rl_timeline_figure, rl_waterfall_figure
from predict.reports.pictures.schedule_plot import timeline_figure
from predict.reports.pictures.waterfall_plot import waterfall_figure
from predict.reports.text import run_text
from predict.step.prediction import Prediction
from sampling.errors import UserError
from sampling.extras import require_library
from sampling.files.faults import did_you_mean
from sampling.number_text import duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from predict.rl.step import RlStep


SECTIONS = {
    "waterfall": ("headline", "waterfall"),
    "memory": ("headline", "memory"),
    "heatmap": ("headline", "heatmap"),
    "pareto": ("headline", "plans"),
    "timeline": ("headline", "timeline"),
}
RL_SECTIONS = {
    "waterfall": ("rl_headline", "phases"),
    "memory": ("rl_headline", "moments"),
    "heatmap": ("rl_headline", "heatmap"),
    "timeline": ("rl_headline", "placement"),
}
"""Those of an RL step."""
KINDS = tuple(SECTIONS)


HEAT_MAP = "heatmap"


def plot(kind: str, config: Config, overrides: Sequence[str] = ()) -> Figure:
    """A matplotlib figure of a config: `waterfall`, `memory`, `heatmap`, `pareto` or `timeline`, as `predict plot` writes it; of an RL
    config all but `pareto`.

    The plans of `pareto` are the neighbours of the config's. UserError for another kind, and where matplotlib is not installed;
    ConfigError lists every fault of the config.
    """
    if kind not in KINDS:
        raise UserError(f"{kind!r} is not a kind of figure; give one of {', '.join(KINDS)}{did_you_mean(kind, KINDS)}")
    if kind_of(config) == RL:
        require_rl_kind(kind)
        require_library("matplotlib")
        return _rl_heat_map(config, overrides) if kind == HEAT_MAP else _rl_figure(kind, rl_step(config, overrides))
    require_library("matplotlib")
    return _DRAWN[kind](config, overrides, estimate(load(config, overrides), require_fit=False))


def figure_page(kind: str, config: Config, overrides: Sequence[str] = ()) -> str:
    """The page that has the figure of this kind alone, as HTML."""
    if kind_of(config) == RL:
        require_rl_kind(kind)
        step = rl_step(config, overrides)
        maps = [length_map(config, overrides, estimate)] if kind == HEAT_MAP else []
        return report_page(rl_content([step], maps), title=f"{step.rl.name}: {kind}", sections=RL_SECTIONS[kind])
    prediction = estimate(load(config, overrides), require_fit=False)
    content = report_content([config], overrides, [prediction], [None], [None])
    return report_page(content, title=f"{prediction.run.name}: {kind}", sections=SECTIONS[kind])


def require_rl_kind(kind: str) -> None:
    """UserError for a figure that an RL step does not have."""
    if kind not in RL_SECTIONS:
        fix = "`predict sweep` and `predict search` show its throughput over other settings"
        raise UserError(f"{kind}: an RL config has {', '.join(RL_SECTIONS)}; give one of them, or {fix}")


def _rl_figure(kind: str, step: RlStep) -> Figure:
    return {"waterfall": rl_waterfall_figure, "memory": rl_memory_figure, "timeline": rl_timeline_figure}[kind](step)


def _rl_heat_map(config: Config, overrides: Sequence[str]) -> Figure:
    found = length_map(config, overrides, estimate)
    if found is None:
        raise UserError(
            f"{HEAT_MAP}: a file gives the lengths of responses, which cannot be made longer; give a distribution (rl.response)"
        )
    return heat_map_figure(rl_heat_map_view(found), title=f"throughput of {name_of(config)}")


def _waterfall(config: Config, overrides: Sequence[str], prediction: Prediction) -> Figure:
    return waterfall_figure(prediction)


def _memory(config: Config, overrides: Sequence[str], prediction: Prediction) -> Figure:
    title = f"memory of {prediction.run.name} over a step"
    bubble_fraction = prediction.bubble_fraction
    return memory_figure(prediction.memory_timeline, prediction.memory, title=title, bubble_fraction=bubble_fraction)


def _heat_map(config: Config, overrides: Sequence[str], prediction: Prediction) -> Figure:
    found = heat_map_sweep(config, overrides, prediction.run, partial(estimate, require_fit=False))
    return heat_map_figure(heat_map_view(found, prediction.run), title=f"throughput of {prediction.run.name}")


def _pareto(config: Config, overrides: Sequence[str], prediction: Prediction) -> Figure:
    found = neighbours(config, overrides, prediction.run, partial(estimate, require_fit=False))
    title = f"plans near {prediction.run.name}"
    rows = plans_of_neighbours(prediction, found)
    return pareto_figure(rows, capacity_bytes=prediction.memory.capacity_bytes, title=title)


def _timeline(config: Config, overrides: Sequence[str], prediction: Prediction) -> Figure:
    title = f"pipeline of {prediction.run.name}"
    return timeline_figure(prediction.timeline, title, run_text(prediction.run), duration)


_DRAWN: dict[str, Callable[[Config, Sequence[str], Prediction], Figure]] = {
    "waterfall": _waterfall,
    "memory": _memory,
    "heatmap": _heat_map,
    "pareto": _pareto,
    "timeline": _timeline,
}
