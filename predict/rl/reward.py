"""Scoring of the responses by workers outside the GPUs, beside a generation that has the framework's factor already."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from predict.interval import Interval
from predict.rl.phase import SCORING, Phase
from predict.rl.run.config import RlRun
from predict.serving.batch import Floats
from sampling.units import SECOND_US


def reward_us(rl: RlRun, gen_us: Floats | float) -> Floats:
    """The time that scoring adds to a generation of this time: all of it; where it overlaps, what is left to score when generation ends."""
    reward, samples = rl.section.reward, rl.section.samples
    last = SECOND_US * reward.latency_s
    in_all = last * -(-samples // reward.workers)
    ended = np.asarray(gen_us, dtype=np.float64)
    return np.maximum(last, in_all - ended) if reward.overlaps else np.full_like(ended, in_all)


def reward_phase(rl: RlRun, phases: Iterable[Phase]) -> list[Phase]:
    """The phase after a generation that is among these phases; none for a reward without latency."""
    if not rl.section.reward.latency_s:
        return []
    (gen,) = (phase for phase in phases if phase.name == "gen")
    time = Interval.exactly(float(reward_us(rl, gen.time.median_us)))
    return [Phase(name="reward", time=time, gpus=gen.gpus, bound_by="reward", parts={SCORING: time.median_us})]
