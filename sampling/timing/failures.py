"""Calls that cannot be timed here are skipped with a message, on all ranks or on none."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from sampling.call import Call, Phase
from sampling.errors import ConfigError, SkippedError, UserError, in_one_line
from sampling.files.faults import counted
from sampling.hardware.cluster import Cluster
from sampling.number_text import whole_percent
from sampling.timing.timer import Ranks
from sampling.torch_work.workload_protocols import Rotates, Workload
from sampling.units import GIB

MEMORY_SHARE = 0.6
"""Share of a device's memory that a call's own tensors may take; libraries' workspaces and fragments need the rest."""


def fits(call: Call, cluster: Cluster) -> bool:
    """Whether a GPU holds the call, by its fields alone; ranks on a CPU share what the machine has, and their calls are small."""
    if cluster.gpu.kind == "cpu":
        return True
    return call.resident_bytes() <= MEMORY_SHARE * cluster.gpu.memory_gib * GIB


OUT_OF_MEMORY = "ran out of memory"
ALLOCATION = "can't allocate memory"
"""The message of torch's allocator for the CPU, which has no error class of its own."""
NO_WORKSPACE = "BLAS_STATUS_ALLOC_FAILED"
"""In the message where cuBLAS or hipBLAS finds no memory, which has no error class of its own either."""
DEVICE_ERRORS = ("CUDA error", "HIP error")
"""Beginnings of the messages of torch's errors of a device."""
REFUSALS = ("BLAS_STATUS_NOT_SUPPORTED", "BLAS_STATUS_INVALID_VALUE")
"""Statuses by which cuBLAS or hipBLAS refuses one product before it launches anything, in a message that begins as those above."""


@dataclass(slots=True)
class SkippedCalls:
    """Counts skipped calls by reason, and says each reason when it first occurs."""

    say: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, reason: str) -> None:
        if not self.counts[reason]:
            self.say(f"left out: {reason}")
        self.counts[reason] += 1

    def summarize(self) -> None:
        if self.counts:
            each = "; ".join(f"{count} × {reason}" for reason, count in self.counts.items())
            self.say(f"{counted(self.counts.total(), 'call')} left out in all: {each}")


def refusal(call: Call, cluster: Cluster) -> str:
    """Why the call cannot run on the device, judged by its fields alone; '' if it may."""
    try:
        for phase in call.PHASES:
            call.terms(phase, cluster)
    except ConfigError as error:
        return f"{call.NAME}: {error}"
    if not fits(call, cluster):
        return f"{call.NAME}: more than {whole_percent(MEMORY_SHARE)} of the memory of {cluster.gpu.name}"
    return ""


def failure(error: Exception, *, spans_ranks: bool) -> str:
    """The reason to skip a call that failed with `error`; '' for an error that must end this process.

    A call of one rank may fail with any error of torch, of a compiler or of ours, and the next call runs. After an error of
    communication, or of the device itself, nothing more can be timed here. An error of the user's, such as a full disk, concerns
    all calls.
    """
    import torch

    if isinstance(error, SkippedError):
        return str(error)
    if isinstance(error, torch.OutOfMemoryError):
        return OUT_OF_MEMORY
    if isinstance(error, RuntimeError) and any(words in str(error) for words in (ALLOCATION, NO_WORKSPACE)):
        return OUT_OF_MEMORY
    if spans_ranks or isinstance(error, UserError) or is_of_device(error):
        return ""
    return in_one_line(error)


def is_of_device(error: Exception) -> bool:
    """Whether the device has failed, so that every later call on it fails too."""
    import torch

    # a class of its own since torch 2.8
    of_device = getattr(torch, "AcceleratorError", ())
    if isinstance(error, of_device):
        return True
    message = str(error)
    return message.startswith(DEVICE_ERRORS) and not any(status in message for status in REFUSALS)


def agreed(reason: str, ranks: Ranks) -> str:
    """The reason to skip the call if any rank has one, on every rank; '' if none has."""
    if ranks.largest(float(bool(reason))) == 0:
        return ""
    return reason or "another rank could not"


class NoOpAfterFailure:
    """A workload that does nothing after its first failure, so that this rank keeps step with the others until all agree.

    If the call spans ranks, the error ends the job instead: the others would wait inside the call for this rank.
    """

    def __init__(self, workload: Workload, *, spans_ranks: bool) -> None:
        self._workload = workload
        self._spans_ranks = spans_ranks
        self.reason = ""

    def prepare(self, phase: Phase) -> None:
        self._unless_failed(lambda: self._workload.prepare(phase))

    def run(self, phase: Phase) -> None:
        self._unless_failed(lambda: self._workload.run(phase))

    def rotates_through(self, cache_bytes: float) -> bool:
        return isinstance(self._workload, Rotates) and self._workload.rotates_through(cache_bytes)

    def _unless_failed(self, work: Callable[[], None]) -> None:
        if self.reason:
            return
        try:
            work()
        except Exception as error:
            if self._spans_ranks and not isinstance(error, SkippedError):
                raise
            self.reason = failure(error, spans_ranks=self._spans_ranks)
            if not self.reason:
                raise
