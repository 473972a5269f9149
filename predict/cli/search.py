"""`predict search`: the best plans of all that a config leaves open."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predict.cli.options import (
    add_command,
    add_data,
    add_json,
    add_overrides,
    log,
    print_json,
    require_positive,
    require_suffix,
    require_writable,
    write_file,
)
from sampling.errors import UserError

if TYPE_CHECKING:
    from predict.config.document import Document
    from predict.plan_search.answer.ranking import Answer
    from predict.plan_search.pricing.workers import Workers
    from predict.plan_search.search import Found
    from predict.plan_search.survey import Survey

OBJECTIVES = ("time", "cost", "memory", "energy", "mfu")
BACKENDS = ("processes", "dask", "ray")
TABLES = (".csv", ".json")
ROUNDS = 3
"""Turns in which plans are measured, so that a slow spell of the machine falls on all alike."""
EXAMPLES = """\
examples:
  predict search configs/searches/llama3-70b-64xh100.yml
  predict search configs/runs/llama3-70b-64xh100.yml --set plan=auto --set batch.micro=auto --tokens 2T --price 2.5/gpu-h
  predict search --model llama3-8b --gpus 16xh100 --top 5 --json
  predict search configs/searches/llama3-70b-64xh100.yml --set plan.tp=1..8 --set execution.overlap_tp=auto --max-memory 0.9
  predict search configs/searches/llama3-70b-64xh100.yml --pareto front.csv --write winners --why
"""
DESCRIPTION = """\
Find the best plans of all that a config leaves open.

A key of plan, batch, execution or cluster may be a list ([1, 2, 4]), a range (1..8 doubles, 1..8..1 counts) or auto (what the
framework offers). Of the plan, the degrees, zero, schedule and recompute are searched where they are left out, and so is
batch.micro. The answer is that of pricing every legal plan: those that are not priced need more memory than there is, or more
time than the best found, by floors that no estimate undercuts.
"""


def add(subcommands: Any) -> None:
    command = add_command(
        subcommands,
        "search",
        "which plan is the best, of all that a config leaves open",
        EXAMPLES,
        description=DESCRIPTION,
    )
    command.add_argument(
        "config", metavar="CONFIG", nargs="?", help="run config (YAML) with open keys; or give --model"
    )
    add_overrides(command)
    add_data(command)
    command.add_argument(
        "--model", metavar="NAME", help="without a CONFIG: a shipped model, or the path of a config.json"
    )
    command.add_argument("--gpus", metavar="NxHARDWARE", help="with --model: how many of which device, as 64xh100")
    command.add_argument(
        "--batch", type=int, metavar="N", help="with --model: sequences per step (default: about 4 million tokens)"
    )
    command.add_argument(
        "--cluster",
        action="append",
        default=[],
        metavar="NAME",
        help="search this cluster too, by its name or file; may be repeated",
    )
    command.add_argument(
        "--objective", choices=OBJECTIVES, default="time", help="what is least in the best plan (mfu: most); per token"
    )
    command.add_argument("--top", type=int, default=20, metavar="N", help="plans in the answer (default: 20)")
    command.add_argument(
        "--max-memory",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="share of the memory that a plan may take (default: 1)",
    )
    command.add_argument("--max-gpus", type=int, metavar="N", help="leave out clusters of more GPUs")
    command.add_argument("--tokens", metavar="N", help="what a whole training costs, as 2T; GPU-hours, days, energy")
    command.add_argument(
        "--price", metavar="PRICE", help="with --tokens: what a GPU or node costs, as 2.5/gpu-h or 20/node-h"
    )
    command.add_argument(
        "--pareto",
        type=Path,
        metavar="FILE",
        help="find the front of time, memory and GPUs too, and write it (.csv or .json)",
    )
    command.add_argument("--write", type=Path, metavar="DIR", help="write each winner as a run config")
    command.add_argument(
        "--measure", type=int, metavar="N", help="run the first N plans for real on this machine, in turns, and compare"
    )
    command.add_argument("--why", action="store_true", help="with each reason that leaves plans out, an example")
    command.add_argument("--save", type=Path, metavar="FILE", help="keep what is priced there, and go on from it")
    command.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core)")
    command.add_argument(
        "--backend", choices=BACKENDS, default="processes", help="who prices (default: processes of this machine)"
    )
    command.add_argument("--address", metavar="HOST:PORT", help="of the Dask scheduler or Ray cluster")
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from predict.plan_search.infeasible import what_blocks
    from predict.plan_search.pricing.workers import Workers

    _check(options)
    config = _config(options)
    surveys = _surveys(options, config)
    with Workers(options.backend, address=options.address, jobs=options.jobs) as workers:
        found = _searched(options, surveys, workers)
        if not found.best:
            if not found.complete:
                raise KeyboardInterrupt
            raise what_blocks(found, config, options.overrides, options.cluster, max_memory=options.max_memory)
        answer = _answered(options, found, workers)
    if options.measure and found.complete:
        answer = _measured(answer, options.measure)
    _print(options, answer)
    if not found.complete:
        raise KeyboardInterrupt


def _check(options: argparse.Namespace) -> None:
    """UserError for options that do not go together, before any work."""
    require_positive(options, "top", "max_gpus", "jobs", "batch", "measure")
    if not 0 < options.max_memory <= 1:
        raise UserError(
            f"--max-memory: {options.max_memory:g} is not a share of the device's memory; give a number above 0, 1 at most"
        )
    if options.price and not options.tokens:
        raise UserError("--price: it needs the tokens that are paid for; give --tokens too, as in --tokens 2T")
    if options.address and options.backend == "processes":
        raise UserError("--address: processes of this machine have none; give --backend dask or ray too")
    if options.write is not None and options.write.is_file():
        raise UserError(f"--write: {options.write} is a file; give a directory")
    for option, path in (("--pareto", options.pareto), ("--save", options.save)):
        require_writable(option, path)
    require_suffix("--pareto", options.pareto, TABLES)


def _config(options: argparse.Namespace) -> Path | Document:
    if options.config is not None:
        if options.model or options.gpus:
            raise UserError("--model, --gpus: they go without CONFIG; omit them, or change the config with --set")
        return Path(options.config)
    if not (options.model and options.gpus):
        raise UserError(
            "CONFIG: missing; give a config, or --model with --gpus, as in --model llama3-70b --gpus 64xh100"
        )
    from predict.plan_search.default_plan import open_config

    return open_config(options.model, options.gpus, batch=options.batch, overrides=options.overrides)


def _surveys(options: argparse.Namespace, config: Path | Document) -> list[Survey]:
    """The plans of each cluster that may fit; how many there are, and a first answer, are said as soon as they are known."""
    from predict import estimate
    from predict.plan_search.expected import expected_seconds
    from predict.plan_search.first import first_answer
    from predict.plan_search.space.axes import read_questions
    from predict.plan_search.space.legal import legal_plans
    from predict.plan_search.survey import in_words, survey
    from predict.report.units import duration

    questions = read_questions(config, options.overrides, options.cluster)
    allowed = [each for each in questions if not options.max_gpus or each.base.cluster.world_size <= options.max_gpus]
    if not allowed:
        fewest = min(each.base.cluster.world_size for each in questions)
        raise UserError(
            f"--max-gpus: {options.max_gpus} is less than the smallest cluster, of {fewest}; raise it, or take a smaller one"
        )
    spaces = [legal_plans(each) for each in allowed]
    log(f"{sum(space.plans for space in spaces):,} plans, {sum(len(space.rows) for space in spaces):,} legal")
    first = first_answer(spaces, estimate, max_memory=options.max_memory)
    if first:
        log(f"first answer: {duration(first.step_us)} a step with {in_words(first.settings)}")
    surveys = [survey(space, max_memory=options.max_memory) for space in spaces]
    fit = sum(len(own.space.rows) for own in surveys)
    jobs = options.jobs or os.cpu_count() or 1
    expected = f", about {expected_seconds(surveys, first.seconds, jobs):.0f} s" if first else ""
    log(f"memory does not rule out {fit:,}{expected}")
    return surveys


def _searched(options: argparse.Namespace, surveys: Sequence[Survey], workers: Workers) -> Found:
    from predict import estimate
    from predict.plan_search.objective import OBJECTIVES as KNOWN
    from predict.plan_search.saved import save, saved
    from predict.plan_search.search import search
    from sampling.progress import progress_display

    known = saved(options.save, surveys) if options.save else {}
    if known:
        log(f"--save: {len(known):,} estimates of {options.save} are taken over")
    with progress_display("search") as progress:

        def tell(found: Found) -> None:
            if options.save:
                save(options.save, surveys, found.known)
            enough = len(found.ranked) >= found.top  # before that, no plan's floor rules it out
            total = max(found.candidates, found.priced) if enough else found.priced + found.top
            progress(found.priced, total, _best_in_words(found))

        objective = KNOWN[options.objective]
        return search(surveys, objective, estimate, top=options.top, workers=workers, tell=tell, known=known)


def _best_in_words(found: Found) -> str:
    from predict.plan_search.survey import in_words
    from predict.report.units import duration

    if not found.best:
        return "none that fits so far"
    best = found.best[0]
    rate = found.priced / found.seconds if found.seconds else 0.0
    settings = found.surveys[best.survey].space.settings(best.outcome.number)
    return f"{rate:.0f} plans/s, best so far {duration(best.outcome.step_us)}: {in_words(settings)}"


def _answered(options: argparse.Namespace, found: Found, workers: Workers) -> Answer:
    from predict.ledger.training_cost import parse_price, parse_tokens
    from predict.plan_search.answer.pareto import front
    from predict.plan_search.answer.ranking import answer

    made = answer(
        found,
        tokens=parse_tokens(options.tokens) if options.tokens else None,
        price=parse_price(options.price) if options.price else None,
    )
    return replace(made, front=front(found, workers)) if options.pareto and found.complete else made


def _measured(answer: Answer, count: int) -> Answer:
    """The answer with the measured steps of its first plans."""
    from predict.measure.real_step import measure_interleaved

    runs = [replace(plan.prediction.run, name=f"plan {place}") for place, plan in enumerate(answer.plans[:count], 1)]
    results = measure_interleaved([(run, "torch") for run in runs], rounds=ROUNDS, steps_per_round=None, progress=log)
    return replace(answer, measured_us=tuple(result.median_us if result else None for result in results))


def _print(options: argparse.Namespace, answer: Answer) -> None:
    if options.write:
        _write(options.write, answer)
    if answer.front is not None:
        from predict.report.search.front import front_file

        write_file("--pareto", options.pareto, front_file(answer.front, options.pareto.suffix.lower()))
    if options.json:
        from predict.report.search.json import answer_json

        print_json(answer_json(answer, why=options.why))
        return
    from predict.report.console import show
    from predict.report.search.text import answer_text

    show(answer_text(answer, why=options.why))


def _write(directory: Path, answer: Answer) -> None:
    """Each winner as a run config, named after its place."""
    digits = len(str(len(answer.plans)))
    for place, (ranked, plan) in enumerate(zip(answer.found.best, answer.plans, strict=True), 1):
        question = answer.found.surveys[ranked.survey].space.question
        write_file("--write", directory / f"{place:0{digits}}.yml", question.config(plan.settings).as_yaml())
    log(f"--write: {len(answer.plans)} run configs in {directory}")
