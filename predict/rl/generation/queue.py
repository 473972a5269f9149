"""The queue between engines and trainer, and how old samples are when they are trained on, both in steps."""

from __future__ import annotations

from dataclasses import dataclass

from predict.rl.generation.rollout import Rollout
from predict.rl.run.section import ASYNC, COLOCATED, RlSection


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """Samples between the start of their generation and their training, as steps' worth of them."""

    generating: float
    """In the engines, on average."""
    waiting: float
    """Ended, and not yet trained on."""
    staleness: float
    """Updates of the weights between the start of a sample's generation and its training, on average."""


def queue_of(section: RlSection, rollout: Rollout, *, gen_us: float, train_us: float, step_us: float) -> Queue:
    """The queue in the steady state, by Little's law: samples in a place are their rate times their time there.

    A step's samples leave per step. With `async` a slower trainer lets the engines run ahead until a sample would be older than
    `staleness` allows; a slower engine leaves nothing to wait. One step off, all samples are of the weights before.
    """
    if section.placement == COLOCATED:
        return Queue(generating=0.0, waiting=0.0, staleness=0.0)
    served = rollout.served
    # engines that resume interrupted responses are always full
    share = 1.0 if section.rollout.partial else float((served.last_us - served.start_us).mean() / served.last_us.max())
    ahead = section.staleness if section.placement == ASYNC else 0.0
    generating = share * (1 + ahead) * gen_us / step_us
    if section.placement != ASYNC:
        return Queue(generating=generating, waiting=max(0.0, 1 - generating), staleness=1.0)
    waiting = max(0.0, ahead - generating) if train_us > gen_us else 0.0
    return Queue(generating=generating, waiting=waiting, staleness=min(ahead, generating + waiting))
