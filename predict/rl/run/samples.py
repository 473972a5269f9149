"""The samples of a step: the lengths of its prompts and responses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from predict.rl.run.section import RlSection
from predict.run.lengths import MOST_SEQUENCES, real_lengths
from predict.serving.scheduler.traffic import SEED, Ints

FINER = 64
"""Quantiles per length that is drawn, so that the longest may be longer than the last quantile of a step."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Samples:
    """One element per response, those to one prompt side by side."""

    prompt: Ints
    """Tokens of the prompt."""
    response: Ints
    """Tokens of the response."""
    clipped: int
    """Responses that are as long as they may be."""

    @property
    def sequences(self) -> Ints:
        """Tokens of prompt and response, ascending."""
        lengths: Ints = np.sort(self.prompt + self.response)
        return lengths

    @property
    def tokens(self) -> int:
        return int(self.prompt.sum() + self.response.sum())


def samples_of(section: RlSection, folder: Path) -> Samples:
    """The quantiles of both distributions, or with `draw` lengths drawn from them, cut to their longest; which response answers which
    prompt is drawn too, with a fixed seed or that of `draw`.

    ConfigError for a file of lengths that cannot be read; its path starts in `folder`.
    """
    draw = np.random.default_rng(section.draw or SEED)
    drawn = draw if section.draw else None
    prompts = np.minimum(_lengths(section.prompt, section.prompts, folder, drawn), section.prompt_max)
    responses = np.minimum(_lengths(section.response, section.samples, folder, drawn), section.response_max)
    return Samples(
        prompt=np.repeat(draw.permutation(prompts), section.n).astype(np.int64),
        response=responses[_ranks(draw, section)].astype(np.int64),
        clipped=int((responses == section.response_max).sum()),
    )


def _lengths(text: str, count: int, folder: Path, drawn: np.random.Generator | None) -> Ints:
    """`count` lengths of a distribution, ascending."""
    if drawn is None:
        return np.array(real_lengths(text, count, folder))
    return np.sort(drawn.choice(real_lengths(text, min(MOST_SEQUENCES, FINER * count), folder), count))


def _ranks(draw: np.random.Generator, section: RlSection) -> Ints:
    """The rank of each response's length among all; those to one prompt share `alike` of the variance of what they are ranked by."""
    of_prompt = np.repeat(draw.standard_normal(section.prompts), section.n)
    own = draw.standard_normal(section.samples)
    order = np.argsort(np.sqrt(section.alike) * of_prompt + np.sqrt(1 - section.alike) * own)
    ranks: Ints = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks
