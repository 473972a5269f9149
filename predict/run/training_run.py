"""A training run: everything a prediction depends on."""

from __future__ import annotations

from dataclasses import dataclass, field

from predict.model.spec import ModelSpec
from predict.run.execution import Execution
from predict.run.plan import Batch, Plan
from sampling.hardware.cluster import Cluster


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRun:
    """model × cluster × plan × batch, in one precision. `name` is the config file's stem."""

    name: str
    model: ModelSpec
    cluster: Cluster
    plan: Plan
    batch: Batch
    precision: str
    execution: Execution = field(default_factory=Execution)

    @property
    def blocks_on_sends(self) -> bool:
        """Whether a stage waits until what it sends has arrived."""
        return not self.execution.overlap_p2p

    @property
    def microbatches(self) -> int:
        return self.batch.microbatches(self.plan.dp)
