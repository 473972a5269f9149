"""Steps with shorter and longer responses, and with fewer and more of them to each prompt."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from predict.rl.config import document_of, rl_run
from predict.rl.search.search import Candidate, candidate
from predict.rl.search.space import RlSpace
from predict.rl.section import RlSection
from predict.rl.training import Estimate
from predict.run.lengths import scaled_lengths

LENGTHS = (0.25, 0.5, 1.0, 2.0)
COUNTS = (0.5, 1.0, 2.0)
"""Times the config's own."""
N, LONGEST = "rl.n", "rl.response_max"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LengthMap:
    """Combinations of a longest response and a number of responses to a prompt; `own` are those of the config."""

    own: tuple[int, int]
    cells: tuple[Candidate, ...]


def length_map(config: Path | str, overrides: Sequence[str], estimate: Estimate) -> LengthMap | None:
    """Predict every combination; None where a file gives the lengths of responses. Budgets of tokens grow with the longest sequence."""
    path = Path(config)
    document, of_files, _ = document_of(path, overrides)
    base = rl_run(copy.deepcopy(document), path, of_files)
    space = RlSpace(path=path, document=document, axes={}, base=base, of_files=of_files)
    section = base.section
    counts = sorted({max(1, round(times * section.n)) for times in COUNTS})
    longer = [found for times in LENGTHS if (found := _longer(section, times, base.base.plan.cp))]
    if not longer:
        return None
    cells = tuple(candidate(space, {N: count, **settings}, estimate) for count in counts for settings in longer)
    return LengthMap(own=(section.response_max, section.n), cells=cells)


def _longer(section: RlSection, times: float, cp: int) -> dict[str, Any] | None:
    """The settings of responses so many times as long; None for those of a file."""
    response, longest = scaled_lengths(section.response, times), max(1, round(section.response_max * times))
    if response is None:
        return None
    needed = ceil((section.prompt_max + longest) / cp)
    budgets = {"rl.max_tokens": section.max_tokens, "rl.passes.max_tokens": section.passes.max_tokens}
    grown = {key: max(tokens, needed) for key, tokens in budgets.items() if tokens}
    return {"rl.response": response, LONGEST: longest, **grown}
