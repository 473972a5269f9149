"""Progress of a plan by the events of an archive: what is timed, what was left out, and what ended its worker."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sampling.call import Call, Phase, Request, State
from sampling.catalogue import make_call
from sampling.errors import UNREADABLE, SamplesError
from sampling.store.attempts import MOST_ENDS
from sampling.store.sample import Sample, sample_from_row
from sampling.timing.row_checks import Quarantine

MOST_IMPOSSIBLE = 2
"""Rows of one phase and state that are faster than the device can be, after which a further one is taken to be no better."""


@dataclass(slots=True)
class Progress:
    """The state of a session, event by event."""

    rows: list[Sample] = field(default_factory=list)
    left_out: dict[Call, str] = field(default_factory=dict)
    """Calls that are not timed, and why."""
    begun: Call | None = None
    """The call that is timed now, or was when the session was killed."""
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Real steps by name: what their command answered, or the reason that it did not."""
    _reasons: dict[tuple[Call, Phase], dict[State, list[str]]] = field(default_factory=dict)
    """Why the rows of a phase are quarantined, in each state; '' for a good one."""
    _beginnings: Counter[Call] = field(default_factory=Counter)

    def take(self, event: Mapping[str, Any]) -> None:
        """Add one event; SamplesError for one that no session writes."""
        try:
            self._take(event)
        except UNREADABLE as error:
            raise SamplesError(f"an event of this session cannot be read ({error}); fetch the archive again") from None

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "row":
            row = sample_from_row(event["row"])
            self.rows.append(row)
            by_state = self._reasons.setdefault((row.call, row.phase), {})
            by_state.setdefault(row.state, []).append(row.quarantine)
            self._beginnings[row.call] = 0
        elif kind == "begin":
            self.begun = make_call(event["call"], event["fields"])
            self._beginnings[self.begun] += 1
        elif kind in ("end", "lost") and self.begun is not None:
            if event["reason"]:
                self.left_out[self.begun] = event["reason"]
            self._beginnings[self.begun] = 0
            self.begun = None
        elif kind == "step":
            self.steps[event["name"]] = event["result"]

    def lacking(self, request: Request, timings: float = math.inf) -> Request | None:
        """The phases of a request that are still to be timed, of those with fewer `timings`; None if there are none, or the call is
        left out."""
        if self.why_left_out(request.call):
            return None
        phases = tuple(phase for phase in request.phases if not self._is_timed(request.call, phase, timings))
        return Request(call=request.call, phases=phases) if phases else None

    def _is_timed(self, call: Call, phase: Phase, timings: float) -> bool:
        """Whether the phase has rows, and those of each state are good, or so many, or would not get better."""
        by_state = self._reasons.get((call, phase), {})
        return bool(by_state) and all(_is_settled(each) or len(each) >= timings for each in by_state.values())

    def why_left_out(self, call: Call) -> str:
        """Why a call is not timed (again); '' if it may be."""
        if self._beginnings[call] >= MOST_ENDS:
            return f"it was begun {MOST_ENDS} times and ended the session each time"
        return self.left_out.get(call, "")

    def answered_steps(self) -> frozenset[str]:
        """Names of the real steps that are done; one that failed, or ran out of its session's time, is not."""
        return frozenset(name for name, result in self.steps.items() if "error" not in result)

    def summary(self) -> str:
        """Rows, calls and steps so far, in words."""
        calls = len({row.call for row in self.rows})
        bad = sum("" not in reasons for by_state in self._reasons.values() for reasons in by_state.values())
        reasons = Counter(self.left_out.values())
        left = "".join(f"; left out {count} × {reason}" for reason, count in reasons.most_common(5))
        steps = len(self.answered_steps())
        return f"{len(self.rows)} rows of {calls} calls ({bad} left quarantined), {steps} real step{'s' * (steps != 1)}{left}"


def _is_settled(reasons: Sequence[str]) -> bool:
    impossible = sum(reason.startswith(Quarantine.IMPOSSIBLE.value) for reason in reasons)
    return "" in reasons or impossible >= MOST_IMPOSSIBLE


def progress_of(events: Iterable[Mapping[str, Any]]) -> Progress:
    progress = Progress()
    for event in events:
        progress.take(event)
    return progress
