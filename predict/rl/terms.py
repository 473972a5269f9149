"""Terms of an RL step that no kernel's price holds: what each is, its prior, and its bounds at 90 %."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from predict.interval import Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class RlTerm:
    """A prior in the unit of its name, read off the sources that it cites. Published times that it was read from are judged apart, as in-sample
    (READ_FROM)."""

    value: float
    low: float
    high: float
    meaning: str
    source: str

    def times(self, number: float) -> Interval:
        """`number` times the term, with its bounds."""
        return Interval(median=self.value, low=self.low, high=self.high).scaled(number)


TERMS: Mapping[str, RlTerm] = {
    "dispatch_s": RlTerm(
        value=1.0,
        low=0.3,
        high=5.0,
        meaning="seconds of a step in which the driver starts phases and computes advantages",
        source="logs of verl on one node: a step is 1 to 5 s longer than its phases",
    ),
    "padded_token_us": RlTerm(
        value=0.13,
        low=0.05,
        high=0.3,
        meaning="µs per token of the padded samples that the driver sends to the workers, however many these are",
        source="verl's page on fully asynchronous training: old_log_prob of 8,192 samples of 30,720 tokens takes 33 s and a part that 32, "
        "64 and 128 GPUs share (107.7, 70.3 and 53.9 s)",
    ),
    "tensor_s": RlTerm(
        value=1e-3,
        low=2.5e-4,
        high=2e-3,
        meaning="seconds per tensor of weights that is gathered, resharded and loaded by its name",
        source="verl's page on fully asynchronous training (2025-11): 15.8 s of Qwen3-30B-A3B, 58.6 s of Qwen3-235B, 0.12 s of a dense 7B, by their tensors",
    ),
    "gather_s": RlTerm(
        value=3e-4,
        low=1.5e-4,
        high=6e-4,
        meaning="seconds per tensor of weights that the trainer gathers into buckets",
        source="the same page: 4.4 and 23.7 s of the two mixtures with buckets, less their bytes",
    ),
    "bucket_gb_per_s": RlTerm(
        value=66.0,
        low=55.0,
        high=80.0,
        meaning="GB/s at which engines take in weights from the host's memory, whatever the links",
        source="checkpoint-engine's README at 59a3c4f: 59 to 76 GB/s into 8, 16 and 256 GPUs, on one node and on many",
    ),
}
"""Name → term. A step has the first two, and of the others that of its `rl.weight_sync.method`."""


READ_FROM: Mapping[str, str] = {
    "verl-fully-async-7b": "old_log_prob",
    "verl docs": "update_weights",
    "MoonshotAI/checkpoint-engine": "update_weights",
}
"""Start of a source's name in tables of published times → the phase of it that terms were read from: `padded_token_us` of the first,
`tensor_s` and `gather_s` of the second, `bucket_gb_per_s` of the third."""


def in_sample(source: str, phase: str) -> bool:
    """Whether a term was read from this phase of this source, so that its error there tells nothing of other runs."""
    return any(source.startswith(name) and phase == read for name, read in READ_FROM.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
    """Factors on the time of phases, and the half-width in log time, at 90 %, of a phase that has one."""

    rollout: float = 1.0
    """On generation: what an engine inside an RL framework takes over a server of its own."""
    update: float = 1.0
    """On updates: what a trainer inside an RL framework takes over a training run of its own."""
    passes: float = 1.0
    """On passes without a backward: logits and entropies in fp32, and microbatches that nothing overlaps."""
    half_width: float = 0.0


UNSCALED = Factors()
FACTORS = Factors(rollout=1.45, update=1.15, passes=1.5, half_width=0.39)
"""Fitted to steps and phases by `predict.validate.rl.fit`. The half-width is the least at which nine in ten runs have their published step
in its interval, each predicted by factors fitted without its source."""
FITTED_TO = ("nemo-rl-Llama-3.1-8B", "nemo-rl-Qwen3-235B-A22B", "nemo-rl-Qwen3-30B-A3B", "verl-log-c550")
"""Sources of these rows: NeMo-RL 0.4 to 0.6, its performance summary (whole steps); verl 0.7, a public log on C550 (phases too)."""
HOST_GB_PER_S, HOST_LOW, HOST_HIGH = 25.0, 10.0, 50.0
"""Bandwidth between a GPU and the host's memory: pinned copies over PCIe 4.0 x16 reach 25 GB/s of its 32, over PCIe 5.0 50 of its 64
(PCI-SIG), pageable ones about 10."""
