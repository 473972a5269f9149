"""A whole search, from a config with open keys to its answer: the path of `predict search` and of `predict.search` alike."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from predict import estimate
from predict.config.document import Config
from predict.ledger.training_cost import parse_price, parse_tokens
from predict.memory.estimate import capacity_bytes
from predict.plan_search.answer import Answer, answer, front
from predict.plan_search.axes import LEFT_OUT, Question, read_questions
from predict.plan_search.floors import block_times, kinds_of, memory_floors, sets_of_blocks
from predict.plan_search.legal import Space, legal_plans
from predict.plan_search.options import OBJECTIVES, Backend, ObjectiveName, SearchOptions
from predict.plan_search.pricing import FEWEST_BATCHES, Outcome, Workers, outcomes
from predict.plan_search.search import BATCH, BLOCKS, NOT_RUN, Found, Survey, best_plans, in_words, survey
from predict.prices.open import open_prices
from predict.step.scheduling import Estimate
from regressors.features.arrays import Ints
from sampling.errors import InfeasibleError, UserError
from sampling.files.disk import naming_the_disk, write_atomically
from sampling.units import GIB

# Seconds that a search is expected to take, said before it starts: a few of its parts are timed, and counted up.

TIMED = 6
"""Estimates, and sets of blocks, of a space that are timed."""
ESTIMATES = 60
"""Plans that are priced in full: 30 to 100 for the 20 best of the searches in tests/bench/search.py."""
START_S = 2.0
"""Start of the worker processes."""


def expected_seconds(surveys: Sequence[Survey], estimate: Estimate, jobs: int) -> float:
    """The time of a search; 0 where no plan may fit."""
    spaces = [own.space for own in surveys if len(own.space.rows)]
    whole = [space for space in spaces if space.question.base.execution.whole_layers]
    if not spaces:
        return 0.0
    estimate_s = fmean(_estimate_s(space, estimate) for space in spaces)
    floors_s = sum(_floors_s(space, jobs) for space in spaces if space not in whole)
    plans = min(sum(len(space.rows) for space in spaces), ESTIMATES) + sum(len(space.rows) for space in whole)
    return floors_s + _shared_out(plans * estimate_s, plans // BATCH, jobs)


def _estimate_s(space: Space, estimate: Estimate) -> float:
    def price(row: int) -> None:
        outcomes(estimate, space.question.base, [(row, space.settings(row))])

    return _timed(price, np.arange(len(space.rows)))


def _floors_s(space: Space, jobs: int) -> float:
    """Seconds to price the sets of blocks that the floors of a space are made of."""
    representatives, _ = sets_of_blocks(space)
    kinds = kinds_of(space)
    of_set_s = _timed(lambda row: block_times([space.run(row)], kinds, halves=False), representatives)
    return _shared_out(len(representatives) * of_set_s, len(representatives) // BLOCKS, jobs)


def _shared_out(seconds: float, batches: int, jobs: int) -> float:
    """Seconds of work whose batches the processes share where they are worth their start."""
    return seconds if jobs == 1 or batches < FEWEST_BATCHES else min(seconds, START_S + seconds / jobs)


def _timed(work: Callable[[int], object], rows: Ints) -> float:
    """The mean time of work on some of the plans, spread over all."""
    chosen = rows[np.linspace(0, len(rows) - 1, min(TIMED, len(rows))).astype(int)]
    started = time.monotonic()
    for row in chosen.tolist():
        work(row)
    return (time.monotonic() - started) / len(chosen)


# The limits that block a search that found nothing, and the smallest change with which something would fit.

TRIES = 8
"""Plans with the smallest floors that are estimated under a change."""
DOUBLINGS = 4
"""More nodes are tried up to this power of two."""


def what_blocks(
    found: Found, config: Config, overrides: Sequence[str], clusters: Sequence[str], *, max_memory: float
) -> InfeasibleError:
    """The error of a search without a plan: the reason that leaves out most, or the plan that comes nearest, and a change that helps."""
    legal = sum(own.legal for own in found.surveys)
    if not legal:
        reason, left = max(found.left_out.items(), key=lambda item: item[1].count)
        what = f"no plan of {sum(own.space.plans for own in found.surveys):,} is legal; {left.count:,} break “{reason}”, as {left.example}"
    else:
        what = f"none of {legal:,} legal plans fits; {_nearest(found)}"
    last = "take another schedule" if _all_refused(found) else "take a device with more memory"
    fix = next(_changes(found, config, overrides, clusters, max_memory), last)
    return InfeasibleError(f"{what}; {fix}")


def _all_refused(found: Found) -> bool:
    """Whether the schedule refuses every plan that was priced."""
    return bool(found.known) and all(outcome.refusal for outcome in found.known.values())


def _nearest(found: Found) -> str:
    """The plan that needs least memory, by its full estimate where there is one; why the schedule runs none that may fit."""
    if _all_refused(found):
        return (
            f"of those that memory does not rule out, the schedule cannot run any, as {found.left_out[NOT_RUN].example}"
        )
    capacity = found.surveys[0].capacity_bytes
    estimated = [(outcome.memory_bytes, key) for key, outcome in found.known.items() if not outcome.refusal]
    if estimated:
        need, (of, plan) = min(estimated)
        settings: Mapping[str, Any] = found.surveys[of].space.settings(plan)
        at_least, capacity = "", found.surveys[of].capacity_bytes
    else:
        own = min((each for each in found.surveys if each.nearest), key=lambda each: each.nearest_bytes)
        need, settings, at_least, capacity = own.nearest_bytes, own.nearest or {}, "at least ", own.capacity_bytes
    return f"the smallest needs {at_least}{need / GIB:,.1f} GiB of the {capacity / GIB:,.1f} allowed ({in_words(settings)})"


def _changes(
    found: Found, config: Config, overrides: Sequence[str], clusters: Sequence[str], max_memory: float
) -> Iterator[str]:
    """Changes with which something fits, the smallest first: a larger share of the memory, one key of the plan left open, more
    nodes."""
    if share := _enough_memory(found, max_memory):
        yield f"raise --max-memory to {share:g}"
    question = found.surveys[0].space.question
    given = [path for path in LEFT_OUT if path not in {axis.path for axis in question.axes}]
    nodes = question.base.cluster.nodes
    tried = [([f"{path}=auto"], f"leave {path} open: --set {path}=auto") for path in given]
    tried += [
        ([f"cluster.nodes={nodes * 2**power}"], f"take {nodes * 2**power} nodes in place of {nodes}")
        for power in range(1, DOUBLINGS + 1)
    ]
    for settings, words in tried:
        try:
            surveys = [
                survey(legal_plans(each), max_memory=max_memory)
                for each in read_questions(config, [*overrides, *settings], clusters)
            ]
        except UserError:
            continue
        if any(_something_fits(own, found.estimate) for own in surveys):
            yield words


def _enough_memory(found: Found, max_memory: float) -> float | None:
    """The share of the memory, above the one that is allowed, with which a plan fits; None where none does."""
    if max_memory == 1.0:
        return None
    shares = []
    for own in found.surveys:
        whole = survey(legal_plans(own.space.question), max_memory=1.0)
        needs = [one.memory_bytes for one in _smallest(whole, found.estimate) if not one.refusal]
        shares += [need / whole.capacity_bytes for need in needs if need <= whole.capacity_bytes]
    return math.ceil(100 * min(shares)) / 100 if shares else None


def _something_fits(own: Survey, estimate: Estimate) -> bool:
    return any(not one.refusal and one.memory_bytes <= own.capacity_bytes for one in _smallest(own, estimate))


def _smallest(own: Survey, estimate: Estimate) -> list[Outcome]:
    """The full estimates of the plans with the smallest floors of memory."""
    order = own.memory_floors.argsort(kind="stable")[:TRIES].tolist()
    return outcomes(estimate, own.space.question.base, [(row, own.space.settings(row)) for row in order])


# Full estimates kept in a file, from which a search that was interrupted goes on.

FORMAT, VERSION = "steptime-search", 1
LARGEST_FILE = 2**28
"""Bytes of a file that is read: about two million estimates."""
Known = Mapping[tuple[int, int], Outcome]


def save(path: Path, surveys: Sequence[Survey], known: Known) -> None:
    """Write the estimates of a search. UserError where the disk does not take them."""
    rows = [[survey, *asdict(outcome).values()] for (survey, _), outcome in sorted(known.items())]
    content = {"format": FORMAT, "version": VERSION, "space": fingerprint(surveys), "estimates": rows}
    with naming_the_disk(path):
        write_atomically(path, json.dumps(content).encode())


def saved(path: Path, surveys: Sequence[Survey]) -> dict[tuple[int, int], Outcome]:
    """The estimates in the file; none where there is no file yet. UserError for a file of another search, or none of this kind."""
    if not path.exists():
        return {}
    if path.stat().st_size > LARGEST_FILE:
        raise UserError(f"--save: {path} is larger than the {LARGEST_FILE:,} bytes that are read; give another file")
    try:
        content = json.loads(path.read_bytes())
        header = (content["format"], content["version"])
        space, rows = content["space"], [(row[0], Outcome(**_fields(row[1:]))) for row in content["estimates"]]
    except (ValueError, KeyError, TypeError, IndexError):
        raise UserError(f"--save: {path} does not hold the estimates of a search; give another file") from None
    if header != (FORMAT, VERSION) or space != fingerprint(surveys):
        raise UserError(
            f"--save: {path} holds estimates of another space, or of other samples or another version; remove it, or give another file"
        )
    return {(survey, outcome.number): outcome for survey, outcome in rows}


def _fields(values: Sequence[Any]) -> dict[str, Any]:
    number, step_us, memory_bytes, refusal = values
    return {
        "number": int(number),
        "step_us": float(step_us),
        "memory_bytes": float(memory_bytes),
        "refusal": str(refusal),
    }


def fingerprint(surveys: Sequence[Survey]) -> str:
    """A digest of the runs, their open keys, the plans that may fit, and what the prices rest on: estimates of equal ones are equal."""
    found = hashlib.sha256()
    for own in surveys:
        base = own.space.question.base
        provenance = open_prices(base.cluster, base.execution).provenance
        for part in (base, own.space.question.axes, sorted(map(str, provenance.items()))):
            found.update(repr(part).encode())
        found.update(own.space.rows.tobytes())
    return found.hexdigest()


# The first answer: a plan that fits, found in a second by trying those that are likely to, before the search proper.

MOST_FIRST_TRIES = 12
"""Plans that are estimated at most."""
SAMPLE = 400
"""Plans of a space that are looked at."""
LIKELY = 0.75
"""Share of the memory up to which a plan's floor makes it likely to fit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstAnswer:
    """A plan that fits."""

    settings: Mapping[str, Any]
    step_us: float


def first_answer(spaces: Sequence[Space], estimate: Estimate, *, max_memory: float) -> FirstAnswer | None:
    """A plan that fits, of those that are likely to: without recomputation before with it, and of the smallest tp · cp · pp.

    It looks at a part of each space; None where it finds none there.
    """
    for whole in spaces:
        if not len(whole.rows):
            continue
        space = whole.of(np.linspace(0, len(whole.rows) - 1, min(SAMPLE, len(whole.rows))).astype(np.int64))
        capacity = capacity_bytes(space.question.base.cluster.gpu) * max_memory
        floors = memory_floors(space)
        likely = np.flatnonzero(floors <= LIKELY * capacity)
        degrees = space.column("plan.tp") * space.column("plan.cp") * space.column("plan.pp")
        recomputes = space.column("plan.recompute") != "none"
        order = np.lexsort((floors[likely], degrees[likely], recomputes[likely]))
        for row in likely[order][:MOST_FIRST_TRIES].tolist():
            (outcome,) = outcomes(estimate, space.question.base, [(row, space.settings(row))])
            if not outcome.refusal and outcome.memory_bytes <= capacity:
                return FirstAnswer(settings=space.settings(row), step_us=outcome.step_us)
    return None


class Listener:
    """Callbacks of a running search; each does nothing unless overridden."""

    def legal(self, plans: int, legal: int) -> None:
        """The number of plans, and of those that are legal."""

    def first(self, first: FirstAnswer) -> None:
        """A plan that fits, before the search proper."""

    def candidates(self, fit: int, seconds: float) -> None:
        """The number of plans that memory does not rule out, and the seconds that the search is expected to take from here."""

    def taken_over(self, estimates: int) -> None:
        """Estimates that the file of an earlier search had."""

    def round(self, found: Found) -> None:
        """The state after each round of plans."""


def search(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    clusters: Sequence[str] = (),
    objective: ObjectiveName = "time",
    top: int = 20,
    max_memory: float = 1.0,
    max_gpus: int | None = None,
    min_interval_overlap: float | None = None,
    tokens: str | float | None = None,
    price: str | None = None,
    front: bool = False,
    save: Path | str | None = None,
    jobs: int | None = None,
    backend: Backend = "processes",
    address: str | None = None,
    listener: Listener | None = None,
) -> Answer:
    """The best plans, exactly, of all that a config leaves open: keys that are lists, ranges, `auto`, or left out; of RL and serving
    configs see `search_combinations`.

    `.plans` are the best, each with its settings, prediction and ratio to the best; `.found.left_out` counts the others by reason.
    The parameters are those of the command, as `plan_search.options` describes them; `listener` is called on progress. ConfigError
    and UserError for bad input; InfeasibleError, with the smallest change that helps, where nothing fits.
    """
    search_options = SearchOptions(
        clusters=tuple(clusters),
        objective=objective,
        top=top,
        max_memory=max_memory,
        max_gpus=max_gpus,
        min_interval_overlap=min_interval_overlap,
        tokens=tokens,
        price=price,
        front=front,
        save=None if save is None else Path(save),
        jobs=jobs,
        backend=backend,
        address=address,
    )
    return whole_search(config, overrides, search_options, estimate, listener)


def whole_search(
    config: Config,
    overrides: Sequence[str],
    search_options: SearchOptions,
    estimate: Estimate,
    listener: Listener | None = None,
) -> Answer:
    """The answer of a search; Ctrl-C ends it early with the best so far, if there is any, and `found.complete` says so.

    ConfigError and UserError for bad input, InfeasibleError where no plan is legal and fits, with the smallest change that helps.
    """
    heard_by = listener or Listener()
    questions = _allowed(config, overrides, search_options)
    with Workers(search_options.backend, address=search_options.address, jobs=search_options.jobs) as workers:
        surveys = _surveys(questions, search_options, estimate, heard_by)
        found = _searched(surveys, search_options, estimate, workers, heard_by)
        if not found.best:
            if not found.complete:
                raise KeyboardInterrupt
            raise what_blocks(found, config, overrides, search_options.clusters, max_memory=search_options.max_memory)
        made = answer(
            found,
            tokens=None if search_options.tokens is None else parse_tokens(search_options.tokens),
            price=None if search_options.price is None else parse_price(search_options.price),
            min_overlap=search_options.min_interval_overlap,
        )
        if not (search_options.front and found.complete):
            return made
        try:
            return replace(made, front=front(found, workers))
        except KeyboardInterrupt:
            found.complete = False
            return made


def _allowed(config: Config, overrides: Sequence[str], search_options: SearchOptions) -> list[Question]:
    """The questions of the clusters that are not too large."""
    questions = read_questions(config, overrides, search_options.clusters)
    most = search_options.max_gpus
    allowed = [each for each in questions if most is None or each.base.cluster.world_size <= most]
    if not allowed:
        fewest = min(each.base.cluster.world_size for each in questions)
        raise UserError(
            f"--max-gpus: {most} is less than the smallest cluster, of {fewest}; raise it, or take a smaller one"
        )
    return allowed


def _surveys(
    questions: Sequence[Question], search_options: SearchOptions, estimate: Estimate, listener: Listener
) -> list[Survey]:
    """The plans of each question that may fit."""
    spaces = [legal_plans(each) for each in questions]
    listener.legal(sum(space.plans for space in spaces), sum(len(space.rows) for space in spaces))
    first = first_answer(spaces, estimate, max_memory=search_options.max_memory)
    if first:
        listener.first(first)
    surveys = [survey(space, max_memory=search_options.max_memory) for space in spaces]
    jobs = search_options.jobs or os.cpu_count() or 1
    fit = sum(len(own.space.rows) for own in surveys)
    listener.candidates(fit, expected_seconds(surveys, estimate, jobs))
    return surveys


def _searched(
    surveys: Sequence[Survey], search_options: SearchOptions, estimate: Estimate, workers: Workers, listener: Listener
) -> Found:
    known = saved(search_options.save, surveys) if search_options.save else {}
    if known:
        listener.taken_over(len(known))

    def on_round(found: Found) -> None:
        if search_options.save:
            save(search_options.save, surveys, found.known)
        listener.round(found)

    objective = OBJECTIVES[search_options.objective]
    return best_plans(
        surveys, objective, estimate, top=search_options.top, workers=workers, on_round=on_round, known=known
    )
