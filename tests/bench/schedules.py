"""Speed of timing a schedule by name, beside an event loop over dictionaries and torch's own simulator.

python tests/bench/schedules.py
"""

import csv
import io
from collections.abc import Callable

import numpy as np
from stopwatch import best_of
from torch.distributed.pipelining import schedules as torch_schedules

import predict.schedules
from predict.schedules import registry, torch_csv
from predict.schedules.engine import program
from predict.schedules.engine.timing import ChunkTimes, makespans
from sampling.files import machine_code

RANKS, CHUNKS, MICROBATCHES = 16, 4, 256
F, B, W, P2P = 0.25, 0.25, 0.25, 0.01
SETS = 64
Op = tuple[str, int, int]


def dictionary_loop() -> float:
    """Order and event loop as one writes them first: lists of tuples, and a dictionary of ends."""
    orders = [_order(rank) for rank in range(RANKS)]
    end: dict[Op, float] = {}
    at, free = [0] * RANKS, [0.0] * RANKS
    left = sum(map(len, orders))
    while left:
        for rank, order in enumerate(orders):
            while at[rank] < len(order):
                kind, microbatch, stage = order[at[rank]]
                needed = _needed(kind, microbatch, stage)
                if needed and needed not in end:
                    break
                crosses = needed is not None and needed[2] != stage
                arrived = end[needed] + (P2P if crosses else 0.0) if needed else 0.0
                free[rank] = max(free[rank], arrived) + (F if kind == "F" else B + W)
                end[kind, microbatch, stage] = free[rank]
                at[rank] += 1
                left -= 1
    return max(free)


def _order(rank: int) -> list[Op]:
    total = MICROBATCHES * CHUNKS
    ahead = min((CHUNKS - 1) * RANKS + 2 * (RANKS - 1 - rank), total)
    forwards, backwards = [], []
    for step in range(total):
        microbatch = step // (RANKS * CHUNKS) * RANKS + step % RANKS
        chunk = step // RANKS % CHUNKS
        forwards.append(("F", microbatch, rank + chunk * RANKS))
        backwards.append(("B", microbatch, rank + (CHUNKS - 1 - chunk) * RANKS))
    order = forwards[:ahead]
    for step in range(total - ahead):
        order += [forwards[ahead + step], backwards[step]]
    return order + backwards[total - ahead :]


def _needed(kind: str, microbatch: int, stage: int) -> Op | None:
    if kind == "F":
        return ("F", microbatch, stage - 1) if stage else None
    return ("B", microbatch, stage + 1) if stage < RANKS * CHUNKS - 1 else ("F", microbatch, stage)


def ours() -> float:
    return predict.schedules.makespan(
        "interleaved-1f1b",
        ranks=RANKS,
        chunks=CHUNKS,
        microbatches=MICROBATCHES,
        forward=F,
        backward_input=B,
        backward_weight=W,
        p2p=P2P,
    )


def ours_afresh() -> float:
    registry._built.cache_clear()
    program.compile_order.cache_clear()
    program.lists.cache_clear()
    return ours()


def torch_simulator() -> Callable[[], object]:
    order = registry.order("interleaved-1f1b", ranks=RANKS, chunks=CHUNKS, microbatches=MICROBATCHES)
    table = csv.reader(io.StringIO(torch_csv.dump(order)))
    actions = {rank: [torch_schedules._Action.from_str(cell) for cell in row] for rank, row in enumerate(table)}
    stages = RANKS * CHUNKS

    def run() -> object:
        with_transfers = torch_schedules._add_send_recv(actions, lambda stage: stage % RANKS, stages)
        return torch_schedules._simulate_comms_compute(with_transfers, lambda stage: stage % RANKS, stages)

    return run


def many_sets() -> tuple[float, int]:
    order = registry.order("interleaved-1f1b", ranks=RANKS, chunks=CHUNKS, microbatches=MICROBATCHES)
    forward, backward_input, backward_weight = np.random.default_rng(0).uniform(0.2, 0.3, (3, SETS, RANKS, CHUNKS))
    times = ChunkTimes(forward=forward, backward_input=backward_input, backward_weight=backward_weight, p2p=P2P)
    makespans(order, times)
    return best_of(lambda: makespans(order, times), 5), SETS * sum(map(len, order.rows))


def main() -> None:
    assert abs(ours() - dictionary_loop()) < 1e-9
    while machine_code.numba_is_there() and not machine_code.ACCOUNT.paid:
        ours()  # Python's loop runs until numba pays
    loop = best_of(dictionary_loop, 3)
    simulator = best_of(torch_simulator(), 1)
    print(f"interleaved-1f1b, {RANKS} ranks, {CHUNKS} chunks, {MICROBATCHES} microbatches: name to makespan")
    rows = {"dictionary event loop": loop, "torch's simulator": simulator}
    rows |= {"predict, order not kept": best_of(ours_afresh, 20), "predict, order kept": best_of(ours, 20)}
    for name, seconds in rows.items():
        ratios = f"{loop / seconds:7.1f} × the loop   {simulator / seconds:9.0f} × torch's"
        print(f"  {name:26} {seconds * 1e3:9.2f} ms   {ratios}")
    seconds, actions = many_sets()
    print(f"{SETS} sets of times at once: {actions / seconds / 1e6:.0f} M actions/s")


if __name__ == "__main__":
    main()
