"""WithinSamples: the answers of a profile's models that a run may use, corrected where its kernel or its group was not sampled."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any, ClassVar

from predict.interval import Interval
from predict.prices.collectives import CollectiveCorrection
from predict.prices.cost_model import CallPhase, CostModel
from predict.prices.kernels.attention import UNLIKE_WIDTH, slowdown_of
from predict.prices.kernels.products import OF_FEWER_BITS
from predict.workload.layer import as_sampled
from regressors.bank.times import Times
from sampling.call import Call, Phase
from sampling.collectives.kinds import Collective
from sampling.errors import SamplesError
from sampling.files.faults import Fault, shown
from sampling.files.schema import read
from sampling.hardware.cluster import Cluster
from sampling.operators.attention import UNPACKED, Attention, DecodeAttention
from sampling.operators.experts import UNTUNED, GroupedGemm
from sampling.operators.gemm import Gemm
from sampling.store.profiles import OWN, SHIPPED, home_of

USUAL_BYTES = (2**16, 2**20, 2**23, 2**26)
"""Sizes of messages that samplers time."""


@dataclass(frozen=True, slots=True)
class WithinSamples:
    """A fitted model without its extrapolations to groups or links that were not sampled: there the analytic times of the two
    tiers, corrected by the sampled groups, are closer. Message sizes that were not sampled are the model's own.

    Attention by a kernel that a framework names takes the sampled kernel's time times the ratio of the two kernels.
    """

    fitted: CostModel
    correction: CollectiveCorrection
    attention_kernel: str = ""
    """The kernel that ran in the samples of attention; empty where they do not name it: then it is taken for the device's best."""

    def times(self, calls: Sequence[CallPhase], cluster: Cluster) -> list[Times | None]:
        if cluster.gpu.kind == "cpu":
            return list(self.fitted.times(calls, cluster))
        answers = self.fitted.times([(as_sampled(call), phase) for call, phase in calls], cluster)
        return [self._usable(wanted, time, cluster) for wanted, time in zip(calls, answers, strict=True)]

    def _usable(self, wanted: CallPhase, time: Times | None, cluster: Cluster) -> Times | None:
        call, phase = wanted
        if isinstance(call, DecodeAttention | GroupedGemm) and call.kernel in (UNPACKED, UNTUNED):
            return None  # no sampler has the engine's kernel, and those that it has are faster
        if isinstance(call, Gemm | GroupedGemm) and call.kernel in OF_FEWER_BITS:
            return time if time and time.source == "measured" else None  # what is learnt of other kernels says nothing
        if time is None or not isinstance(call, Collective):
            return time and _by_own_kernel(call, time, self.attention_kernel, cluster)
        if time.source == "measured":
            return time
        if time.source == "transferred":
            return None
        return time if self._was_sampled(call, phase, cluster) else self.correction.time(call, cluster)

    def _was_sampled(self, call: Collective, phase: Phase, cluster: Cluster) -> bool:
        """Whether the model knows the call's group, by messages of usual sizes."""
        probes: list[CallPhase] = [(replace(call, size_bytes=size), phase) for size in USUAL_BYTES]
        return any(time and time.source == "measured" for time in self.fitted.times(probes, cluster))


def _by_own_kernel(call: Call, time: Times, sampled_kernel: str, cluster: Cluster) -> Times:
    """The time of the kernel that ran in the samples times the ratio of the call's own kernel to it."""
    if not isinstance(call, Attention) or as_sampled(call) == call:
        return time
    own, sampled = (slowdown_of(kernel, cluster.gpu.architecture) for kernel in (call.kernel, sampled_kernel))
    return time if own == sampled else _slower(time, own / sampled)


def _slower(time: Times, slowdown: float) -> Times:
    slower = Interval.of(time).scaled(slowdown).stretched(UNLIKE_WIDTH).in_place_of(time)
    return replace(slower, source="extrapolated") if time.source == "measured" else slower


LEAST_ROWS = 5
"""Validation runs below which their errors say nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationFile:
    """The keys of a profile's validation runs; `error` of a row is predicted / measured − 1, its `calls_half_width` in log time."""

    HEADER: ClassVar[Mapping[str, Any]] = {"version": 1}

    rows: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any]

    def contradictions(self) -> Iterator[Fault]:
        for index, row in enumerate(self.rows):
            errors = {"error": None, **row} if isinstance(row, Mapping) else {"error": None}
            for name in ("error", "error_at_pace"):
                error = errors.get(name, 0.0)
                if not isinstance(error, int | float) or not -1 < error < math.inf:
                    yield Fault(
                        path=f"rows[{index}].{name}", problem=f"{shown(error)} is not a relative error above -1"
                    )
            width = errors.get("calls_half_width", 0.0)
            if not isinstance(width, int | float) or not 0 <= width < math.inf:
                yield Fault(path=f"rows[{index}].calls_half_width", problem=f"{shown(width)} is not a half-width")


def known_error(profile: str, *, on_cpu: bool) -> float | None:
    """The error of the profile's own validation runs; on a CPU without them, the error of the shipped profile's: steps composed of rows
    that nobody validated are known no better than those that were."""
    own = profile_error(profile)
    return profile_error(SHIPPED) if own is None and on_cpu else own


def validation_path(profile: str, home: Path | None = None) -> Path:
    """The file in which `predict validate` keeps a profile's runs, predicted and measured; `home` is the profile's, if known."""
    return (home or home_of(profile)) / "published" / f"{profile}-steps.json"


def profile_error(profile: str) -> float | None:
    """Half-width in log time at 90 % by which a step misses the sum of its calls: Student's prediction interval, about zero, by the errors
    of the profile's validation runs, of each at the pace beside it where that was read, less what the bounds of their calls explain: the
    widths of a step's own calls and of the pace (`predict.prices.pace`) are added apart, and would count twice.

    The variance beyond the known variances is DerSimonian and Laird's estimate (Controlled Clinical Trials 7, 1986), in squares of
    half-widths. None with fewer than LEAST_ROWS runs. Raises SamplesError for a damaged file.
    """
    path = validation_path(profile)
    if not path.is_file():
        return None
    fix = f"restore the file, or write it anew with `predict validate {OWN} --profile {profile} --keep`"
    rows = read(ValidationFile, path, error=SamplesError, fix=fix).rows
    errors = [math.log1p(row.get("error_at_pace", row["error"])) for row in rows]
    if len(errors) < LEAST_ROWS:
        return None
    whole = students_95(len(errors)) * math.sqrt(fmean(error**2 for error in errors) * (1 + 1 / len(errors)))
    of_calls = fmean(row.get("calls_half_width", 0.0) ** 2 for row in rows)
    return math.sqrt(max(0.0, whole**2 - of_calls))


def students_95(freedom: int) -> float:
    """The 95 % quantile of Student's t, by its expansion about the normal's (Abramowitz and Stegun 26.7.5): to 0.2 % from 5 degrees of
    freedom on."""
    z = NormalDist().inv_cdf(0.95)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
