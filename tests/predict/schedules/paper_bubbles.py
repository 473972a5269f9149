"""Our bubble rates with the profiled times of the zero-bubble paper."""

from predict.schedules import registry
from predict.schedules.engine.timing import ChunkTimes, simulate

MEASURED_BY_SPAN = ("zb-h2", "zb-auto")
"""The paper divides by the longest span of a rank for these, and by the makespan for the others."""


def bubble_of(name: str, counts: tuple[int, int, int], profiled_us: tuple[float, float, float, float]) -> float:
    """Our bubble rate of a schedule with the paper's profiled times."""
    ranks, microbatches, layers = counts
    chunks = layers // ranks if name == "interleaved-1f1b" else 1
    forward, backward_input, backward_weight = (time_us / chunks for time_us in profiled_us[:3])
    times = ChunkTimes(
        forward=forward, backward_input=backward_input, backward_weight=backward_weight, p2p=profiled_us[3]
    )
    if name.startswith("zb-auto"):
        limit = int(name[-2]) * ranks
        order = registry.order(
            "zb-auto", ranks=ranks, chunks=1, microbatches=microbatches, times=times, memory_limit=limit
        )
    else:
        order = registry.order(name, ranks=ranks, chunks=chunks, microbatches=microbatches)
    timeline = simulate(order, times)
    return float(timeline.span_bubble_fraction if name.startswith(MEASURED_BY_SPAN) else timeline.bubble_fraction)
