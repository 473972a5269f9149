"""A training run: everything a prediction depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from predict.model.spec import ModelSpec
from predict.run.calibration.terms import Posterior
from predict.run.execution import Execution
from predict.run.lengths import PACKED, LikeLengths, RealSequences
from predict.run.plan import Batch, Plan
from predict.schedules import registry
from predict.schedules.building.schedule import Schedule
from predict.schedules.engine.order import Order
from predict.schedules.files.order_files import is_order_file
from sampling.files.keys import one_of
from sampling.hardware.cluster import DTYPE_BYTES, Cluster


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRun:
    """model × cluster × plan × batch, in one precision. `name` is the config file's stem."""

    name: str
    model: ModelSpec
    """The model: the name of a shipped one, the path of a Hugging Face config.json, or its keys."""
    cluster: Cluster
    """The machines: the name of a shipped cluster, the path of a YAML file with these keys, or the keys themselves."""
    plan: Plan
    """How the run is spread over the ranks."""
    batch: Batch
    """The sequences of one step."""
    precision: Annotated[str, one_of(*DTYPE_BYTES)]
    """Dtype of weights and activations; with fp8 and tf32 that of the layers' matrix products."""
    execution: Execution = field(default_factory=Execution)
    """How a framework runs the plan."""
    order: Order | None = field(default=None, repr=False)
    """The order in the file that `plan.schedule` names, read with the config; None for a registered schedule."""
    calibration: Posterior | None = field(default=None, repr=False)
    """The terms that its settings were multiplied by, and what they rest on; None for stated priors alone."""
    real: RealSequences | None = field(default=None, repr=False)
    """The sequences whose rows `batch` has; None where all are as long as a row."""
    model_keys: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The keys of the model's `config.json` as given, for conventions that read them; none where the run has only a shape."""

    @property
    def schedule(self) -> Schedule:
        """The plan's schedule. ConfigError for `best`, which only stage times can choose."""
        name = self.plan.schedule
        if self.order is not None and is_order_file(name):
            return registry.of_order(name, self.order)
        return registry.get(name)

    @property
    def sequences(self) -> Mapping[int, int]:
        """Length of a sequence → how many a step has."""
        return dict(self.real.counts) if self.real else {self.batch.seq_len: self.batch.global_}

    @property
    def attended(self) -> tuple[LikeLengths, ...]:
        """The sequences of several lengths that attention sees; () where it sees rows of `batch.seq_len`. Unfused attention computes
        packed rows whole, and masks what lies between their sequences."""
        if self.real is None or (self.batch.padding == PACKED and self.execution.attention == "unfused"):
            return ()
        return self.real.attended

    @property
    def with_longest_row(self) -> TrainingRun:
        """The run with every row as long as the longest, which the memory must hold."""
        if self.real is None or self.real.longest_row == self.batch.seq_len:
            return self
        return replace(self, batch=replace(self.batch, seq_len=self.real.longest_row))

    @property
    def blocks_on_sends(self) -> bool:
        """Whether a stage waits until what it sends has arrived."""
        return not self.execution.overlap_p2p

    @property
    def microbatches(self) -> int:
        return self.batch.microbatches(self.plan.dp)
