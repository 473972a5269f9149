"""Training logs: the format is found by the lines. A format is a module of this folder with

- `FRAMEWORK`, the name of what writes it,
- `read(lines)`, which yields what they state of steps, in order,
- where lines have it, `peak_bytes(line)`, the peak of allocated memory per GPU that a line states, None for any other line,
- where the log says more of its run, `stated(lines)`, what it says.

The format of a server's log has `ENGINE` in place of `FRAMEWORK`, and `read_served(lines)`, the `ServedLog` that they make, None for
others."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from predict.measured_runs.served_log import ServedLog
from predict.measured_runs.steady_state import LoggedStep, RunLog, Stated
from sampling.additions import add, modules_of
from sampling.errors import UserError
from sampling.files.disk import NotReadError, read_unzipped


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFormat:
    read: Callable[[Iterable[str]], Iterator[LoggedStep]]
    peak_bytes: Callable[[str], float | None] = lambda line: None
    stated: Callable[[Sequence[str]], Stated] = lambda lines: Stated()


def formats() -> dict[str, LogFormat]:
    """Every format by the name of its framework."""
    found: dict[str, LogFormat] = {}
    for module in modules_of(__name__):
        if hasattr(module, "FRAMEWORK"):
            names = [name for name in LogFormat.__slots__ if hasattr(module, name)]
            known = LogFormat(**{name: getattr(module, name) for name in names})
            add(found, module.FRAMEWORK, known, "formats of logs")
    return found


def engines() -> dict[str, Callable[[Sequence[str]], ServedLog | None]]:
    """Every format of a server's log by the name of its engine."""
    found: dict[str, Callable[[Sequence[str]], ServedLog | None]] = {}
    for module in modules_of(__name__):
        if hasattr(module, "ENGINE"):
            add(found, module.ENGINE, module.read_served, "formats of servers' logs")
    return found


COLOURS = re.compile(r"\x1b\[[0-9;]*m")
RANK = re.compile(r"^\s*(?:\[(?:rank|default)?(\d+)\]:|(?:rank|default)(\d+):|(\d+):(?!\d))")
"""What torchrun, srun -l and others put before the lines of a rank; a time of day such as 09:12:33 does not count."""
TIME = re.compile(r"\b(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
EPOCH_MS = re.compile(r'"time_ms": (\d{13})\b')
"""Time of an event of mlperf-logging, in ms since 1970."""
ALIKE = 1.05
"""Factor within which ranks state the same time of a step: each has its own clock."""
MOST_STARTS = 0.1
"""Share of the steps at which a log may begin anew: a job that restarts more often hardly trains."""


def read_log(path: Path) -> RunLog:
    """The steps of a log. UserError for a file that cannot be read, is of no known format, states no times, or whose lines are out of
    order."""
    lines = _lines(path)
    framework, steps = _found(lines)
    if not steps:
        raise UserError(f"{path}: {_without_times(lines)}")
    peaks = (each.peak_bytes(line) for each in formats().values() for line in lines)
    last, starts = _last_start(path, steps)
    return RunLog(
        place=str(path),
        framework=framework,
        steps=last,
        peak_bytes=max(filter(None, peaks), default=None),
        starts=starts,
        date=_date(lines),
        stated=formats()[framework].stated(lines),
    )


def read_served_log(path: Path) -> ServedLog:
    """The rates or latencies that a server's log or benchmark states. UserError for a file that cannot be read, or is of no known
    engine."""
    lines = _lines(path)
    for read in engines().values():
        if (found := read(lines)) is not None:
            return found
    raise UserError(
        f"{path}: no line states rates or latencies as {', '.join(engines())} do; give the log of the engine"
    )


def states_steps(path: Path) -> bool:
    """Whether a file is a log of training that states times."""
    try:
        return bool(_found(_lines(path))[1])
    except UserError:
        return False


def is_log(path: Path) -> bool:
    """Whether a file is a log of any known format, of training or of a server, with times or without."""
    try:
        lines = _lines(path)
    except UserError:
        return False
    return any(any(True for _ in each.read(lines)) for each in formats().values()) or any(
        read(lines) is not None for read in engines().values()
    )


def _lines(path: Path) -> list[str]:
    try:
        text = read_unzipped(path).decode("utf-8", errors="replace")
    except NotReadError as error:
        raise UserError(f"{path}: {error}") from None
    return COLOURS.sub("", text).replace("\r", "\n").split("\n")


def _without_times(lines: Sequence[str]) -> str:
    """Why a log has no step times: it is empty, of a known framework and leaves them out, of a server, or unknown."""
    if not any(map(str.strip, lines)):
        return "is empty; give the log of the rank that prints its steps, or the step time itself, such as 3.2s"
    untimed = next((name for name, each in formats().items() if any(True for _ in each.read(lines))), "")
    if untimed:
        return f"its lines are {untimed}'s, and state losses without times; give the output of the terminal, or the step time itself"
    served = next((name for name, read in engines().items() if read(lines) is not None), "")
    if served:
        return f"it is of {served}, a server, whose lines state no training step; give it to `predict import-config`"
    return (
        f"no line states a step's time as {', '.join(formats())} do; give the log of the rank that prints them, or the step "
        "time itself, such as 3.2s"
    )


def _found(lines: Sequence[str]) -> tuple[str, list[LoggedStep]]:
    """The format that states the most, step times rather than rates, and its steps."""
    ranks = _by_rank(lines)
    read = {name: _of_one_rank(each, ranks) for name, each in formats().items()}
    return max(read.items(), key=lambda each: (any(step.time_us for step in each[1]), len(each[1])))


def _by_rank(lines: Sequence[str]) -> list[list[str]]:
    """The lines of each rank; without marks of ranks, all lines are one's."""
    by_rank: dict[str, list[str]] = {}
    for line in lines:
        found = RANK.match(line)
        by_rank.setdefault(found[found.lastindex or 0] if found else "", []).append(line)
    return [*by_rank.values()]


def _of_one_rank(each: LogFormat, ranks: Sequence[Sequence[str]]) -> list[LoggedStep]:
    """The timed steps as the rank states them that states the most."""
    stated = (_without_repeats([step for step in each.read(of_rank) if step.timed]) for of_rank in ranks)
    return max(stated, key=len, default=[])


def _without_repeats(steps: Sequence[LoggedStep]) -> list[LoggedStep]:
    """The steps, each once where several ranks state it one after the other without their marks."""
    return [step for place, step in enumerate(steps) if not (place and _tells_the_same(step, steps[place - 1]))]


def _tells_the_same(one: LoggedStep, other: LoggedStep) -> bool:
    if one.step != other.step:
        return False
    pairs = (
        (one.time_us, other.time_us),
        (one.samples_per_s, other.samples_per_s),
        (one.tokens_per_s_per_gpu, other.tokens_per_s_per_gpu),
    )
    return all(mine == theirs or (mine and theirs and 1 / ALIKE < mine / theirs < ALIKE) for mine, theirs in pairs)


def _last_start(path: Path, steps: Sequence[LoggedStep]) -> tuple[Sequence[LoggedStep], int]:
    """The steps since the numbers last began anew, and how often they began; UserError where they are in no order."""
    anew = [place for place in range(1, len(steps)) if steps[place].step <= steps[place - 1].step]
    if len(anew) > max(1, MOST_STARTS * len(steps)):
        first = steps[anew[0]]
        raise UserError(
            f"{path}: its steps are out of order at {len(anew)} of {len(steps)} lines (step {first.step} stands after step "
            f"{steps[anew[0] - 1].step}); give the log as it was written, of one run"
        )
    return steps[anew[-1] if anew else 0 :], 1 + len(anew)


def _date(lines: Sequence[str]) -> str:
    for line in reversed(lines):
        if found := EPOCH_MS.search(line):
            return datetime.fromtimestamp(int(found[1]) // 1000, UTC).replace(tzinfo=None).isoformat()
        if found := TIME.search(line):
            try:
                return datetime.fromisoformat(f"{found[1]}T{found[2]}").isoformat()
            except ValueError:
                continue
    return ""


NUMBER = r"([+-]?[\d,]*\.?\d+(?:[eE][+-]?\d+)?)"


def figure(line: str, name: str) -> float | None:
    """The number after `name` (a regular expression) and `:` or `=`; None where there is none, or it is not above 0."""
    found = re.search(rf"{name}\s*[:=]\s*['\"]?{NUMBER}", line)
    if not found:
        return None
    value = float(found[1].replace(",", ""))
    return value if 0 < value < math.inf else None


def whole(line: str, name: str) -> int | None:
    """The whole number after `name`; None where there is none, or it is not above 0."""
    value = figure(line, name)
    return None if value is None else round(value)


def above_zero(value: object) -> float:
    """A finite number above 0 as it is, anything else as 0."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0.0
    return float(value) if 0 < value < math.inf else 0.0


def times(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit
