"""The shortest possible zero-bubble step, proved by a constraint solver: for small cases only."""

from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

KINDS = ("F", "B", "W")


@dataclass(frozen=True, kw_only=True)
class Case:
    """Whole numbers of time by rank; `limit` in activations, half of one let go by B and half by W."""

    microbatches: int
    forward: Sequence[int]
    backward_input: Sequence[int]
    backward_weight: Sequence[int]
    p2p: int
    limit: int

    @property
    def ranks(self) -> int:
        return len(self.forward)


def optimal_makespan(case: Case) -> int:
    """The shortest makespan of any order with microbatches in sequence; AssertionError if the solver cannot prove it in time."""
    model = cp_model.CpModel()
    costs = dict(zip(KINDS, (case.forward, case.backward_input, case.backward_weight), strict=True))
    horizon = case.microbatches * sum(map(sum, costs.values())) + 2 * case.ranks * case.p2p
    start, end, every = {}, {}, range(case.microbatches)
    for rank in range(case.ranks):
        busy = []
        for kind in KINDS:
            for microbatch in every:
                key = kind, rank, microbatch
                start[key] = model.new_int_var(0, horizon, f"start {key}")
                end[key] = model.new_int_var(0, horizon, f"end {key}")
                busy.append(model.new_interval_var(start[key], costs[kind][rank], end[key], f"{key}"))
        model.add_no_overlap(busy)
    for rank in range(case.ranks):
        for microbatch in every:
            if rank:
                model.add(start["F", rank, microbatch] >= end["F", rank - 1, microbatch] + case.p2p)
            if rank < case.ranks - 1:
                model.add(start["B", rank, microbatch] >= end["B", rank + 1, microbatch] + case.p2p)
            else:
                model.add(start["B", rank, microbatch] >= end["F", rank, microbatch])
            model.add(start["W", rank, microbatch] >= end["B", rank, microbatch])
            if microbatch:
                for kind in KINDS:
                    model.add(start[kind, rank, microbatch] >= end[kind, rank, microbatch - 1])
        events = [start["F", rank, m] for m in every] + [end[kind, rank, m] for kind in ("B", "W") for m in every]
        changes = [2] * case.microbatches + [-1] * 2 * case.microbatches
        model.add_reservoir_constraint(events, changes, 0, 2 * case.limit)
    makespan = model.new_int_var(0, horizon, "makespan")
    for rank in range(case.ranks):
        model.add(makespan >= end["W", rank, case.microbatches - 1])
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = 0
    solver.parameters.max_time_in_seconds = 60
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)
