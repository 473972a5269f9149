"""The limits that block a search that found nothing, and the smallest change with which something would fit."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from predict.config.document import Config
from predict.memory.estimate import verdict_of
from predict.plan_search.axes import LEFT_OUT, read_questions
from predict.plan_search.legal import legal_plans, run_of
from predict.plan_search.pricing import Outcome, outcomes
from predict.plan_search.search import NOT_RUN, Found, Survey, in_words, survey
from predict.step.scheduling import Estimate
from sampling.errors import InfeasibleError, UserError
from sampling.number_text import plain, size

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
        what = f"none of {legal:,} legal plans is expected to fit; {_nearest(found)}"
    # where none is legal, the reason says its own fix, and memory ruled nothing out
    last = "" if not legal else "take another schedule" if _all_refused(found) else "take a device with more memory"
    fix = next(_changes(found, config, overrides, clusters, max_memory), last)
    return InfeasibleError(f"{what}; {fix}" if fix else what)


def _all_refused(found: Found) -> bool:
    """Whether the schedule refuses every plan that was priced."""
    return bool(found.known) and all(outcome.refusal for outcome in found.known.values())


def _nearest(found: Found) -> str:
    """The plan that needs least memory, by its full estimate; why the schedule runs none that may fit."""
    if _all_refused(found):
        return (
            f"of those that memory does not rule out, the schedule cannot run any, as {found.left_out[NOT_RUN].example}"
        )
    needs = []
    for own in found.surveys:
        whole = survey(legal_plans(own.space.question), max_memory=math.inf)
        needs += [
            (one.memory_bytes, own.capacity_bytes, in_words(whole.space.settings(one.number)))
            for one in _smallest(whole, found.estimate)
            if not one.refusal
        ]
    if not needs:
        return "the schedule cannot run those that need least memory"
    need, capacity, plan = min(needs)
    sizes = f"{size(need)} by its full estimate, of the {size(capacity)} allowed"
    return f"the smallest needs {sizes} ({plan})"


def _changes(
    found: Found, config: Config, overrides: Sequence[str], clusters: Sequence[str], max_memory: float
) -> Iterator[str]:
    """Changes with which something fits, the smallest first: a larger share of the memory, one key of the plan left open, more
    nodes."""
    if share := _enough_memory(found, max_memory):
        yield f"raise --max-memory to {plain(share)}"
    question = found.surveys[0].space.question
    given = [path for path in LEFT_OUT if path not in {axis.path for axis in question.axes}]
    nodes = question.base.cluster.nodes

    def helps(setting: str) -> bool:
        try:
            questions = read_questions(config, [*overrides, setting], clusters)
            surveys = [survey(legal_plans(each), max_memory=max_memory) for each in questions]
        except UserError:
            return False
        return any(_something_fits(own, found.estimate) for own in surveys)

    for path in given:
        if helps(f"{path}=auto"):
            yield f"leave {path} open: --set {path}=auto"
    if enough := _enough_nodes(nodes, lambda more: helps(f"cluster.nodes={more}")):
        yield f"take {enough} nodes in place of {nodes}"


def _enough_nodes(short: int, helps: Callable[[int], bool]) -> int | None:
    """A number of nodes that helps, by doubling and then by halving the gap, as for a config made of a model; None up to DOUBLINGS."""
    enough = next((more for power in range(DOUBLINGS) if helps(more := short << power + 1)), None)
    if enough is None:
        return None
    short = enough // 2
    while enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (short, middle) if helps(middle) else (middle, enough)
    return enough


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
    """Whether a plan surely fits: one at risk is not what anybody takes more machines for."""
    for _, settings in _of_smallest_floors(own):
        with suppress(InfeasibleError):
            memory = estimate(run_of(own.space.question.base, settings)).memory
            if verdict_of(memory.point_bytes, memory.upper_bytes, own.capacity_bytes) == "FITS":
                return True
    return False


def _smallest(own: Survey, estimate: Estimate) -> list[Outcome]:
    """The full estimates of the plans with the smallest floors of memory."""
    return outcomes(estimate, own.space.question.base, _of_smallest_floors(own))


def _of_smallest_floors(own: Survey) -> list[tuple[int, dict[str, Any]]]:
    order = own.memory_floors.argsort(kind="stable")[:TRIES].tolist()
    return [(row, own.space.settings(row)) for row in order]
