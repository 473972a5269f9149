"""The headline of a plan that does not fit, and the clusters and changes with which it would."""

from __future__ import annotations

from collections.abc import Sequence

from predict.memory.estimate import MemoryEstimate
from predict.memory.smallest_cluster import SmallestCluster
from predict.run.replica import Replica
from sampling.files.faults import counted
from sampling.number_text import size


def misfit(memory: MemoryEstimate, *, point_bytes: float | None = None) -> str:
    """Why a plan does not fit, in a sentence; '' if it does. `point_bytes` replaces the expected peak of the estimate."""
    peak = memory.point_bytes if point_bytes is None else point_bytes
    too_much = peak - memory.capacity_bytes
    if too_much <= 0:
        return ""
    return (
        f"{memory.run.name} needs {size(peak)} per GPU on its fullest pipeline rank, and {memory.run.cluster.gpu.name} has "
        f"{size(memory.capacity_bytes)} ({size(too_much)} too much)"
    )


def headlines(misfits: Sequence[str]) -> list[str]:
    """The first lines of a report on plans of which some do not fit; '' stands for one that does."""
    from rich.markup import escape

    return [f"[bold red]DOES NOT FIT: {escape(why)}[/]" for why in dict.fromkeys(misfits) if why]


def smallest_in_words(smallest: SmallestCluster | None, replica: Replica) -> str:
    """The smallest cluster on which a plan fits, with what makes it so large."""
    if smallest is None:
        return f"no number of nodes makes this plan fit (one replica is {counted(replica.gpus, 'GPU')})"
    at_risk = ", AT RISK there" if smallest.verdict == "AT RISK" else ""
    where = f"{counted(smallest.gpus, 'GPU')} on {counted(smallest.nodes, 'node')}"
    if smallest.dp > replica.dp:
        return f"{where} for this tp, pp and cp: dp {smallest.dp}, fewer replicas do not fit{at_risk}"
    folded = f", experts folded into it ({replica.unfolded_gpus} GPUs if they are not)" if replica.folded else ""
    return f"{where}: one replica (tp · pp · cp){folded}{at_risk}"
