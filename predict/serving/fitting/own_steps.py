"""Coefficients of the kernel model fitted to single steps of one server, whose batches and times are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from predict.run.calibration.priors import NINETY
from predict.serving.batch import Floats, StepBatch, sums_of
from predict.serving.coefficients import Client, Coefficients, Weight
from predict.serving.fitting.bounded import bounded_weights, deviations
from predict.serving.fitting.fit import ERROR, NINETY_PERCENT
from predict.serving.fitting.result import untold_terms, with_grounds
from predict.serving.kernels.features import kernel_features
from predict.serving.server import Server
from predict.serving.step_model import KERNELS, StepTerm
from sampling.errors import UserError

HOST = ("layer", "step", "request")
LOOSE = 100.0
"""Times by which the width and the bound of a host's term are wider on a CPU than those of serving engines: another program runs there."""
LEAST_KINDS = 8
"""Kinds of steps, so that some can be left out and the others still tell the terms apart."""
BLOCKS = 10
"""Blocks of kinds that are left out together, at most."""
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedBatch:
    """A batch, and the time of a step with it."""

    batch: StepBatch
    time_us: float

    @property
    def kind(self) -> tuple[int, int]:
        """Decodes and tokens of chunks; steps of one kind differ by their contexts alone."""
        return len(self.batch.decodes), sum(chunk.tokens for chunk in self.batch.chunks)


def fitted_to_steps(steps: Sequence[TimedBatch], server: Server, source: str) -> Coefficients:
    """The kernel model's weights by the medians of each kind of step of a server. UserError for too few kinds."""
    features = kernel_features(server)
    kinds: dict[tuple[int, int], list[TimedBatch]] = {}
    for step in steps:
        kinds.setdefault(step.kind, []).append(step)
    if len(kinds) < LEAST_KINDS:
        raise UserError(f"{source}: {len(kinds)} kinds of steps; time at least {LEAST_KINDS} different batches")
    rows = np.array(
        [features(sums_of([one.batch for one in each], server.window)).mean(axis=0) for each in kinds.values()]
    )
    times = np.array([np.median([one.time_us for one in each]) for each in kinds.values()])
    terms = _terms(server)
    weights = _weights(rows, times, terms)
    block = blocks_of(list(kinds))
    without = np.array([_weights(rows[block != one], times[block != one], terms) for one in range(block.max() + 1)])
    misses = np.abs(np.log((rows * without[block]).sum(axis=1) / times))
    jackknife = np.sqrt((len(without) - 1) * without.var(axis=0))
    # steps without experts tell nothing of `moe`, and those of one GPU nothing of `all_reduce`: then the prior's own width counts
    spread = NINETY * np.maximum(jackknife, deviations(rows, times, np.ones(len(times)), list(terms.values()), ERROR))
    found = Coefficients(
        model=KERNELS.name,
        weights={
            name: Weight(
                value=float(weight), low=max(term.low, float(weight - wide)), high=min(term.high, float(weight + wide))
            )
            for (name, term), weight, wide in zip(terms.items(), weights, spread, strict=True)
        },
        client=Client(),
        asynchronous=server.engine.asynchronous,
        half_width=float(np.quantile(misses, NINETY_PERCENT)),
        source=source,
        untold=untold_terms(terms, rows, times),
    )
    return with_grounds(found, [server])


def _terms(server: Server) -> Mapping[str, StepTerm]:
    """The terms of the kernel model, those of the host loose on a CPU."""
    if server.cluster.gpu.kind != "cpu":
        return KERNELS.terms
    return {
        name: replace(term, width=LOOSE * term.width, high=LOOSE * term.high) if name in HOST else term
        for name, term in KERNELS.terms.items()
    }


def _weights(rows: Floats, times: Floats, terms: Mapping[str, StepTerm]) -> Floats:
    return bounded_weights(rows, times, np.ones(len(times)), list(terms.values()), ERROR)


def blocks_of(kinds: Sequence[tuple[int, int]]) -> Ints:
    """The block of each kind of step, from 0. A block has a tenth of the different numbers of decodes, or of tokens where there are more of
    these: a kind that is left out alone is told by its neighbours, so that its error is that of interpolation."""
    each = np.array(kinds)
    most = max((np.unique(column, return_inverse=True)[1] for column in each.T), key=np.max)
    numbers = int(most.max()) + 1
    found: Ints = most * min(BLOCKS, numbers) // numbers
    return found
