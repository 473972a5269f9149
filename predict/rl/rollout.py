"""Generation: rounds of samples divided among engines, each simulated step by step by the scheduler of servers, and what bounds it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import NamedTuple

import numpy as np

from predict.interval import Interval
from predict.rl.config import RlRun, rollout_engine
from predict.rl.phases import RESPONSES, TAIL, Phase, plus
from predict.rl.plain_torch import decode_batches, decode_calls, decode_keys, plain_steps, sources_of_decode
from predict.rl.section import ASYNC, CHUNKS, RlSection, Samples
from predict.rl.training import laid_out_pass, mfu_of_phase
from predict.serving.batch import Chunk, StepBatch
from predict.serving.kernels import step_kernels
from predict.serving.kv_cache import BlockPool, CacheRoom, cache_room
from predict.serving.server import EngineSettings, Server, ServerPlacement
from predict.serving.simulate import Served, serve
from predict.serving.step_table import StepTable
from predict.serving.stepper import BOUND, Stepper, stepper
from predict.serving.traffic import MOST_REQUESTS, Traffic
from regressors.features.arrays import Floats, Ints
from sampling.arithmetic.operator import Operator
from sampling.call import Counted
from sampling.errors import InfeasibleError, UserError
from sampling.hardware.cluster import Cluster, Gpu
from sampling.number_text import count

FILLING, MEASURED = 3, 3
"""The fewest steps until responses are at every stage of theirs when new weights come, and of those whose times are averaged."""
ROUNDING = 1e-9
COLUMNS = ("prompt", "output", "shared", "group")
"""Columns of traffic apart from arrivals."""


def filling(ahead: float) -> int:
    """Steps until responses are at every stage of theirs: those that begin together end over 1 + `ahead` steps."""
    return FILLING + ceil(ahead)


def steps_run(ahead: float) -> int:
    """Steps of an engine that are simulated, a whole round of 1 + `ahead` of them after the filling."""
    return filling(ahead) + max(MEASURED, 1 + ceil(ahead))


def steps_needed(ahead: float) -> int:
    """Steps of responses that an engine is given."""
    return steps_run(ahead) + ceil(ahead)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Steady:
    """Generation in the steady state."""

    per_response_us: float
    """µs per response that an engine ends."""
    served: Served
    """Its responses from the last sync on, served to their ends as if no other sync came."""
    ends_us: Floats
    """Ends of the responses that the last step waited for, ascending."""


def steady(engine: EngineSettings, pool: BlockPool, table: StepTable, stream: Traffic, ahead: float) -> Steady:
    """The steps of an engine that is given the responses of `steps_needed` steps, 1 + `ahead` of them at once.

    A step ends when as many responses have ended as it has; those that are not done go on in the next one, their cache
    computed again from their tokens, as it was of the old weights.
    """
    of_step = len(stream) / steps_needed(ahead)  # a fraction where engines do not divide the responses
    steps: list[_Step] = []
    unfinished: Traffic | None = None
    given = ended = 0
    for step in range(steps_run(ahead)):
        before, given = given, max(given, _whole((step + 1 + ahead) * of_step))
        unfinished = _together(unfinished, _chosen(stream, np.arange(before, given)))
        needed = _whole((step + 1) * of_step) - ended
        if needed <= 0 or unfinished is None:
            continue  # they ended together with those of the step before
        served = serve(engine, pool, table, unfinished)
        ends_us = np.sort(served.last_us)[:needed]
        of_this = int((served.last_us <= ends_us[-1]).sum())
        ended += of_this
        unfinished = _interrupted(served, float(ends_us[-1]))
        steps.append(_Step(number=step, ended=of_this, served=served, ends_us=ends_us))
    measured = [one for one in steps if one.number >= filling(ahead)]
    per_response_us = sum(float(one.ends_us[-1]) for one in measured) / sum(one.ended for one in measured)
    return Steady(per_response_us=per_response_us, served=steps[-1].served, ends_us=steps[-1].ends_us)


class _Step(NamedTuple):
    """One step of an engine."""

    number: int
    ended: int
    """Responses that end in it: more than it waits for where several end together."""
    served: Served
    ends_us: Floats


def engines_together(streams: Sequence[Traffic], of_engine: Callable[[Traffic], Steady]) -> tuple[float, Steady]:
    """µs per response that an engine ends on average, and the slowest of some engines, from those with the fewest tokens to those with
    the most: a trainer takes responses from one queue, whichever engine ends them (verl, experimental/fully_async_policy/
    fully_async_trainer.py, `_get_samples_from_queue`), so that the engines' rates add up."""
    by_tokens = sorted(streams, key=lambda one: int(one.output.sum()))
    places = np.linspace(0, len(streams) - 1, min(MOST_SIMULATED, len(streams))).round().astype(int)
    found = [of_engine(by_tokens[place]) for place in places]
    slowest = max(found, key=lambda one: one.per_response_us)
    return len(found) / sum(1 / one.per_response_us for one in found), slowest


def _whole(count: float) -> int:
    """Whole responses; the `count` are a part of them."""
    return ceil(count - ROUNDING)


def _chosen(traffic: Traffic, places: Ints) -> Traffic | None:
    """The requests at these places, all there at the start; None for no place."""
    return _at_once({name: getattr(traffic, name)[places] for name in COLUMNS}) if len(places) else None


def _together(first: Traffic | None, second: Traffic | None) -> Traffic | None:
    """Requests of both, the first before the others."""
    if first is None or second is None:
        return first or second
    return _at_once({name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in COLUMNS})


def _at_once(columns: Mapping[str, Ints]) -> Traffic:
    return Traffic(
        arrival_us=np.zeros(len(columns["prompt"])),
        prompt=columns["prompt"],
        output=columns["output"],
        shared=columns["shared"],
        group=columns["group"],
    )


def _interrupted(served: Served, at_us: float) -> Traffic | None:
    """The requests that have not ended at a time, with the tokens that they have made among those of their prompts."""
    late = np.flatnonzero(served.last_us > at_us)
    rest = _chosen(served.traffic, late)
    if rest is None:
        return None
    first, last = served.first_us[late], served.last_us[late]
    share = np.clip((at_us - first) / np.maximum(last - first, ROUNDING), 0.0, 1.0)
    made = np.where(first > at_us, 0, np.minimum(1 + share * (rest.output - 1), rest.output - 1)).astype(np.int64)
    return replace(rest, prompt=rest.prompt + made, output=rest.output - made)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """Rounds of sampling for one step, in shares of its prompts."""

    share: float
    """Prompts of one round."""
    count: float
    """Rounds. Engines of their own sample on without a round's end, so their number need not be whole."""

    @property
    def generated(self) -> float:
        """Prompts of all rounds."""
        return self.share * self.count


def rounds_of(section: RlSection) -> Rounds:
    """The rounds until the expected number of kept prompts fills a step."""
    kept = section.rollout.kept_share
    share = (section.rollout.round_prompts or section.prompts) / section.prompts
    needed = 1 / (share * kept)
    return Rounds(share=share, count=needed if section.placement == ASYNC else ceil(needed - 1e-9))


MOST_SIMULATED = 8
"""Engines that are simulated: those with the most tokens and the longest responses, since one of these ends last."""
BEFORE_TAIL, LONG = 0.9, 0.5
"""A phase is bound by its tail where the last tenth of the responses takes more than half of the time."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rollout:
    """The generation of a step on the engine that ends last."""

    time: Interval
    replicas: int
    room: CacheRoom
    served: Served
    ends_us: Floats
    """Ends of the engine's responses that the time waits for, ascending."""
    bound_by: str
    """Name of what most of the engine's mean step goes to: compute, memory, communication or host."""
    sources: Mapping[str, float]
    """Source of the kernels' times → its share of a usual step of the engine."""

    @property
    def tail_share(self) -> float:
        """Share of the time after nine tenths of the engine's responses have ended."""
        return float(1 - self.ends_us[int(BEFORE_TAIL * (len(self.ends_us) - 1))] / self.ends_us[-1])

    @property
    def kv_share(self) -> float:
        """Largest share of the cache in use."""
        return self.served.most_blocks / self.room.blocks


def rollout_server(rl: RlRun) -> Server:
    """One engine on its GPUs."""
    given = rl.section.rollout
    placed = ServerPlacement(
        tp=given.tp,
        expert_parallel=given.expert_parallel,
        precision=given.precision,
        kv_precision="fp32" if given.precision == "fp32" else "bf16",
    )
    return Server(
        model=rl.base.model,
        cluster=_of_engine(rl.base.cluster, given.tp),
        placement=placed,
        engine_name=given.engine,
        engine=rollout_engine(rl.section, rl.base.cluster.gpu),
        speculation=given.speculation,
        draft=rl.draft,
    )


def _of_engine(cluster: Cluster, gpus: int) -> Cluster:
    """The machines of one engine: a part of a node, or several nodes."""
    per_node = min(gpus, cluster.gpus_per_node)
    return cluster.on_fewer(nodes=-(-gpus // per_node), gpus_per_node=per_node)


def rollout_of(rl: RlRun) -> Rollout:
    """Simulate the generation of a step. InfeasibleError where an engine's cache does not hold a response.

    With `async`, engines stay busy with the samples of the next `staleness` steps while the last responses of one end: a step's
    time is its share of the whole stream's.
    """
    try:
        return _simulated(rl)
    except InfeasibleError as error:
        raise InfeasibleError(str(error).replace("placement.tp", "rl.rollout.tp")) from None


def _simulated(rl: RlRun) -> Rollout:
    server, rollout = rollout_server(rl), rl.section.rollout
    steps = None if rl.in_plain_torch else stepper(server, rollout.step_model)
    (table, factors_at), room = _steps(rl, server, steps), cache_room(server)
    shares = rounds_of(rl.section)
    ahead = rl.section.staleness if rl.section.placement == ASYNC else 0.0
    replicas = rl.rollout_gpus // server.tp
    if rollout.partial:
        streams = _streams(rl, replicas, steps_needed(ahead))
        per_response_us, slowest = engines_together(
            streams, partial(steady, server.engine, room.pool, table, ahead=ahead)
        )
        of_step, last, ends = per_response_us * rl.section.samples / replicas, slowest.served, slowest.ends_us
    else:
        last = _slowest(server.engine, room, table, _streams(rl, replicas, shares.share * (ahead + 1)))
        ends = np.sort(last.last_us)
        of_step = float(ends[-1]) / (ahead + 1) / shares.share
    return Rollout(
        time=factors_at(mean_batch(server, last)).scaled(of_step * shares.generated),
        replicas=replicas,
        room=room,
        served=last,
        ends_us=ends,
        bound_by=bound_by(rl, steps, server, last),
        sources=steps.sources(mean_batch(server, last)) if steps else sources_of_decode(rl),
    )


def _steps(rl: RlRun, server: Server, steps: Stepper | None) -> tuple[StepTable, Callable[[StepBatch], Interval]]:
    """The times of an engine's steps, and the interval of a batch's as factors; without `steps` those of plain torch."""
    if steps:
        return steps.table, steps.factors_at
    table, factors = plain_steps(rl, server.engine.max_num_batched_tokens)
    return table, lambda batch: factors


def _streams(rl: RlRun, replicas: int, steps: float) -> list[Traffic]:
    """The requests of each engine, all there at the start, of `steps` steps."""
    samples, n = rl.samples, rl.section.n
    of_step = len(samples.prompt)
    if steps * of_step > MOST_REQUESTS:
        raise UserError(
            f"rl.prompts: the engines generate {count(steps * of_step)} responses for a step, more than the {MOST_REQUESTS:,} that are simulated; "
            "give fewer, or a smaller rl.n, rl.staleness or rl.rollout.round_prompts"
        )
    places = np.arange(round(steps * of_step))
    chunked = rl.section.rollout.dispatch == CHUNKS
    engine = places % of_step * replicas // of_step if chunked else places % replicas
    return [_traffic(samples, n, places[engine == each]) for each in np.unique(engine)]


def _traffic(samples: Samples, n: int, places: Ints) -> Traffic:
    """The requests at these places of the stream of steps; responses to one prompt share it."""
    of_step = places % len(samples.prompt)
    prompt = samples.prompt[of_step]
    return Traffic(
        arrival_us=np.zeros(len(places)),
        prompt=prompt,
        output=samples.response[of_step],
        shared=prompt.copy(),
        group=np.unique(places // n, return_inverse=True)[1],
    )


def _slowest(engine: EngineSettings, room: CacheRoom, table: StepTable, streams: Sequence[Traffic]) -> Served:
    """The stream that ends last, of those with the most tokens and those with the longest responses."""
    by_tokens = sorted(streams, key=lambda one: -int(one.output.sum()))
    by_longest = sorted(streams, key=lambda one: -int(one.output.max()))
    chosen = {id(one): one for one in [*by_tokens[: MOST_SIMULATED // 2], *by_longest[: MOST_SIMULATED // 2]]}
    served = [serve(engine, room.pool, table, one) for one in chosen.values()]
    return max(served, key=lambda one: float(one.last_us.max()))


def gen_phase(rl: RlRun, rollout: Rollout) -> Phase:
    """The phase of a rollout. Its FLOPs are a forward pass over prompts and responses, those that dynamic sampling drops included."""
    section, gpus = rl.section, rl.rollout_gpus
    run = laid_out_pass(rl.base, section, rl.samples.sequences.tolist(), micro=1, max_tokens=0)
    generated = rounds_of(section).generated
    tail_us = rollout.tail_share * rollout.time.median_us
    return Phase(
        name="gen",
        time=rollout.time,
        gpus=gpus,
        bound_by="long tail" if rollout.tail_share > LONG else rollout.bound_by,
        mfu=mfu_of_phase(run, rollout.time.median_us, gpus=gpus, passes=generated, forward_only=True),
        parts=plus({RESPONSES: rollout.time.median_us - tail_us}, {TAIL: tail_us}),
        sources=rollout.sources,
    )


COMPUTE, MEMORY = "compute", "memory"
OF_TERMS: Mapping[str, Sequence[str]] = {
    COMPUTE: ("beta1", "beta2"),
    MEMORY: ("elementwise", "beta3"),
    "communication": ("all_reduce",),
    "host": ("layer", "step", "request", "launches", "beta4", "beta5"),
}
"""Bound of a step → the terms of a server's step models that count towards it in full; each term of BOUND counts
towards the bound of its own kernels."""


def mean_batch(server: Server, served: Served) -> StepBatch:
    """The batch of a step with as many decodes, over as many cached tokens, and as many prompt tokens as the engine's have on average."""
    decodes = max(1, round(served.mean_requests))
    cached = max(1, round(served.mean_blocks * server.engine.block_size / decodes))
    tokens = round(served.chunk_tokens / served.steps)
    return StepBatch(chunks=(Chunk(tokens=tokens),) if tokens else (), decodes=(cached,) * decodes)


def bound_by(rl: RlRun, steps: Stepper | None, server: Server, served: Served) -> str:
    """The largest part of the mean step's time: compute, memory, communication or host."""
    if steps is None:
        return _slower(decode_calls(rl, decode_batches(rl)[-1], decode_keys(rl)[1]), server.cluster.gpu)
    parts = _parts_us(steps, mean_batch(server, served))
    return max(parts, key=lambda name: parts[name])


def _parts_us(steps: Stepper, batch: StepBatch) -> dict[str, float]:
    ledger = steps.ledger_us(batch)
    parts = {name: sum(ledger.get(term, 0.0) for term in terms) for name, terms in OF_TERMS.items()}
    kernels = step_kernels(steps.server, batch)
    for group in BOUND:
        if time_us := ledger.get(group, 0.0):
            parts[_slower(kernels[group], steps.server.cluster.gpu)] += time_us
    return parts


def _slower(calls: Iterable[Counted], gpu: Gpu) -> str:
    """Whether calls take longer to compute at the peak than to move at the stated bandwidth."""
    compute_us = memory_us = 0.0
    for one in calls:
        if isinstance(one.call, Operator):
            compute_us += one.count * one.call.executed_flops(one.phase) / gpu.peak_flops_per_us(one.call.compute_dtype)
            memory_us += one.count * one.call.least_bytes(one.phase) / gpu.bytes_per_us()
    return COMPUTE if compute_us > memory_us else MEMORY
