"""Priced blocks: the time of a block, at its median and with each kind of call at its bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from predict.interval import Interval, from_shifts, sum_of_calls
from predict.prices.conditions import CONTENTION_SLOWDOWN, is_of_products
from predict.prices.kernels.memory_bound import Time, joined_us
from predict.prices.price_list import Priced, Prices
from predict.prices.published_constants import CONSTANTS
from predict.rank.blocks import Block, Blocks, Calls, Launching, OverlappedCommunication
from predict.rank.exchanges import FSDP
from predict.run.training_run import TrainingRun
from regressors.bank.times import Times
from regressors.dataset.device_facts import LAUNCH_NORM
from regressors.features.arrays import Floats
from sampling.arithmetic.arrays import smaller
from sampling.call import Call
from sampling.collectives.kinds import Collective, TokenExchange
from sampling.hardware.hardware_file import Activity
from sampling.operators.host import HostCopy

EXCHANGE_MULTIPROCESSORS: Mapping[str, int] = {"deepep": 20, "hybridep": 16}
"""Multiprocessors that a dispatcher's kernels take while tokens travel (Megatron-Core, transformer_config.py: moe_deepep_num_sms and
moe_hybridep_num_sms); the others' exchange is NCCL's."""


def exposed_us(
    communication_us: Time,
    hidden_us: Time,
    *,
    contention_slowdown: float = CONTENTION_SLOWDOWN,
    exposed_time: float = 1.0,
) -> Time:
    """Time in µs that communication adds to work which hides some of it.

    While a collective runs at the same time as kernels, it takes multiprocessors and memory bandwidth from them, so that hidden
    communication still costs a share of its time: the contention slowdown (`predict.prices.conditions`).
    Never less than the communication that is longer than the work, unless a calibration says so: `exposed_time`, its factor,
    changes what is exposed of partly hidden communication, and never beyond all of it.
    """
    exposed = communication_us - hidden_us * (1.0 - contention_slowdown)
    return exposed if exposed_time == 1.0 else least(communication_us, exposed * exposed_time)


def least(one: Time, other: Time) -> Time:
    """The smaller of the two; 0 where that is negative."""
    shorter: Time = smaller(one, other)
    return np.maximum(shorter, 0.0) if isinstance(shorter, np.ndarray) else max(shorter, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contention:
    """Contention slowdowns of a run. An exchange of tokens by a library other than NCCL takes `of_exchange`, the share of the
    multiprocessors that its kernels have. For NCCL's collectives the `sampled` one counts where there is one; else the framework's
    for weights and gradients that are sharded layer by layer (`of_sharding`), and the prior for the others."""

    sampled: float | None
    of_sharding: float
    of_exchange: float
    gpus_per_node: int
    network_share: float = 1.0
    exposed_time: float = 1.0
    """Factor on what is exposed of overlapped communication, from a calibration."""

    def slowdown(self, heading: str, communication: Iterable[tuple[Call, float]]) -> float:
        """The slowdown during calls under a heading of the ledger, each with its time in µs."""
        of_calls = [(self._of_call(heading, call), time_us) for call, time_us in communication]
        total_us = sum(time_us for _, time_us in of_calls)
        return sum(slowdown * time_us for slowdown, time_us in of_calls) / total_us if total_us else 0.0

    def _of_call(self, heading: str, call: Call) -> float:
        if isinstance(call, TokenExchange):
            return self.of_exchange
        if isinstance(call, HostCopy):
            return 0.0  # copy engines take no multiprocessors, and a few percent of the memory's bandwidth
        if self.sampled is not None:
            return self.sampled
        return self.of_sharding * self._channels(call) if heading == FSDP else CONTENTION_SLOWDOWN

    def _channels(self, call: Call) -> float:
        """Share of NCCL's usual channels, which are multiprocessors, that a group takes: between nodes it builds them for each of
        the network cards that its ranks have (NCCL, src/graph/search.cc)."""
        if not isinstance(call, Collective) or call.ranks <= call.ranks_per_node:
            return 1.0
        return self.network_share * call.ranks_per_node / self.gpus_per_node


def contention_of(run: TrainingRun, sampled: float | None) -> Contention:
    """The contention slowdowns of a run, `sampled` by its profile or None."""
    gpu = run.cluster.gpu
    taken = EXCHANGE_MULTIPROCESSORS.get(run.execution.dispatch, 0)
    return Contention(
        sampled=sampled,
        of_sharding=run.execution.sharding_contention,
        of_exchange=min(1.0, taken / gpu.multiprocessors),
        gpus_per_node=run.cluster.gpus_per_node,
        network_share=run.cluster.network_share,
        exposed_time=run.execution.exposed_time,
    )


Units = tuple[Priced, ...]
MOST_GLUE = 0.5
"""Bound of the glue, as a share of the layer's parts; what a sampled layer takes beyond is noise, or another kernel."""
MOST_KNOWN = 4096
"""Pieces whose prices are kept, the latest used, some 10 MB; a plan has some thirty."""
KEPT_LISTS = 16
Piece = TypeVar("Piece")
Made = TypeVar("Made")
Value = Callable[[Units], Floats]
"""Time of a sequence of calls in each of many cases, shape (cases,)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PricedOverlap:
    """Communication and the work that may hide it."""

    of: OverlappedCommunication
    communication: Units
    work: Units
    contention_slowdown: float
    exposed_time: float
    exposed_us: float = 0.0
    """What nothing hides, beside all other communication of its block."""

    @property
    def links(self) -> set[bool]:
        """Whether its messages cross nodes: those that do are on other links than those that do not."""
        calls = (unit.call for unit in self.communication)
        return {call.ranks > call.ranks_per_node for call in calls if isinstance(call, Collective)}

    def exposed(self, communication_us: Time, hidden_us: Time) -> Time:
        return exposed_us(
            communication_us,
            hidden_us,
            contention_slowdown=self.contention_slowdown,
            exposed_time=self.exposed_time if self.of.share else 1.0,
        )


def exposures_us(overlapped: Sequence[PricedOverlap], times_us: Sequence[tuple[Time, Time]]) -> list[Time]:
    """The time that each piece of a block's communication adds to it, from the times of each and of the work that may hide it.

    Work hides no more than it lasts, whatever runs beside it: what hides behind the least work comes first, and leaves the rest to
    the others. What was begun ahead hides behind all that takes the block's time while its own links are free: its work, and waiting
    for messages on other links.
    """
    hidden: dict[int, Time] = {}
    exposed: dict[int, Time] = {}
    for place in sorted(range(len(overlapped)), key=lambda place: len(overlapped[place].work)):
        each, (communication_us, work_us) = overlapped[place], times_us[place]
        if each.of.ahead and each.of.share:
            links = each.links
            elsewhere = [other for other in exposed if links.isdisjoint(overlapped[other].links)]
            taken_us = sum(hidden[other] for other in exposed if other not in elsewhere)
            room_us = work_us - taken_us + sum(exposed[other] for other in elsewhere)
        else:
            taken_us = sum(hidden[other] for other in each.of.shares_with if other in hidden)
            room_us = least(work_us * each.of.share, work_us - taken_us)
        hidden[place] = least(communication_us * each.of.most, room_us)
        exposed[place] = each.exposed(communication_us, hidden[place])
    return [exposed[place] for place in range(len(overlapped))]


@dataclass(frozen=True, kw_only=True, eq=False)
class PricedBlock:
    """A block with its calls priced. `busy_us` is the time of its kernels and the glue between them; `median_us` is no shorter
    than `floor`, which the host needs to launch them; None where that bounds nothing."""

    block: Block
    units: Units
    overlapped: tuple[PricedOverlap, ...]
    glue_us: float
    busy_us: float
    floor: Times | None
    median_us: float

    def value(self, of: Value, floors: Floats) -> Floats:
        """The block's time in each case; `floors`, shape (cases,), are factors on the host's launch floor."""
        busy = of(self.units) + self.glue_us
        times = [(of(each.communication), of(each.work)) for each in self.overlapped]
        for exposed in exposures_us(self.overlapped, times):
            busy = busy + exposed
        if self.floor is None:
            return busy
        return launched_us(busy, self.floor.median_us * floors, synchronous=self.block.synchronous)

    @cached_property
    def by_source_us(self) -> dict[str, float]:
        """µs by source."""
        found: dict[str, float] = {self.floor.source: self.median_us - self.busy_us} if self.floor else {}
        for unit in self.units:
            found[unit.time.source] = found.get(unit.time.source, 0.0) + unit.total_us
        for each in self.overlapped:
            whole_us = total_us(each.communication)
            for unit in each.communication:
                exposed = each.exposed_us / whole_us if whole_us else 0.0
                found[unit.time.source] = found.get(unit.time.source, 0.0) + exposed * unit.total_us
        return found

    @cached_property
    def by_activity_us(self) -> Mapping[Activity, float]:
        """µs by what the board does; of communication what nothing hides."""
        of_products = sum(unit.total_us for unit in self.units if is_of_products(unit.call))
        of_messages = sum(unit.total_us for unit in self.units if isinstance(unit.call, Collective))
        exposed = sum(each.exposed_us for each in self.overlapped)
        return {
            "products": of_products,
            "memory": self.busy_us - of_products - of_messages - exposed,
            "communication": of_messages + exposed,
            "waiting": self.median_us - self.busy_us,
        }

    def all_units(self) -> Iterator[Priced]:
        yield from self.units
        for each in self.overlapped:
            yield from each.communication


@dataclass(frozen=True, slots=True)
class RepeatedBlock:
    """A priced block and how often it runs."""

    priced: PricedBlock
    count: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Bucket:
    """Priced blocks that run one after the other, and their sum."""

    blocks: tuple[RepeatedBlock, ...] = ()
    median_us: float = 0.0

    def __add__(self, other: Bucket) -> Bucket:
        if not other.blocks:
            return self
        return Bucket(blocks=self.blocks + other.blocks, median_us=self.median_us + other.median_us)


EMPTY = Bucket()


@dataclass(slots=True)
class BlockPrices:
    """Prices pieces of work, each once: blocks, calls that overlap with nothing, and what is made of them."""

    prices: Prices
    contention: Contention
    _known: dict[int, tuple[object, Any]] = field(default_factory=dict)
    """By the id of a piece: itself, and what was made of it."""

    def bucket(self, blocks: Blocks) -> Bucket:
        repeated = tuple([RepeatedBlock(self.once(each.block, self._price), each.count) for each in blocks])
        return Bucket(blocks=repeated, median_us=sum([each.count * each.priced.median_us for each in repeated]))

    def of_calls(self, calls: Calls) -> Bucket:
        """The bucket of calls that overlap with nothing."""
        return self.once(calls, self._price_calls) if calls else EMPTY

    def _price_calls(self, calls: Calls) -> Bucket:
        priced = self._price(Block(calls=calls))
        return Bucket(blocks=(RepeatedBlock(priced, 1.0),), median_us=priced.median_us)

    def knows(self, piece: object) -> bool:
        return id(piece) in self._known

    def once(self, piece: Piece, price: Callable[[Piece], Made]) -> Made:
        """The result of `price` for a piece of work, once for the same object."""
        # the piece is kept with it, so that its id stays its own
        kept = self._known.pop(id(piece), None) or (piece, price(piece))
        self._known[id(piece)] = kept  # now the latest
        if len(self._known) > MOST_KNOWN:
            self._known.pop(next(iter(self._known)), None)
        made: Made = kept[1]
        return made

    def _glue_us(self, block: Block) -> float:
        """Time of a sampled layer of the same widths beyond its parts; 0 where none was sampled, the prior that published runs of
        Megatron on A100 support."""
        glue_us = self.prices.glue_us(block.whole) if block.whole else None
        return 0.0 if glue_us is None else _bounded(glue_us, total_us(self.prices.parts(block.whole)))  # type: ignore[arg-type]

    def _floor(self, launching: Launching) -> Times:
        """The launch floor. A sampled time is a dense layer's: it comes before the setting that holds for any layer, and what a
        mixture launches besides is added to it. A stated one counts as analytic."""
        sampled = self.prices.launch_floors.get(launching.phase) if launching.any_layer_us else None
        parts = [sampled or _stated_floor(launching.any_layer_us), _stated_floor(launching.mixture_us)]
        whole = sum_of_calls(map(Interval.of, parts)).scaled(launching.share)
        return whole.as_times("measured" if sampled and launching.as_sampled else "analytic")

    def _overlap(self, each: OverlappedCommunication) -> PricedOverlap:
        communication = self.prices.priced(each.communication)
        return PricedOverlap(
            of=each,
            communication=communication,
            work=self.prices.priced(each.work),
            contention_slowdown=self.contention.slowdown(
                each.heading, ((unit.call, unit.total_us) for unit in communication)
            ),
            exposed_time=self.contention.exposed_time,
        )

    def _price(self, block: Block) -> PricedBlock:
        units = self.prices.priced(block.calls)
        overlapped = _exposed([self._overlap(each) for each in block.overlapped])
        glue_us = max(self._glue_us(block), -MOST_GLUE * total_us(units))
        busy_us = total_us(units) + glue_us + sum(each.exposed_us for each in overlapped)
        floor = self._floor(block.launching) if block.launching else None
        return PricedBlock(
            block=block,
            units=units,
            overlapped=overlapped,
            glue_us=glue_us,
            busy_us=busy_us,
            floor=floor,
            median_us=launched_us(busy_us, floor.median_us, synchronous=block.synchronous) if floor else busy_us,
        )


def _exposed(overlapped: Sequence[PricedOverlap]) -> tuple[PricedOverlap, ...]:
    """A block's communication with the part of each that nothing hides."""
    times = [(total_us(each.communication), total_us(each.work)) for each in overlapped]
    return tuple(
        replace(each, exposed_us=us) for each, us in zip(overlapped, exposures_us(overlapped, times), strict=True)
    )


def block_prices(run: TrainingRun, prices: Prices) -> BlockPrices:
    """The prices of a run's blocks, among which are those of earlier runs at the same prices."""
    contention = contention_of(run, prices.sampled_contention)
    for kept in tuple(_kept):
        if kept.prices is prices and kept.contention == contention:
            return kept
    made = BlockPrices(prices, contention)
    _kept.insert(0, made)
    del _kept[KEPT_LISTS:]
    return made


_kept: list[BlockPrices] = []


def _bounded(glue_us: float, parts_us: float) -> float:
    return max(-MOST_GLUE * parts_us, min(MOST_GLUE * parts_us, glue_us))


def _stated_floor(floor_us: float) -> Times:
    width_us = CONSTANTS["LAUNCH_FLOOR_WIDTH"].value * floor_us
    return from_shifts(floor_us, below=[width_us], above=[width_us]).as_times("analytic")


def launched_us(busy_us: Time, floor_us: Time, *, synchronous: bool = False) -> Time:
    """Time of kernels that run for `busy_us` and that the host launches in `floor_us`: the sum where the launches are synchronous;
    else the longer of the two, and a little more where they are close, since some kernels are shorter than their launches and
    others longer."""
    if synchronous:
        return busy_us + floor_us
    return joined_us(busy_us, floor_us, LAUNCH_NORM)


def total_us(units: Iterable[Priced]) -> float:
    return sum(unit.total_us for unit in units)
