"""GPUs of a run by their global ranks, and the members of their groups, in Megatron's order: tp, cp, dp, pp."""

from __future__ import annotations

from dataclasses import dataclass

from predict.run.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A GPU: its pipeline rank, and its place among the GPUs of that."""

    plan: Plan
    pipeline_rank: int
    local: int

    @property
    def gpu(self) -> int:
        return self.pipeline_rank * self._block + self.local

    @property
    def _block(self) -> int:
        return self.plan.tp * self.plan.cp * self.plan.dp

    def at(self, pipeline_rank: int) -> int:
        """The GPU of another pipeline rank with which it exchanges activations."""
        return pipeline_rank * self._block + self.local

    def group(self, name: str, ranks: int) -> tuple[int, ...]:
        """The members of its group of this name (`predict.workload.rank.groups`) and size; all GPUs of its pipeline rank for a
        name that is none, as that of clipping."""
        strides = self._strides()
        if name not in strides or ranks == 1:
            return tuple(self.pipeline_rank * self._block + each for each in range(self._block))
        stride = strides[name]
        first = self.local - (self.local // stride) % ranks * stride
        return tuple(self.pipeline_rank * self._block + first + stride * each for each in range(ranks))

    def _strides(self) -> dict[str, int]:
        plan = self.plan
        experts, replicas = plan.etp * plan.ep, plan.cp * plan.dp
        shard = plan.shard or replicas
        expert_shard = max(1, max(1, self._block // experts) // (replicas // shard))
        return {
            "tp": 1,
            "cp": plan.tp,
            "dp": plan.tp,
            "shard": plan.tp,
            "copies": plan.tp * shard,
            "etp": 1,
            "ep": plan.etp,
            "expert dp": experts,
            "expert shard": experts,
            "expert copies": experts * expert_shard,
        }
