"""Tuning: what a step runs beside the pass that trains, for preferences, rewards, a teacher or an evaluation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from sampling.files.schema import Key, one_of

SFT, DPO, KTO, REWARD, DISTILL, POLICY = "sft", "dpo", "kto", "reward", "distill", "policy"
OF_POLICY: Mapping[str, float] = {KTO: 1.0}
"""Task → passes of the model itself without a gradient, over as many sequences as the step has: KTO's over mismatched answers, for its
estimate of the divergence (trl, trainer/kto_trainer.py, `forward`)."""
OF_REFERENCE: Mapping[str, float] = {DPO: 1.0, KTO: 2.0}
"""Task → passes of the reference: over the same sequences (trl, trainer/dpo_trainer.py, `compute_ref_log_probs`), and KTO's mismatched
ones."""

ESTIMATE, REFERENCE, EVALUATION, TEACHER = "kl_estimate", "reference", "evaluation", "teacher"
"""Headings of passes without a gradient: KTO's own, a reference's, those of evaluation, and a teacher's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """The kind of a step's loss. Sequences of pairs, chosen and rejected, count as two in `batch`."""

    task: Annotated[str, one_of(SFT, DPO, KTO, REWARD, DISTILL, POLICY)] = SFT
    """sft, as pre-training: the next token of each sequence; dpo (arXiv 2305.18290) and kto (arXiv 2402.01306), which compare with a
    reference; reward, a model whose head gives one number; distill, which follows a teacher's logits; policy, an update of reinforcement
    learning alone, whose head gives log-probabilities and entropies, chunk by chunk in fp32."""
    reference: Annotated[str, one_of("kept", "precomputed", "none")] = "kept"
    """The reference of dpo and kto: a frozen copy of the model, or the base without its adapters, that runs in each step; its results
    computed before training; or none at all."""
    teacher: str = ""
    """The teacher of distill: the name of a shipped model, or the path of a config.json."""
    evaluated_share: Annotated[float, Key(minimum=0, maximum=1000)] = 0.0
    """Sequences that are evaluated between steps over those that are trained on: 1,000 every 500 steps of 64 are 0.03."""

    @property
    def own_passes(self) -> Mapping[str, float]:
        """Heading of the ledger → passes without a gradient over as many sequences as the step has, by the model or a copy of it."""
        passes = {
            ESTIMATE: OF_POLICY.get(self.task, 0.0),
            REFERENCE: OF_REFERENCE.get(self.task, 0.0) if self.keeps_reference else 0.0,
            EVALUATION: self.evaluated_share,
        }
        return {heading: many for heading, many in passes.items() if many}

    @property
    def keeps_reference(self) -> bool:
        """Whether a reference runs in each step."""
        return self.task in OF_REFERENCE and self.reference == "kept"
