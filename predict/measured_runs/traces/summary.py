"""Summaries of traces, without any config: how long the device was busy and with what, and whether it waited to be given work."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from predict.measured_runs.explain.naming import COPY, UNKNOWN, class_of
from predict.measured_runs.explain.timeline import STILL_SHARE, STILL_US, device_windows, steps_of
from sampling.importers.torch_trace.events import Kernel, Trace

LAUNCH_BOUND = 0.5
"""Share of the time in which work was at hand that a device waits for launches, from which on they bound the span."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceSummary:
    """The device of one rank between its first and its last kernel; times in µs, copies and fills apart."""

    rank: int
    device: str
    """The device's name; empty where the trace does not say."""
    kernels: int
    span_us: float
    busy_us: float
    """Time in which at least one kernel ran."""
    waiting_us: float
    """Time in which none ran and the next was not launched yet, in pauses too short to be standing still."""
    still_us: float
    """Time of longer pauses: nothing was asked of the device."""
    by_class: Mapping[str, float]
    """Sum of the kernels' durations by class, the largest first, copies included; kernels that overlap count each."""
    step_times_us: tuple[float, ...]
    """Times of the steps that the trace marks; the span where it marks none."""
    rule: str
    """How the steps were found."""

    @property
    def idle_us(self) -> float:
        return self.span_us - self.busy_us

    @property
    def busy_share(self) -> float:
        return self.busy_us / self.span_us if self.span_us else 0.0

    @property
    def classified_share(self) -> float:
        """Share of the kernels' time that has a class."""
        whole_us = sum(self.by_class.values())
        return 1 - self.by_class.get(UNKNOWN, 0.0) / whole_us if whole_us else 0.0

    @property
    def launch_bound(self) -> bool:
        """Whether the device mostly waits for the host to launch its next kernel, so that faster kernels would gain little."""
        return self.waiting_us > LAUNCH_BOUND * (self.span_us - self.still_us)


def summary(trace: Trace) -> TraceSummary | None:
    """The summary of a trace; None of one without kernels."""
    work = sorted((each for each in trace.kernels if not _is_copy(each)), key=lambda each: each.start_us)
    if not work:
        return None
    start_us, end_us = work[0].start_us, max(_end_us(each) for each in work)
    pauses = [*_pauses(work)]
    long_us = max(STILL_US, STILL_SHARE * (end_us - start_us))
    steps = steps_of(trace)
    return TraceSummary(
        rank=trace.rank or 0,
        device=trace.devices[0] if trace.devices else "",
        kernels=len(work),
        span_us=end_us - start_us,
        busy_us=end_us - start_us - sum(end - start for start, end, _ in pauses),
        waiting_us=sum(
            min(end, launched) - start for start, end, launched in pauses if end - start < long_us and launched > start
        ),
        still_us=sum(end - start for start, end, _ in pauses if end - start >= long_us),
        by_class=_by_class(trace.kernels),
        step_times_us=tuple(window.duration_us for window in device_windows(steps, work)) or (end_us - start_us,),
        rule=steps.rule,
    )


def _is_copy(kernel: Kernel) -> bool:
    return class_of(kernel) == COPY


def _end_us(kernel: Kernel) -> float:
    return kernel.start_us + kernel.duration_us


def _pauses(kernels: Sequence[Kernel]) -> Iterator[tuple[float, float, float]]:
    """(start, end, launch of the kernel that ends it) of each stretch without kernels, which are in order. Where a trace knows no launches,
    the kernel counts as launched when it started."""
    ends_us = kernels[0].start_us
    for kernel, following in pairwise(kernels):
        ends_us = max(ends_us, _end_us(kernel))
        if following.start_us > ends_us:
            launched_us = following.start_us if following.launched_us is None else following.launched_us
            yield ends_us, following.start_us, launched_us


def _by_class(kernels: Iterable[Kernel]) -> dict[str, float]:
    found: dict[str, float] = {}
    for kernel in kernels:
        name = class_of(kernel)
        found[name] = found.get(name, 0.0) + kernel.duration_us
    return dict(sorted(found.items(), key=lambda each: -each[1]))
