"""Progress of a plan by the events of an archive: what is timed, what was left out, and what ended its worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sampling.call import Call, Phase, Request
from sampling.catalogue import make_call
from sampling.errors import SamplesError
from sampling.store.sample import Sample, sample_from_row

MOST_BEGINNINGS = 2
"""Times that a call is begun without a row or an end: a kill may fall on any call once, and on one call twice hardly by chance."""
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


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
    _timed: dict[Call, set[Phase]] = field(default_factory=dict)
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
            self._timed.setdefault(row.call, set()).add(row.phase)
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

    def lacking(self, request: Request) -> Request | None:
        """The phases of a request that are still to be timed; None if there are none, or the call is left out."""
        if self.why_left_out(request.call):
            return None
        timed = self._timed.get(request.call, set())
        phases = tuple(phase for phase in request.phases if phase not in timed)
        return Request(call=request.call, phases=phases) if phases else None

    def why_left_out(self, call: Call) -> str:
        """Why a call is not timed (again); '' if it may be."""
        if self._beginnings[call] >= MOST_BEGINNINGS:
            return f"it was begun {MOST_BEGINNINGS} times and ended the session each time"
        return self.left_out.get(call, "")

    def answered_steps(self) -> frozenset[str]:
        """Names of the real steps that are done; one that failed, or ran out of its session's time, is not."""
        return frozenset(name for name, result in self.steps.items() if "error" not in result)

    def summary(self) -> str:
        """Rows, calls and steps so far, in words."""
        calls = len({row.call for row in self.rows})
        bad = sum(bool(row.quarantine) for row in self.rows)
        reasons = Counter(self.left_out.values())
        left = "".join(f"; left out {count} × {reason}" for reason, count in reasons.most_common(5))
        steps = len(self.answered_steps())
        return (
            f"{len(self.rows)} rows of {calls} calls ({bad} quarantined), {steps} real step{'s' * (steps != 1)}{left}"
        )


def progress_of(events: Iterable[Mapping[str, Any]]) -> Progress:
    progress = Progress()
    for event in events:
        progress.take(event)
    return progress
