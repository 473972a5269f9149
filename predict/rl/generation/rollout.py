"""Generation: the samples divided among engines, each simulated step by step by the scheduler of servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from predict.interval import Interval
from predict.rl.flops import mfu_of_phase
from predict.rl.generation.bound import bound_by, mean_batch
from predict.rl.generation.sampling_rounds import rounds_of
from predict.rl.generation.steady import steady, steps_needed
from predict.rl.layout import laid_out_pass
from predict.rl.phase import RESPONSES, TAIL, Phase, plus
from predict.rl.plain.phases import plain_steps, sources_of_decode
from predict.rl.run.config import RlRun
from predict.rl.run.engines import rollout_engine
from predict.rl.run.samples import Samples
from predict.rl.run.section import ASYNC, CHUNKS
from predict.serving.batch import Floats, StepBatch
from predict.serving.kv_cache import CacheRoom, cache_room
from predict.serving.scheduler.simulate import Served, serve
from predict.serving.scheduler.traffic import Ints, Traffic
from predict.serving.server import EngineSettings, Placement, Server
from predict.serving.step_table import StepTable
from predict.serving.stepper import stepper
from sampling.errors import InfeasibleError
from sampling.hardware.cluster import Cluster

MOST_SIMULATED = 8
"""Engines that are simulated: those with the most tokens and the longest responses, one of which ends last."""
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
    steps_ahead: float
    """Steps whose samples were simulated as one stream with this one's."""
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
    placed = Placement(
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
        engine=rollout_engine(rl.section),
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
    (table, factors_at), room = _steps(rl, server), cache_room(server)
    shares = rounds_of(rl.section)
    ahead = rl.section.staleness if rl.section.placement == ASYNC else 0.0
    replicas = rl.rollout_gpus // server.tp
    if rollout.partial:
        streams = _streams(rl, replicas, steps_needed(ahead))
        longest = max(streams, key=lambda one: int(one.output.sum()))
        found = steady(server.engine, room.pool, table, longest, ahead)
        of_step, last, ends = found.of_step_us, found.served, found.ends_us
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
        steps_ahead=ahead,
        bound_by=bound_by(rl, server, last),
        sources=_sources(rl, server, last),
    )


def _steps(rl: RlRun, server: Server) -> tuple[StepTable, Callable[[StepBatch], Interval]]:
    """The times of an engine's steps, and the interval of a batch's as factors."""
    if rl.in_plain_torch:
        table, factors = plain_steps(rl, server.engine.max_num_batched_tokens)
        return table, lambda batch: factors
    steps = stepper(server, rl.section.rollout.step_model)
    return steps.table, steps.factors_at


def _sources(rl: RlRun, server: Server, served: Served) -> Mapping[str, float]:
    """The shares of the engine's mean step."""
    if rl.in_plain_torch:
        return sources_of_decode(rl)
    return stepper(server, rl.section.rollout.step_model).sources(mean_batch(server, served))


def _streams(rl: RlRun, replicas: int, steps: float) -> list[Traffic]:
    """The requests of each engine, all there at the start, of `steps` steps."""
    samples, n = rl.samples, rl.section.n
    of_step = len(samples.prompt)
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
