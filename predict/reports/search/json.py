"""The answer of a search as `predict search --json` prints it; `version` changes when a key changes its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from predict.plan_search.answer import Answer, FrontPlan, RankedPlan
from predict.plan_search.search import Found
from predict.serialise import as_json, version_of
from sampling.units import GIB


def answer_json(answer: Answer, *, why: bool = False) -> dict[str, Any]:
    """Times in µs, sizes in bytes, shares as fractions; with `why`, an example of each reason."""
    found = answer.found
    content: dict[str, Any] = {
        "version": version_of("search"),
        "objective": found.objective.name,
        "space": space_json(found),
        "seconds": found.seconds,
        "complete": found.complete,
        "best": [plan_json(plan, place) for place, plan in enumerate(answer.plans, 1)],
        "experiment": answer.experiment or None,
        "left_out": {reason: left.count for reason, left in found.left_out.items()},
    }
    if answer.plans and len(answer.plans) > 1:
        content["best"][0]["tied"] = bool(answer.tied)
    if answer.front is not None:
        content["pareto"] = [front_row(plan) for plan in answer.front]
    if answer.measured_us:
        for best, measured_us in zip(content["best"], answer.measured_us, strict=False):
            best["measured_us"] = measured_us
        content["regret"] = answer.regret
    if why:
        content["why"] = {reason: left.example for reason, left in found.left_out.items()}
    return content


def space_json(found: Found) -> dict[str, int]:
    return {
        "plans": sum(own.space.plans for own in found.surveys),
        "legal": sum(own.legal for own in found.surveys),
        "fit": found.fit,
        "priced": found.priced,
    }


def plan_json(plan: RankedPlan, place: int) -> dict[str, Any]:
    prediction = plan.prediction
    memory, cluster = prediction.memory, prediction.run.cluster
    return {
        "rank": place,
        "plan": settings_json(plan.settings),
        "cluster": {"hardware": cluster.gpu.name, "nodes": cluster.nodes, "gpus": cluster.world_size},
        "step_time_us": as_json(prediction.step_time),
        "tokens_per_second_per_gpu": prediction.tokens_per_second_per_gpu,
        "mfu": prediction.mfu,
        "memory_bytes": memory.point_bytes,
        "headroom_bytes": memory.headroom_bytes,
        "verdict": memory.verdict,
        "tied": place > 1 and plan.ratio.tied,
        "overlap": plan.ratio.overlap,
        "same": [settings_json(settings) for settings in plan.same],
        "ratio": {"median": plan.ratio.median, "low": plan.ratio.low, "high": plan.ratio.high},
        "energy_j_per_token": plan.energy_j_per_token,
        "cost": plan.cost and asdict(plan.cost),
    }


def settings_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their keys; those outside the plan under their whole paths."""
    return {path.removeprefix("plan."): value for path, value in settings.items()}


def front_row(plan: FrontPlan) -> dict[str, Any]:
    """A plan of the front, as a row of a table."""
    return {
        "step_time_s": plan.step_us / 1e6,
        "us_per_token": plan.us_per_token,
        "memory_gib": plan.memory_bytes / GIB,
        "gpus": plan.gpus,
        **settings_json(plan.settings),
    }
