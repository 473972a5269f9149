"""Where the time goes: a priced call under the headings of the ledger.

A whole cell was measured, its parts were predicted: what the parts do not explain is the tensor-parallel group's
communication and waiting where the cell spans one, else the glue between operators ("other"). Where the parts cost more
than the whole (they run warm inside it), they are scaled down to it, so that headings always add up to what was priced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from predict.prices.price_list import Priced, PriceList
from predict.step.priced_block import Bucket, PricedBlock
from sampling.call import Call, Counted
from sampling.collectives.kinds import Collective

TP, P2P, DP, BUBBLE, OPTIMIZER, OTHER = "tp", "p2p", "dp_exposed", "pp_bubble", "optimizer", "other"
GLUE = "glue"
"""What sampled whole layers take beyond their operators."""
HOST = "host"
"""What launching kernels takes longer than they run."""
STRAGGLERS, OVERHEAD = "stragglers", "step_overhead"
NOT_COMPUTE = (TP, P2P, DP, BUBBLE, OPTIMIZER, OTHER)


def heading(call: Call) -> str:
    """The ledger's heading for an atomic call: its own name unless it declares another."""
    return TP if isinstance(call, Collective) else call.HEADING or call.NAME


def itemise(counted: Iterable[Counted], prices: PriceList) -> dict[str, float]:
    """µs by heading; the sum equals the calls' priced total."""
    return add_up(_itemise_one(one, prices) for one in counted)


def itemise_bucket(bucket: Bucket, prices: PriceList) -> dict[str, float]:
    """µs by heading of priced blocks; the sum equals the bucket's median."""
    return add_up(
        {name: part.count * time_us for name, time_us in _itemise_block(part.priced, prices).items()}
        for part in bucket.parts
    )


def _itemise_block(priced: PricedBlock, prices: PriceList) -> dict[str, float]:
    if priced.block.heading:
        return {priced.block.heading: priced.median_us}
    ledgers: list[dict[str, float]] = [itemise(priced.block.calls, prices)]
    if priced.glue_us:
        ledgers.append({GLUE: priced.glue_us})
    ledgers += [{each.heading: each.exposed_us} for each in priced.overlapped]
    if priced.median_us > priced.busy_us:
        ledgers.append({HOST: priced.median_us - priced.busy_us})
    return add_up(ledgers)


def add_up(ledgers: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Heading-wise sum."""
    total: dict[str, float] = {}
    for ledger in ledgers:
        for name, time_us in ledger.items():
            total[name] = total.get(name, 0.0) + time_us
    return total


def _itemise_one(one: Counted, prices: PriceList) -> dict[str, float]:
    total_us = sum(unit.total_us for unit in prices.priced([one]))
    parts = () if one.call.HEADING else prices.parts(one)
    if not parts:
        return {heading(one.call): total_us}
    return _explain(total_us, parts)


def _explain(total_us: float, parts: Iterable[Priced]) -> dict[str, float]:
    ledger = add_up({heading(part.call): part.total_us} for part in parts)
    communication_us = ledger.pop(TP, None)
    compute_us = sum(ledger.values())
    rest = OTHER if communication_us is None else TP
    if compute_us <= total_us:
        return {**ledger, rest: total_us - compute_us}
    return {name: time_us * total_us / compute_us for name, time_us in ledger.items()}
