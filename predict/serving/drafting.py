"""Steps of a server that verifies drafts: those of the large model, and what writing the drafts adds to them."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from predict.interval import Interval
from predict.serving.batch import BatchSums, keys_within
from predict.serving.server import Server
from predict.serving.speculation import NGRAM, NONE
from predict.serving.step_model import Features, StepModel
from predict.serving.step_table import StepTable
from regressors.features.arrays import Floats

HOST_OF_PASS = 0.6
"""Time of the host for one pass of the model that writes drafts, over that for a step of the large one: it plans the pass and launches it,
but neither schedules nor answers. Set by the published gains of EAGLE-3 on one H100 (data/published/servers.csv), of one request up to
64 at once; 0.3 to 1 leave them inside their intervals."""
HOST_OF_NGRAM = 0.35
"""The same of searching a text for the tokens that it ends with, whatever the number of drafts; assumed, as of a pass."""
WIDTH = 0.15
"""Log half-width at 90 % of a step with drafts beyond that of one without: draft heads of one kind differ in width and vocabulary, and
kernels that verify were not sampled."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SpeculatedFeatures:
    """The features of steps whose decodes verify drafts, and which write the next ones: once over all tokens of the step, then token by
    token."""

    server: Server
    verifying: Features
    writing: Features | None
    """Those of a pass of the model that writes drafts; None where none does."""
    sees_alike: bool
    """Whether the queries of both models see the same keys."""
    of_host: NDArray[np.bool_]
    """Features that are the host's own time."""

    def __call__(self, sums: BatchSums) -> Floats:
        drafts = self.server.speculation.drafts
        verified = replace(sums, drafted=drafts * sums.decodes)
        found = self.verifying(verified)
        if self.writing is None:
            host = HOST_OF_NGRAM * np.where(self.of_host, found, 0.0)
            return found + host * (sums.requests > 0)[:, None]
        # the first pass reads the tokens that the step has added, the others one for each request
        one_by_one = replace(
            sums,
            prefills=0.0 * sums.prefills,
            prefill_tokens=0.0 * sums.prefills,
            prefill_pairs=0.0 * sums.prefills,
            prefill_context=0.0 * sums.prefills,
            window_pairs=0.0 * sums.prefills,
            window_context=0.0 * sums.prefills,
            whole_prompt_pairs=0.0 * sums.prefills,
            decodes=sums.requests,
        )
        written = self._written(verified) + (drafts - 1) * self._written(one_by_one)
        return found + np.where(self.of_host, HOST_OF_PASS, 1.0) * written

    def _written(self, sums: BatchSums) -> Floats:
        """The features of one pass. Its own kernels limit a decode to another window than the large model's."""
        assert self.writing
        return self.writing(sums if self.sees_alike else replace(sums, window_keys=sums.decode_context))


def features_with_drafts(model: StepModel, server: Server) -> Features:
    """The features of a server's steps, with the drafts that these verify and write."""
    if not server.speculation.drafts:
        return model.features_of(server)
    drafting = server.drafting
    return SpeculatedFeatures(
        server=server,
        verifying=model.features_of(server),
        writing=model.features_of(drafting) if drafting else None,
        sees_alike=drafting is None or drafting.seen == server.seen,
        of_host=np.array([term.of_host for term in model.terms.values()]),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Paying:
    """The gain of speculation by the number of requests that are decoded at once."""

    requests: tuple[int, ...]
    speedups: tuple[Interval, ...]
    """Time per token without drafts over that with them."""

    @property
    def loses_from(self) -> int | None:
        """The first number of requests at which it does not pay; None where it always does."""
        pairs = zip(self.requests, self.speedups, strict=True)
        return next((count for count, each in pairs if each.median < 1.0), None)

    @property
    def ends(self) -> tuple[tuple[int, float], tuple[int, float]]:
        """The fewest and the most requests, each with its gain."""
        first, last = ((self.requests[place], self.speedups[place].median) for place in (0, -1))
        return first, last


def paying(server: Server, with_drafts: StepTable, without: StepTable, context: int) -> Paying:
    """The gain by number of requests, all decoding over `context` tokens; its bounds are those of the drafts alone, for steps with and
    without them are wrong alike."""
    most = server.engine.max_num_seqs
    requests = tuple(sorted({*(2**power for power in range(most.bit_length()) if 2**power <= most), most}))
    counts = np.array(requests, dtype=np.float64)
    empty = np.zeros(len(requests))
    sums = BatchSums(
        prefills=empty,
        prefill_tokens=empty,
        prefill_pairs=empty,
        prefill_context=empty,
        window_pairs=empty,
        window_context=empty,
        whole_prompt_pairs=empty,
        decodes=counts,
        decode_context=context * counts,
        window_keys=keys_within(context, server.seen) * counts,
    )
    ratios = without.times_us(sums) / with_drafts.times_us(sums) * server.speculation.tokens_per_step
    width = speculation_width(server)
    return Paying(requests=requests, speedups=tuple(Interval.from_log(float(each), width) for each in ratios))


def speculation_width(server: Server) -> float:
    """Log half-width at 90 % that drafts add to the time of a token: of what they cost, and of how many are accepted."""
    if server.speculation.kind == NONE or not server.speculation.drafts:
        return 0.0
    cost = WIDTH if server.speculation.kind != NGRAM else WIDTH / 2
    return float(np.hypot(cost, server.speculation.width))
