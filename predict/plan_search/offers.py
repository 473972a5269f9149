"""Offers of machines: what a training takes and costs on each, and the cheapest that is done in time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from predict import estimate, load
from predict.config.document import Config
from predict.config.overrides import as_settings
from predict.ledger.job_settings import JobSettings, job_settings
from predict.ledger.training_cost import parse_price
from predict.ledger.whole_job import WholeJob, job
from predict.step.prediction import Prediction
from sampling.errors import ConfigError, UserError
from sampling.files.schema import Key, Text, read


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """Machines at a price, as the user's table states them."""

    name: Text
    """Its name in the answer."""
    cluster: Any = None
    """The cluster as a run config has it: a name, the path of a file, or its keys; default: that of the config."""
    settings: Annotated[Mapping[str, Any], Key(meaning="key path → value")] = field(default_factory=dict)
    """Further keys of the config on these machines, such as `plan.tp: 4`."""
    price: Annotated[
        str, Key(minimum=1, takes_number=True, meaning="write for example 2.5/gpu-h, $2.5/gpu-h or 20/node-h")
    ]
    """What a GPU or node costs, as 2.5/gpu-h."""
    spot_hours_a_loss: Annotated[float | None, Key(minimum=0, maximum=1e12)] = None
    """Node-hours between losses of a node on a spot market; 0 for reserved nodes; default: that of the job's settings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OffersFile:
    """The offers to choose among."""

    offers: tuple[Offer, ...]
    """Reserved or spot machines, each with its price."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OfferedJob:
    """A job on the machines of an offer."""

    offer: Offer
    prediction: Prediction
    job: WholeJob
    in_time: bool
    """Whether 95 % of the draws are done by the deadline; True without one."""


def read_offers(path: Path) -> tuple[Offer, ...]:
    """The offers of a file; ConfigError for a fault, and for prices of more than one currency, which cannot be compared."""
    offers = read(OffersFile, path).offers
    currencies = set()
    for offer in offers:
        try:
            currencies.add(parse_price(offer.price).currency)
        except UserError as error:
            raise ConfigError(f"{path}: {offer.name}: {str(error).replace('--price', 'price')}") from None
    if not offers:
        raise ConfigError(f"{path}: offers: none; give one or more, each with name and price")
    if len(currencies) > 1:
        named = ", ".join(sorted(currency or "none" for currency in currencies))
        raise ConfigError(f"{path}: offers: prices of several currencies ({named}) cannot be compared; give all in one")
    return offers


def offered_jobs(
    config: Config,
    offers: Sequence[Offer],
    tokens: str | float,
    *,
    overrides: Sequence[str] = (),
    settings: JobSettings | None = None,
    deadline_days: float | None = None,
) -> tuple[OfferedJob, ...]:
    """The job on each offer: those first whose memory fits, then those done in time, and among these the cheapest.

    UserError names the offer whose machines the plan does not fill.
    """
    given = settings or job_settings({})
    found = []
    for offer in offers:
        try:
            on_these = offer.settings if offer.cluster is None else {"cluster": offer.cluster, **offer.settings}
            prediction = estimate(load(config, [*overrides, *as_settings(on_these)]))
            made = job(
                prediction,
                tokens,
                price=offer.price,
                settings=given
                if offer.spot_hours_a_loss is None
                else replace(given, spot_hours_a_loss=offer.spot_hours_a_loss),
            )
        except UserError as error:
            raise type(error)(f"{offer.name}: {error}") from None
        in_time = deadline_days is None or made.days.high <= deadline_days
        found.append(OfferedJob(offer=offer, prediction=prediction, job=made, in_time=in_time))
    return tuple(sorted(found, key=_worth))


def _worth(one: OfferedJob) -> tuple[bool, bool, float]:
    return (not one.prediction.feasible, not one.in_time, one.job.cost.median if one.job.cost else 0.0)
