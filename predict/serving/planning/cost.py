"""The cost of the tokens of a server, from the price of its GPUs and the requests that it answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predict.interval import Interval
from predict.ledger.training_cost import Price
from predict.serving.batch import Chunk, StepBatch, sums_of
from predict.serving.planning.loaded_server import LoadedServer, Outcome

SECONDS_PER_HOUR, MILLION = 3600.0, 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenCost:
    """Money per million tokens. The GPUs cost the same whatever they do, so a server that is busier has cheaper tokens."""

    output: Interval
    """All of the cost over the output tokens: prompts are included. Infinite where the rate may be 0."""
    input_alone: Interval
    """The part of prompts over the prompt tokens: the cost is divided by the time that each takes in the server's steps."""
    output_alone: Interval
    """The rest over the output tokens."""
    currency: str
    gpu_hour: float
    """The price of one GPU for an hour."""


def cost_of_load(server: LoadedServer, outcome: Outcome, price: Price) -> TokenCost:
    """The cost of a load's tokens; the bounds are those of what the server answers per second, which below saturation the load decides."""
    return cost_at_rate(server, outcome, outcome.answered, price)


def cost_at_rate(server: LoadedServer, outcome: Outcome, rate: Interval, price: Price) -> TokenCost:
    """The cost at a rate with its bounds, of requests like those of `outcome`, the load at that rate."""
    run = server.run
    gpu_hour = price.per_gpu(run.gpus_per_node)
    per_s = gpu_hour * run.server.placement.gpus / SECONDS_PER_HOUR
    request = rate.dividing(per_s)
    traffic, share = outcome.served.traffic, prompts_share(server, outcome)
    prompt, output = (float(tokens.mean()) for tokens in (traffic.prompt, traffic.output))
    return TokenCost(
        output=request.scaled(MILLION / output),
        input_alone=request.scaled(MILLION * share / prompt),
        output_alone=request.scaled(MILLION * (1 - share) / output),
        currency=price.currency,
        gpu_hour=gpu_hour,
    )


def prompts_share(server: LoadedServer, outcome: Outcome) -> float:
    """Share of the time in steps that computing prompts adds to them: that of the load's chunks beside the mean number of decodes."""
    served, engine = outcome.served, server.engine
    decodes = outcome.mean_batch.decodes
    tokens = round(served.chunk_tokens / len(served.traffic))
    room = max(1, engine.max_num_batched_tokens - len(decodes))
    chunk = StepBatch(chunks=(Chunk(tokens=max(1, min(tokens, room))),), decodes=decodes)
    with_chunk, alone = server.stepper.table.times_us(
        sums_of([chunk, StepBatch(decodes=decodes)], server.run.server.window)
    )
    added_us = (with_chunk - alone) * served.chunk_tokens / chunk.chunks[0].tokens
    return float(np.clip(added_us / served.busy_us, 0.0, 1.0))
