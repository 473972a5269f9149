"""The counts of a fuzz test: what was refused, what was answered, and what may never happen."""

import signal
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FrameType

from sampling.errors import LONGEST_LINE, MOST_LINES, UserError

MOST_S = 10.0
"""Seconds of a processor after which a case counts as hanging; they take milliseconds, and the first one imports torch."""
MOST_WALL_S = 240.0
"""Seconds by the clock after which one does that waits for something: generous, for a machine that does much else meanwhile."""
LONGEST_MESSAGE = 2 * LONGEST_LINE * MOST_LINES


class HangError(BaseException):
    """A case that takes too long."""


@dataclass(kw_only=True, slots=True)
class Counts:
    """Cases by what came of them; `faults` describes those that may never happen."""

    answered: int = 0
    refused: int = 0
    tracebacks: int = 0
    nonsense: int = 0
    hangs: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return self.answered + self.refused + self.tracebacks + self.hangs

    def judge(self, name: str, work: Callable[[], Iterable[str]], *, says: str = "") -> UserError | None:
        """The refusal of a case, if any: `work` gives what is nonsense in its answer, or is refused with a message that `says` where."""
        refusal = None
        signal.signal(signal.SIGPROF, _hang)
        signal.setitimer(signal.ITIMER_PROF, MOST_S)
        # a thread, as pytest's own limit has the alarm
        main = threading.main_thread().ident
        alarm = threading.Timer(MOST_WALL_S, lambda: signal.pthread_kill(main, signal.SIGPROF))
        alarm.daemon = True
        alarm.start()
        try:
            wrong = list(work())
            self.answered += 1
        except UserError as error:
            self.refused += 1
            refusal, wrong = error, _wrong_refusal(error, says)
        except HangError:
            self.hangs += 1
            self.faults.append(f"{name}: hangs")
            wrong = []
        except Exception:
            self.tracebacks += 1
            self.faults.append(f"{name}: {traceback.format_exc(limit=-3)}")
            wrong = []
        finally:
            alarm.cancel()
            signal.setitimer(signal.ITIMER_PROF, 0)
        self.nonsense += bool(wrong)
        self.faults += [f"{name}: {each}" for each in wrong]
        return refusal

    def __str__(self) -> str:
        return (
            f"{self.cases} cases: {self.answered} answered, {self.refused} refused, {self.tracebacks} tracebacks, "
            f"{self.nonsense} nonsense, {self.hangs} hangs"
        )


def _hang(number: int, frame: FrameType | None) -> None:
    raise HangError


def _wrong_refusal(error: UserError, says: str) -> list[str]:
    message = str(error)
    wrong = []
    if says not in message:
        wrong.append(f"a message that does not name {says}: {message[:300]}")
    if len(message) > LONGEST_MESSAGE or not message.replace("\n", "").isprintable():
        wrong.append(f"a message of {len(message)} characters, or with control characters")
    if error.exit_code not in (2, 3, 4):
        wrong.append(f"exit code {error.exit_code}")
    return wrong
