"""The same run on another number of nodes: more or fewer replicas share the same global batch."""

from __future__ import annotations

from predict.run.training_run import TrainingRun
from sampling.errors import ConfigError

NAMED = 2
"""Node counts, below and above, that an error offers."""


def settings_for_nodes(run: TrainingRun, nodes: int) -> list[str]:
    """The settings that put a run on another number of nodes. ConfigError if its ranks or its batch do not divide."""
    if nodes < 1:
        raise ConfigError(f"--target-nodes: {nodes} is not a positive number; give 1 or more")
    reason = _why_not(run, nodes)
    if reason:
        fitting = _nearest(run, nodes)
        offer = f"give {' or '.join(map(str, fitting))}" if fitting else "no number of nodes does; change plan or batch"
        raise ConfigError(f"--target-nodes: {nodes}: {reason}; {offer}")
    return [f"cluster.nodes={nodes}", f"plan.dp={nodes * run.cluster.gpus_per_node // _model_ranks(run)}"]


def _model_ranks(run: TrainingRun) -> int:
    return run.plan.tp * run.plan.pp * run.plan.cp


def _why_not(run: TrainingRun, nodes: int) -> str:
    plan, batch = run.plan, run.batch
    ranks, world = _model_ranks(run), nodes * run.cluster.gpus_per_node
    if world % ranks:
        return f"{world} ranks are not a multiple of tp · pp · cp = {ranks}"
    dp = world // ranks
    if plan.tp * plan.cp * dp % (plan.ep * plan.etp):
        return f"ep · etp = {plan.ep * plan.etp} does not divide the tp · cp · dp = {plan.tp * plan.cp * dp} ranks of a stage"
    if batch.global_ % (batch.micro * dp):
        return (
            f"batch.global = {batch.global_} is not a multiple of batch.micro · dp = {batch.micro} · {dp} (or, with --set "
            f"batch.global={_multiple(batch.global_, batch.micro * dp)}, it is)"
        )
    return ""


def _multiple(value: int, of: int) -> int:
    return max(1, round(value / of)) * of


def _nearest(run: TrainingRun, nodes: int) -> list[int]:
    """The nearest fitting node counts below and above, at most NAMED of each; a replica count divides batch.global / micro."""
    ranks, per_node, sequences = _model_ranks(run), run.cluster.gpus_per_node, run.batch.global_ // run.batch.micro
    counts = {
        ranks * dp // per_node for dp in range(1, sequences + 1) if sequences % dp == 0 and ranks * dp % per_node == 0
    }
    fitting = sorted(count for count in counts if not _why_not(run, count))
    below, above = [count for count in fitting if count < nodes], [count for count in fitting if count > nodes]
    return [*below[-NAMED:], *above[:NAMED]]
