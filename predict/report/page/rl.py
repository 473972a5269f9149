"""The page of RL steps: everything it shows of each, in plain values, times in µs and sizes in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from predict.report.page.content import page_content
from predict.report.page.heat_map import rl_heat_map_view
from predict.report.page.ledger_view import ledgers_view, table_view
from predict.report.page.run_view import Assumption, assumptions, plain
from predict.report.palette import PHASE_COLOURS
from predict.report.pictures.memory_plot import COLOURS
from predict.report.prediction import interval_json
from predict.report.provenance import first_notes
from predict.report.rl.ledger import rl_ledger_json
from predict.report.rl.memory import rl_misfit
from predict.report.rl.step import headline
from predict.rl.books import RlLedger, spans
from predict.rl.memory import TERMS, RlMemory
from predict.rl.phase import Phase
from predict.rl.search.length_map import LengthMap
from predict.rl.step import RlStep
from predict.what_if.compare import settings_of

SECTIONS = ("rl_headline", "rl_differences", "placement", "phases", "moments", "heatmap", "ledgers", "sources")
"""Sections of the page, in their order."""
LIVE = SECTIONS[:5]
"""Those that follow each change of a config at once."""


def rl_content(steps: Sequence[RlStep], maps: Sequence[LengthMap | None] = ()) -> dict[str, Any]:
    """The page of one or more steps, with the throughput at other lengths where it is given."""
    views = [rl_view(step) for step in steps]
    for view, found in zip(views, maps, strict=False):
        view["heat_map"] = found and rl_heat_map_view(found)
    for place, view in enumerate(views):
        if earlier := [each["name"] for each in views[:place]].count(view["name"]):
            view["name"] += f" ({earlier + 1})"
    return page_content(views) | {"sections": list(SECTIONS)}


def rl_view(step: RlStep) -> dict[str, Any]:
    """The view of a step in a report."""
    ledger = RlLedger(step=step)
    told = [*_priors(ledger), *assumptions(step.actor, ledger.optimizer_step)]
    return rl_answer_view(step) | {"assumptions": [asdict(each) for each in told], "ledgers": _ledgers(ledger)}


def rl_answer_view(step: RlStep) -> dict[str, Any]:
    """The part of a view that follows each change of a config at once: answer, placement, phases and memory."""
    memory, actor = step.memory, step.actor
    starts = {span.name: span.start_us for span in spans(step)}
    sources = RlLedger(step=step).sources
    return {
        "name": step.rl.name,
        "about": headline(step),
        "prediction": {
            "notes": first_notes(actor.run, actor.provenance, analytic=actor.is_analytic),
            "step_time_us": interval_json(step.time),
            "tokens_per_second_per_gpu": step.tokens_per_second_per_gpu,
            "sources": sources,
            "wait_gen_us": step.wait_gen_us,
            "idle_gen_us": step.idle_gen_us,
            "tail_share": step.rollout.tail_share,
            "queue": asdict(step.queue),
            "unknown": list(step.rl.section.unknown),
        },
        "gpus": step.rl.gpus,
        "misfit": rl_misfit(memory),
        "settings": _settings(step),
        "spans": [asdict(span) | {"colour": PHASE_COLOURS[span.name]} for span in spans(step)],
        "waterfall": [_bar(phase, starts.get(phase.name, 0.0)) for phase in step.phases],
        "memory": _memory(memory),
    }


def _bar(phase: Phase, start_us: float) -> dict[str, Any]:
    palm, verl = phase.mfu.get("palm"), phase.mfu.get("verl")
    return {
        "name": phase.name,
        "start": start_us,
        "us": phase.time.median_us,
        "low": phase.time.low_us,
        "high": phase.time.high_us,
        "headings": dict(sorted(phase.parts.items(), key=lambda part: -part[1])),
        "colour": PHASE_COLOURS[phase.name],
        "gpus": phase.gpus,
        "bound_by": phase.bound_by,
        "flops": palm and palm.flops,
        "mfu": palm and palm.mfu,
        "mfu_verl": verl and verl.mfu,
    }


def _memory(memory: RlMemory) -> dict[str, Any]:
    return {
        "point_bytes": memory.worst.peak,
        "capacity_bytes": memory.capacity,
        "fits": memory.fits,
        "terms": [term for term in TERMS if any(term in moment.terms for moment in memory.moments)],
        "colours": COLOURS,
        "moments": [{"phase": moment.phase, "peak": moment.peak, **moment.terms} for moment in memory.moments],
        "kv_used": memory.kv_used,
    }


def _settings(step: RlStep) -> dict[str, Any]:
    """The trainer's settings apart from its batch, and the section rl, by key path."""
    of_run = {path: value for path, value in settings_of(step.rl.base).items() if not path.startswith("batch.")}
    return {path: plain(value) for path, value in {**of_run, **dict(_paths("rl", asdict(step.rl.section)))}.items()}


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
        found += [
            Assumption(
                kind="RL framework", name=f"factor on {name}", value=f"{value:g}", source="fitted to published RL steps"
            )
            for name, value in (
                ("generation", factors.rollout),
                ("updates", factors.update),
                ("passes", factors.passes),
            )
        ]
    return found + [
        Assumption(
            kind="RL framework",
            name=name,
            value=f"{term.value:g} ({term.low:g} to {term.high:g})",
            source=f"{term.meaning}; {term.source}",
        )
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
