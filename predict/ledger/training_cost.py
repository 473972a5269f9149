"""Days, GPU-hours, money and energy of a whole training, from its step time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from predict.interval import Interval
from predict.ledger.job_energy import W_PER_MW
from predict.run.model_flops import tokens_per_step
from predict.step.power import POWER_WIDTH
from predict.step.prediction import Prediction
from sampling.errors import Checks, UserError
from sampling.files.faults import shown
from sampling.number_text import as_given
from sampling.units import HOUR_US

HOURS_PER_DAY = 24
GOODPUT = 0.9
"""Share of the time in which a run makes steps that are kept. Llama 3 405B kept above 0.9 on 16,384 GPUs (arXiv 2407.21783,
section 3.3.4); fewer GPUs fail less often."""
COUNT = re.compile(r"\s*(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*([KMBT]?)\s*", re.IGNORECASE)
TIMES: Mapping[str, float] = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
PRICE = re.compile(
    r"\s*([^\d\s./+-]{0,4})\s*(\d+(?:\.\d+)?)\s*([A-Za-z]{3})?\s*/\s*(gpu|node)-(?:h|hour)\s*", re.IGNORECASE
)
MOST_TOKENS = 1e18


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """The cost of a GPU, or of a node, per hour. `currency` is as written, "" where none is."""

    amount: float
    currency: str
    per_node: bool

    def per_gpu(self, gpus_per_node: int) -> float:
        return self.amount / gpus_per_node if self.per_node else self.amount


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeTraining:
    """A whole training as its user asks for it."""

    tokens: float
    goodput: float
    price: Price | None


def whole_training(tokens: str | float, *, price: str | None = None, goodput: float | None = None) -> WholeTraining:
    """The training of --tokens, --price and --goodput; UserError with a line for each of them that is wrong."""
    with Checks() as checks:
        with checks.one():
            count = parse_tokens(tokens)
        with checks.one():
            paid = None if price is None else parse_price(price)
        with checks.one():
            share = require_share(GOODPUT if goodput is None else goodput)
    return WholeTraining(tokens=count, goodput=share, price=paid)


def require_paid(tokens: str | float | None, price: str | None) -> None:
    """UserError for tokens or a price that is not a positive number, or for a price without tokens; either may be left out."""
    if tokens is not None:
        whole_training(tokens, price=price)
    elif price is not None:
        parse_price(price)
        raise UserError("--price: it needs the tokens that are paid for; give --tokens too, as in --tokens 2T")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingCost:
    """A training of `tokens` in `steps` steps; `goodput` is the share of the time that is kept.

    The bounds are those of the step time, and of the power for the energy; goodput and price are taken as stated.
    """

    tokens: float
    steps: int
    goodput: float
    days: Interval
    gpu_hours: Interval
    cost: Interval | None
    """Money, in the currency of the price; None without one."""
    currency: str
    energy_mwh: Interval | None
    """MWh of the GPUs' boards at the power that the step draws, hosts, network and cooling not counted; None where the hardware file states
    no power."""


def days(
    prediction: Prediction, tokens: str | float, *, price: str | None = None, goodput: float | None = None
) -> TrainingCost:
    """Days, GPU-hours, money and energy of training on `tokens` such as `2T` or 2e12, with the bounds of the step time.

    `price` is such as `2.5/gpu-h`; `goodput` the share of the time that goes into steps that are kept (default: GOODPUT).
    UserError for a number, a price or a share that is not valid.
    """
    training = whole_training(tokens, price=price, goodput=goodput)
    return training_cost(prediction, tokens=training.tokens, goodput=training.goodput, price=training.price)


def training_cost(
    prediction: Prediction, *, tokens: float, goodput: float = GOODPUT, price: Price | None = None
) -> TrainingCost:
    """The cost of training on `tokens` tokens."""
    run, power = prediction.run, prediction.power
    steps = math.ceil(tokens / tokens_per_step(run))
    hours = prediction.step_time.scaled(steps / goodput / HOUR_US)
    gpu_hours = hours.scaled(run.cluster.world_size)
    return TrainingCost(
        tokens=tokens,
        steps=steps,
        goodput=goodput,
        days=hours.scaled(1 / HOURS_PER_DAY),
        gpu_hours=gpu_hours,
        cost=gpu_hours.scaled(price.per_gpu(run.cluster.gpus_per_node)) if price else None,
        currency=price.currency if price else "",
        energy_mwh=gpu_hours.scaled(power.mean_w / W_PER_MW).widened(POWER_WIDTH) if power else None,
    )


def parse_tokens(text: str | float) -> float:
    """The tokens of `2T`, `300B` or `1.5e12`, or a number of them; UserError for anything else."""
    found = COUNT.fullmatch(text) if isinstance(text, str) else None
    tokens = float(found[1]) * TIMES[found[2].upper()] if found else 0.0 if isinstance(text, str) else float(text)
    if not 1 <= tokens <= MOST_TOKENS:
        is_number = found or not isinstance(text, str)
        wrong = f"is not from 1 to {MOST_TOKENS}" if is_number else "is not a number of tokens"
        raise UserError(f"--tokens: {shown(text)} {wrong}; write for example 300B, 2T or 1.5e12")
    return tokens


def parse_price(text: str) -> Price:
    """The price of `2.5/gpu-h`, `$2.5/gpu-h` or `20 EUR/node-h`; UserError for anything else."""
    found = PRICE.fullmatch(text)
    if found is None or not float(found[2]):
        raise UserError(
            f"--price: {shown(text)} is not a price above 0 with its unit; write for example 2.5/gpu-h, $2.5/gpu-h or 20/node-h"
        )
    return Price(
        amount=float(found[2]), currency=found[1] or (found[3] or "").upper(), per_node=found[4].lower() == "node"
    )


def require_share(goodput: float) -> float:
    """The goodput itself; UserError unless it is a share above 0."""
    if not 0 < goodput <= 1:
        raise UserError(f"--goodput: {as_given(goodput)} is not a share of the time; give a number above 0, 1 at most")
    return goodput
