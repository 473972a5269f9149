"""The content of a page, which its charts and tables show: runs or plans next to each other, or the answer of a search."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from predict import estimate, load
from predict.config.document import Config
from predict.kinds import TRAINING, kind
from predict.ledger.training_cost import TrainingCost
from predict.ledger.whole_job import WholeJob
from predict.plan_search.answer import Answer, SearchAnswer
from predict.plan_search.compare import differences
from predict.plan_search.rl import LONGEST, LengthMap, N
from predict.plan_search.search import in_words, settings_json
from predict.plan_search.sensitivity import neighbours, sensitivity_of_run
from predict.plan_search.sweep import Sweep, SweptRow, SweptRun, swept_space
from predict.reports.compare import differences_json
from predict.reports.page.run_view import communication_share, run_view
from predict.reports.sensitivity import sensitivity_json
from predict.rl.step import RlStep
from predict.run.model_flops import tokens_per_step
from predict.run.training_run import TrainingRun
from predict.serialise import as_json, picked, versioned
from predict.step.prediction import Prediction
from sampling.files.faults import as_written

SEQUENCE, MICROBATCH = "batch.seq_len", "batch.micro"
LEAST_SEQUENCE = 128


def heat_map_sweep(
    config: Config,
    overrides: Sequence[str],
    run: TrainingRun,
    predict: Callable[[TrainingRun], Prediction],
) -> Sweep:
    """The run with sequences from a quarter to four times as long, and microbatches up to eight times as large or to 8."""
    sequences = [
        length for factor in (0.25, 0.5, 1, 2, 4) if (length := int(run.batch.seq_len * factor)) >= LEAST_SEQUENCE
    ]
    micros = sorted({1, 2, 4, run.batch.micro, run.batch.micro * 2})
    vary = [
        f"{MICROBATCH}={','.join(map(str, micros))}",
        f"{SEQUENCE}={','.join(map(str, sequences or [run.batch.seq_len]))}",
    ]
    return swept_space(config, vary, overrides, predict).rows()


def heat_map_view(found: Sweep, run: TrainingRun) -> dict[str, Any]:
    """Columns are sequence lengths, rows microbatches; a cell has tokens per second and GPU, and its verdict or why it cannot run."""
    values = {each.path: list(each.values) for each in found.varied}
    return {
        "sequences": values[SEQUENCE],
        "microbatches": values[MICROBATCH],
        "own": [run.batch.seq_len, run.batch.micro],
        "column": "sequence length",
        "row": "microbatch",
        "note": f"tokens per second and GPU, {run.batch.global_:,} sequences per step",
        "cells": [_cell(row) for row in found.rows],
    }


def _cell(row: SweptRun) -> dict[str, Any]:
    cell: dict[str, Any] = {"sequence": row.settings[SEQUENCE], "microbatch": row.settings[MICROBATCH]}
    if row.prediction is None:
        return cell | {"reason": row.reason}
    return cell | picked(
        row.prediction,
        "tokens_per_second_per_gpu mfu step_us=median_us memory_bytes=memory.point_bytes verdict=memory.verdict",
    )


def rl_heat_map_view(found: LengthMap) -> dict[str, Any]:
    """Columns are longest responses, rows responses to a prompt, under the names of `heat_map_view`."""
    return {
        "sequences": sorted({one.settings[LONGEST] for one in found.cells}),
        "microbatches": sorted({one.settings[N] for one in found.cells}),
        "own": as_json(found.own),
        "column": "longest response, tokens",
        "row": "n",
        "note": "tokens per second and GPU",
        "cells": [_rl_cell(one) for one in found.cells],
    }


def _rl_cell(one: SweptRow[RlStep]) -> dict[str, Any]:
    cell: dict[str, Any] = {"sequence": one.settings[LONGEST], "microbatch": one.settings[N]}
    step = one.prediction
    if step is None:
        return cell | {"reason": one.reason}
    actor = step.phase("update_actor")
    return (
        cell
        | picked(step, "tokens_per_second_per_gpu")
        | {"mfu": actor and actor.mfu["palm"].mfu}
        | picked(step, "step_us=time.median_us memory_bytes=memory.worst.peak verdict=memory.verdict")
    )


def report_content(
    configs: Sequence[Config],
    overrides: Sequence[str],
    predictions: Sequence[Prediction],
    costs: Sequence[TrainingCost | None],
    jobs: Sequence[WholeJob | None],
) -> dict[str, Any]:
    """The page of one or more configs, whose predictions are given; with the neighbours of the plan where it is one alone."""
    views = [
        run_view(prediction, cost=cost, whole=whole) | studies(config, overrides, prediction)
        for config, prediction, cost, whole in zip(configs, predictions, costs, jobs, strict=True)
    ]
    if len(predictions) > 1:
        plans = plans_of_runs(predictions)
    else:
        own = predictions[0]
        fit_or_not = partial(estimate, require_fit=False)
        plans = plans_of_neighbours(own, neighbours(configs[0], overrides, own.run, fit_or_not))
    return page_content(views, plans) | _differences(predictions)


def search_content(answer: Answer) -> dict[str, Any]:
    """The page of a search: its best plan in full, and all ranked plans."""
    best = answer.plans[0]
    config = best.question.config(best.settings)
    view = run_view(best.prediction, cost=best.cost) | studies(config, [], best.prediction)
    return page_content([view], plans_of_answer(answer)) | {"search": search_facts(answer), "cloud": cloud_of(answer)}


MOST_OF_CLOUD = 2000
"""Plans behind the ranked ones that a page draws, the best first."""


def cloud_of(answer: Answer) -> list[dict[str, Any]]:
    """Every plan that was priced and fits, as a point of throughput and memory: the ranked ones are the best of them."""
    found, points = answer.found, []
    for ranked in found.ranked[:MOST_OF_CLOUD]:
        outcome, run = ranked.outcome, found.run(ranked)
        settings = settings_json(found.surveys[ranked.survey].space.settings(outcome.number))
        rate = 1e6 * tokens_per_step(run) / outcome.step_us / run.cluster.world_size
        point = {"settings": _in_a_line(settings), **picked(outcome, "memory_bytes step_us")}
        points.append(point | {"tokens_per_second_per_gpu": rate})
    return points


def _in_a_line(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {as_written(value)}" for key, value in settings.items() if key != "schedule")


def search_facts(answer: SearchAnswer) -> dict[str, Any]:
    """The number of plans that a search looked at, by what, and its reasons for leaving others out."""
    left_out = {reason: left.count for reason, left in answer.left_out.items()}
    return {**answer.space, **picked(answer, "objective complete"), "left_out": left_out}


def page_content(runs: Sequence[dict[str, Any]], plans: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Views of runs and rows of plans as the content of a page; runs of one name are numbered from the second on."""
    seen: Counter[str] = Counter()
    for view in runs:
        name = view["name"]
        if seen[name]:
            view["name"] = f"{name} ({seen[name] + 1})"
        seen[name] += 1
    return versioned("report", {"runs": runs, "plans": plans})


def studies(config: Config, overrides: Sequence[str], prediction: Prediction) -> dict[str, Any]:
    """The heat map and the sensitivity of a run: what predictions of other runs say about it."""
    run, fit_or_not = prediction.run, partial(estimate, require_fit=False)
    found = heat_map_sweep(config, overrides, run, fit_or_not)
    figures = sensitivity_of_run(kind(TRAINING), load(config, overrides), fit_or_not, None)
    return {"heat_map": heat_map_view(found, run), "sensitivity": sensitivity_json(figures)}


def _differences(predictions: Sequence[Prediction]) -> dict[str, Any]:
    if len(predictions) < 2:
        return {}
    return {"comparison": differences_json(differences(predictions[0], predictions[1:]))}


def plans_of_neighbours(own: Prediction, neighbours: Iterable[SweptRun]) -> list[dict[str, Any]]:
    """The plan itself, then its neighbours by their step time; last those that cannot run, with the reason."""
    rows = [{**plan_row("this plan", own), "own": True}]
    refused = []
    for each in neighbours:
        label = in_words(each.settings)
        if each.prediction is None:
            refused.append({"label": label, "reason": each.reason})
        else:
            rows.append(plan_row(label, each.prediction))
    return [*with_front(sorted(rows, key=lambda row: -row["tokens_per_second_per_gpu"])), *refused]


def plans_of_runs(predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """The runs of a page next to each other."""
    return with_front([plan_row(each.run.name, each) for each in predictions])


def plans_of_answer(answer: Answer) -> list[dict[str, Any]]:
    """The ranked plans of a search, the best first."""
    rows = []
    for place, plan in enumerate(answer.plans, 1):
        settings = settings_json(plan.settings)
        label = _in_a_line(settings)
        tied = place > 1 and plan.ratio.tied
        rows.append({**plan_row(f"{place}", plan.prediction), "settings": label, "tied": tied, "own": place == 1})
    return with_front(rows)


def plan_row(label: str, prediction: Prediction) -> dict[str, Any]:
    """A plan next to others: its step, its shares, its memory and whether it fits."""
    return (
        {"label": label}
        | picked(prediction, "step_us=step_time tokens_per_second_per_gpu mfu bubble=bubble_fraction")
        | {"communication": communication_share(prediction)}
        | picked(prediction.memory, "memory_bytes=point_bytes headroom_bytes verdict fits_probability")
        | {"gpus": prediction.run.cluster.world_size}
    )


def with_front(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, each with `front`: whether no other that fits is as fast with less memory: the Pareto front of the two."""
    fitting = [row for row in rows if row["headroom_bytes"] >= 0]
    return [{**row, "front": row in fitting and not any(_beats(other, row) for other in fitting)} for row in rows]


def _beats(other: dict[str, Any], row: dict[str, Any]) -> bool:
    faster = other["tokens_per_second_per_gpu"] - row["tokens_per_second_per_gpu"]
    smaller = row["memory_bytes"] - other["memory_bytes"]
    return bool(faster >= 0 and smaller >= 0 and (faster > 0 or smaller > 0))
