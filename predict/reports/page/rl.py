"""The page of RL steps: everything it shows of each, in plain values, times in µs and sizes in bytes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from predict.plan_search.rl import LengthMap
from predict.reports.page.content import page_content, rl_heat_map_view
from predict.reports.page.run_view import (
    Assumption,
    assumptions,
    bar_view,
    bounded_assumption,
    ledgers_view,
    notes_view,
    table_view,
)
from predict.reports.palette import PHASE_COLOURS
from predict.reports.pictures.memory_plot import COLOURS
from predict.reports.pictures.waterfall_plot import DrawnBar
from predict.reports.rl_ledger import rl_ledger_json
from predict.reports.rl_step import headline, rl_misfit
from predict.rl.books import RlLedger, spans
from predict.rl.memory import TERMS, RlMemory
from predict.rl.phases import Phase
from predict.rl.step import RlStep
from predict.run.training_run import settings_of
from predict.serialise import as_json, picked
from sampling.number_text import plain

SECTIONS = ("rl_headline", "rl_differences", "placement", "phases", "moments", "heatmap", "ledgers", "sources")
"""Sections of the page, in their order."""
LIVE = SECTIONS[:5]
"""Those that follow each change of a config at once."""


def rl_content(steps: Sequence[RlStep], maps: Sequence[LengthMap | None] = ()) -> dict[str, Any]:
    """The page of one or more steps, with the throughput at other lengths where it is given."""
    views = [rl_view(step) for step in steps]
    for view, found in zip(views, maps, strict=False):
        view["heat_map"] = found and rl_heat_map_view(found)
    return page_content(views) | {"sections": list(SECTIONS)}


def rl_view(step: RlStep) -> dict[str, Any]:
    """The view of a step in a report."""
    ledger = RlLedger(step=step)
    assumed = [*_priors(ledger), *assumptions(step.actor, ledger.optimizer_step)]
    return rl_answer_view(step) | {"assumptions": as_json(assumed), "ledgers": _ledgers(ledger)}


def rl_answer_view(step: RlStep) -> dict[str, Any]:
    """The part of a view that follows each change of a config at once: answer, placement, phases and memory."""
    found = spans(step)
    starts = {span.name: span.start_us for span in found}
    return {
        "name": step.rl.name,
        "about": headline(step),
        "prediction": notes_view(step.actor)
        | picked(step, "step_time_us=time tokens_per_second_per_gpu")
        | {"sources": RlLedger(step=step).sources}
        | picked(step, "wait_gen_us idle_gen_us tail_share=rollout.tail_share queue unknown=rl.section.unknown"),
        "gpus": step.rl.gpus,
        "misfit": rl_misfit(step.memory),
        "settings": _settings(step),
        "spans": [as_json(span) | {"colour": PHASE_COLOURS[span.name]} for span in found],
        "waterfall": [_bar(phase, starts.get(phase.name, 0.0)) for phase in step.phases],
        "memory": _memory(step.memory),
    }


def _bar(phase: Phase, start_us: float) -> dict[str, Any]:
    return {
        "name": phase.name,
        "start": start_us,
        **bar_view(DrawnBar.of_phase(phase, start_us), phase.parts, PHASE_COLOURS),
        **picked(phase, "gpus bound_by"),
        **picked(phase.mfu.get("palm"), "flops mfu"),
        **picked(phase.mfu.get("verl"), "mfu_verl=mfu"),
    }


def _memory(memory: RlMemory) -> dict[str, Any]:
    return {
        **picked(memory, "point_bytes=worst.peak capacity_bytes=capacity verdict"),
        "terms": [term for term in TERMS if any(term in moment.terms for moment in memory.moments)],
        "colours": COLOURS,
        "moments": [picked(moment, "phase peak") | dict(moment.terms) for moment in memory.moments],
        "kv_used": memory.kv_used,
    }


def _settings(step: RlStep) -> dict[str, Any]:
    """The trainer's settings apart from its batch, and the section rl, by key path."""
    of_run = {path: value for path, value in settings_of(step.rl.base).items() if not path.startswith("batch.")}
    return {path: as_json(value) for path, value in (*of_run.items(), *_paths("rl", as_json(step.rl.section)))}


def _paths(above: str, values: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _paths(f"{above}.{name}", value)
        else:
            yield f"{above}.{name}", value


def _priors(ledger: RlLedger) -> list[Assumption]:
    """Assumptions of RL steps beyond those of training steps: factors, priors, and the keys whose values are a guess."""
    found = [
        Assumption(kind="unknown", name=key, value="a guess", source="the config's rl.unknown")
        for key in ledger.step.rl.section.unknown
    ]
    if factors := ledger.factors:
        shares = {"generation": factors.rollout, "updates": factors.update, "passes": factors.passes}
        fitted = "fitted to published RL steps"
        found += [
            Assumption(kind="RL framework", name=f"factor on {name}", value=plain(value), source=fitted)
            for name, value in shares.items()
        ]
    return found + [
        bounded_assumption("RL framework", name, (term.value, term.low, term.high), f"{term.meaning}; {term.source}")
        for name, term in ledger.terms.items()
    ]


def _ledgers(ledger: RlLedger) -> dict[str, list[dict[str, Any]]]:
    """Book → its tables: those of the step, and behind them those of one optimizer step of the actor."""
    books = rl_ledger_json(ledger)
    accounts = [
        {"lane": lane, "phase": phase, "us": time_us, "share": time_us / ledger.step.time.median_us}
        for lane, account in ledger.accounts_us.items()
        for phase, time_us in account.items()
    ]
    parts = [
        {"phase": phase.name, "part": heading, "us": time_us, "share": time_us / phase.time.median_us}
        for phase in ledger.step.phases
        for heading, time_us in sorted(phase.parts.items(), key=lambda part: -part[1])
    ]
    shared = (("time", "us", "us"), ("share", "share", "share"))
    by_source = [{"source": name, "us": time_us} for name, time_us in ledger.by_source_us.items() if time_us]
    found = {
        "account": [
            table_view("Trainer and engines", (("GPUs", "lane", "text"), ("phase", "phase", "text"), *shared), accounts)
        ],
        "phases": [
            table_view("Phases by their parts", (("phase", "phase", "text"), ("part", "part", "text"), *shared), parts)
        ],
        "communication": [
            table_view(
                "Communication that phases wait for",
                (("heading", "heading", "text"), ("phase", "phase", "text"), ("time", "us", "us")),
                books["communication"]["exposed"],
            ),
            table_view(
                "Offload, both ways",
                (
                    ("phase", "phase", "text"),
                    ("state", "state", "text"),
                    ("bytes", "bytes", "bytes"),
                    ("time", "time_us", "us"),
                ),
                books["memory"]["moved"],
            ),
        ],
        "calibration": [
            table_view("Times by their source", (("source", "source", "text"), ("a step", "us", "us")), by_source)
        ],
    }
    of_actor = ledgers_view(ledger.optimizer_step) if ledger.optimizer_step else {}
    return found | {f"one optimizer step of the actor: {name}": tables for name, tables in of_actor.items()}
