"""The requests that a server gets: when they arrive, how long they are, and what of their prompts they share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from predict.run.lengths import FORMS, OPTIONAL_PATTERN, real_lengths
from regressors.features.arrays import Floats, Ints
from sampling.errors import UserError
from sampling.files.schema import Key
from sampling.number_text import as_given
from sampling.units import SECOND_US

Arrivals = Literal["poisson", "constant"]
Lengths = Annotated[str, Key(pattern=OPTIONAL_PATTERN, meaning=FORMS)]
ENDED_BY_THEN = 0.95
"""Share of the conversations that last no longer than it takes until about as many end as begin."""
SEED = 20
"""Seed of the draws, so that equal traffic gives equal results."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chains:
    """Tokens that requests have in common, as a tree of prompts: each request's leading tokens are a chain of its segments."""

    first: Ints
    """Place in `segment` of each request's first segment; one element more than there are requests."""
    segment: Ints
    begins: Ints
    """Tokens of a sequence before each segment."""
    ends: Ints
    """Tokens up to its end."""

    @property
    def count(self) -> int:
        """Segments."""
        return len(self.begins)

    def chosen(self, places: Ints) -> Chains:
        """The chains of the requests at these places."""
        counts = np.diff(self.first)[places]
        first = np.concatenate(([0], np.cumsum(counts)))
        within = np.arange(first[-1]) - np.repeat(first[:-1], counts)
        return replace(self, first=first, segment=self.segment[np.repeat(self.first[places], counts) + within])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Traffic:
    """Requests in order of arrival, one element each."""

    arrival_us: Floats
    prompt: Ints
    """Tokens of the prompt."""
    output: Ints
    """Tokens that are generated."""
    shared: Ints
    """Leading tokens of the prompt that all requests of the same group have in common."""
    group: Ints
    """Identity of the shared tokens; −1 for none."""
    chains: Chains | None = None
    """Shared tokens as a tree, in place of the groups' ones."""
    after: Ints | None = None
    """The next turn of each request's conversation, or −1. Turns that follow on others arrive at inf, and come after those that do not."""
    pause_us: Floats | None = None
    """µs from a request's last token to that turn."""
    talk: Ints | None = None
    """The conversation of each request, of an open loop of conversations."""
    in_flight: int = 0
    """Requests in flight of a closed loop, in which the others arrive as these end; 0 for an open one."""
    is_settled: bool = False
    """The closed loop is watched while it is full, and not as it fills and drains."""
    place: Ints | None = None
    """Their places in the file that they are read from, from 1; None for others."""

    def __post_init__(self) -> None:
        wrong = []
        if not len(self.arrival_us):
            wrong.append("there are no requests; give a longer duration or a higher rate")
        for name in ("prompt", "output"):
            values: Ints = getattr(self, name)
            if len(values) and values.min() < 1:
                place = int(values.argmin())
                wrong.append(f"{name}: request {place} has {values[place]} tokens; give 1 or more")
        if len(self.arrival_us) and (self.arrival_us[1:] < self.arrival_us[:-1]).any():
            wrong.append("arrivals are not in order of time; sort the requests")
        if wrong:
            raise UserError("\n".join(f"traffic: {one}" for one in wrong))

    def __len__(self) -> int:
        return len(self.arrival_us)

    @property
    def all_chains(self) -> Chains:
        """The tree of shared tokens; a group is a segment of its own."""
        if self.chains:
            return self.chains
        known = self.group >= 0
        group = self.group[known]
        ends = np.zeros(int(self.group.max()) + 1, dtype=np.int64)
        ends[group] = self.shared[known]
        first = np.concatenate(([0], np.cumsum(known)))
        return Chains(first=first, segment=group, begins=np.zeros_like(ends), ends=ends)

    @property
    def talks_overlap_us(self) -> tuple[float, float] | None:
        """µs from which on about as many conversations end as begin, as far as their pauses say, and up to which they begin; None for other
        requests, and where all begin before many end."""
        if self.talk is None or self.pause_us is None or self.after is None:
            return None
        begins = self.arrival_us[np.isfinite(self.arrival_us)]
        paused = np.bincount(self.talk, weights=self.pause_us * (self.after >= 0))
        since, until = float(begins.min() + np.quantile(paused, ENDED_BY_THEN)), float(begins.max())
        return (since, until) if since < until else None

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.arrival_us[-1] - self.arrival_us[0]) / SECOND_US

    @property
    def rate(self) -> float:
        """Requests per second in that time; 0 where all arrive at once."""
        return (len(self) - 1) / self.span_s if self.span_s else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Prefix:
    """Conversations: each turn's prompt is all that was said before, and `load.prompt` new tokens."""

    groups: Annotated[int, Key(minimum=0)] = 0
    """Different beginnings, such as system prompts with their tools; each conversation has one of them, drawn evenly. 0 for none."""
    shared: Annotated[int, Key(minimum=0)] = 0
    """Tokens of each beginning."""
    turns: Annotated[int, Key(minimum=1, maximum=1000)] = 1
    """Requests of a conversation; an agent has one for each answer of a tool."""
    pause_s: Annotated[float, Key(minimum=0, maximum=1e5)] = 0.0
    """Seconds from the end of an answer to the next turn, on average, with exponential chance: a user's, or a tool's."""

    @property
    def paused_s(self) -> float:
        """Seconds that about 19 of 20 conversations pause at most, all their pauses together: the 95th percentile of a sum of exponential
        times, of one to hundreds, to 5 %."""
        pauses = self.turns - 1
        return self.pause_s * (pauses + 2 * sqrt(pauses))


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """A load: requests of one kind at a rate, or so many in flight."""

    rate: Annotated[float, Key(minimum=0)] = 0.0
    """Requests per second; 0 with `concurrency`."""
    concurrency: Annotated[int, Key(minimum=0)] = 0
    """Requests in flight of a closed loop; 0 for an open one."""
    arrivals: Arrivals = "poisson"
    """poisson, or constant for even gaps."""
    duration_s: Annotated[float, Key(maximum=1e6)] = 600.0
    """Seconds in which requests arrive; conversations begin before them too, for as long as their pauses take. In a closed loop it decides
    nothing."""
    requests: Annotated[int, Key(minimum=0)] = 0
    """Requests of a closed loop, or of a file; 0 for 20 times those in flight, at least 200."""
    start: Literal["together", "staggered"] = "together"
    """Of a closed loop: `together`, its first requests arrive at once, as those of a benchmark, and all requests count; `staggered`: they
    are at every stage of their answers, as in a loop that has run for long, and those count that it serves while it is full."""
    prompt: int = 1024
    """Tokens of a prompt, on average."""
    output: int = 128
    """Tokens that each request generates, on average."""
    prompt_lengths: Lengths = ""
    """Tokens of prompts as a distribution in place of `prompt` (`predict.run.lengths`), drawn in random order."""
    output_lengths: Lengths = ""
    """The same of answers, in place of `output`."""
    prompt_max: Annotated[int, Key(minimum=0)] = 0
    """Tokens to which the prompts of `prompt_lengths` are cut; 0 for none."""
    output_max: Annotated[int, Key(minimum=0)] = 0
    """The same of `output_lengths`, as a client's max_tokens does."""
    spread: Annotated[float, Key(minimum=0, maximum=1)] = 0.0
    """Prompt and output, where they are numbers, are drawn evenly from (1 − spread) to (1 + spread) times their averages."""
    distinct_prompts: Annotated[int, Key(minimum=0)] = 0
    """Different prompts that are sent again and again; 0 for each request its own."""
    shared_tokens: Annotated[int, Key(minimum=0)] = 0
    """Leading tokens that all prompts have in common, such as a system prompt, where each request has its own prompt."""
    prefix: Prefix = field(default_factory=Prefix)
    """Conversations and prefixes that they share."""
    file: str = ""
    """File of requests (CSV, JSON or JSON lines), relative to the config, in place of all of these; where it does not say which prompts are
    the same, distinct_prompts or shared_tokens does."""

    @property
    def mean_prompt(self) -> int:
        """Tokens of a prompt on average, with what was said before."""
        before = self.prefix.shared if self.prefix.groups else 0
        turns = self.prefix.turns
        return before + round((turns + 1) / 2 * self.prompt + (turns - 1) / 2 * self.output)


MOST_REQUESTS = 2_000_000
MOST_QUANTILES = 4096
"""Lengths that a distribution is read at; the longest of them is what one request of 8,192 exceeds."""


def traffic_of(load: Load) -> Traffic:
    """The requests of a load. UserError for a load without a rate or a concurrency, or with both, and for too many requests."""
    if bool(load.rate) == bool(load.concurrency):
        given = "both load.rate and load.concurrency are" if load.rate else "neither load.rate nor load.concurrency is"
        raise UserError(f"load: {given} above 0; give one of them")
    draw = np.random.default_rng(SEED)
    if not load.concurrency:
        # with a shorter start no moment would have as many last turns as first ones
        load = replace(load, duration_s=load.duration_s + load.prefix.paused_s)
    count = _count(load)
    if not count:
        spans = f"{as_given(load.rate)} requests/s for load.duration_s, {as_given(load.duration_s)} s"
        raise UserError(f"load.rate: {spans}, are less than one request; give a higher rate or a longer duration_s")
    if count > MOST_REQUESTS:
        shorter = "shorter pauses, a shorter duration_s" if load.prefix.pause_s else "a shorter duration_s"
        raise UserError(f"load: {count:,} requests are more than {MOST_REQUESTS:,}; give {shorter} or a lower rate")
    if load.prefix.groups or load.prefix.turns > 1:
        return _conversations(load, count, draw)
    prompt, output = (_lengths(load, of, count, draw) for of in ("prompt", "output"))
    group, shared = np.full(count, -1), np.zeros(count, dtype=np.int64)
    if load.distinct_prompts > MOST_REQUESTS:
        raise UserError(
            f"load.distinct_prompts: {load.distinct_prompts:,} are more than {MOST_REQUESTS:,}; omit it where each request has its own prompt"
        )
    if load.distinct_prompts:
        group = draw.integers(load.distinct_prompts, size=count)
        prompt = _lengths(load, "prompt", load.distinct_prompts, draw)[group]
        shared = prompt.copy()
    elif load.shared_tokens:
        _require_within(load.shared_tokens, prompt)
        group, shared = np.zeros(count, dtype=np.int64), np.full(count, load.shared_tokens)
    in_flight = min(load.concurrency, count)
    staggered = load.start == "staggered" and count > in_flight > 0
    return Traffic(
        arrival_us=_arrivals_us(load, count, draw),
        prompt=prompt,
        output=cut_short(output, in_flight) if staggered else output,
        shared=shared,
        group=group,
        in_flight=in_flight,
        is_settled=staggered,
    )


def _conversations(load: Load, count: int, draw: np.random.Generator) -> Traffic:
    """The turns of conversations: first ones arrive as the load says, at the rate of all turns together; others follow on them."""
    turns, groups = load.prefix.turns, load.prefix.groups
    talks = max(1, -(-count // turns))
    new, output = (_lengths(load, of, talks * turns, draw).reshape(turns, talks) for of in ("prompt", "output"))
    beginning = load.prefix.shared if groups else 0
    said = beginning + np.cumsum(new + output, axis=0)
    prompt = said - output
    # segments: the beginnings, then each turn but the last of each conversation, which nobody goes on from
    of_group = draw.integers(max(1, groups), size=talks)
    own = groups + np.arange((turns - 1) * talks).reshape(turns - 1, talks)
    begins = np.concatenate(([0] * groups, np.vstack((np.full(talks, beginning), said[:-1]))[: turns - 1].ravel()))
    ends = np.concatenate(([beginning] * groups, said[: turns - 1].ravel()))
    chains = [
        np.concatenate((of_group[None][: bool(groups)], own[: min(turn + 1, turns - 1)])).T for turn in range(turns)
    ]
    first = np.concatenate([np.full(talks, each.shape[1]) for each in chains])
    in_flight = min(load.concurrency, talks)
    starts = replace(load, rate=load.rate / turns)
    arrival_us = np.full((turns, talks), np.inf)
    arrival_us[0] = _arrivals_us(starts, talks, draw)
    place = np.arange(turns * talks).reshape(turns, talks)
    after = np.vstack((place[1:], np.full((1, talks), -1)))
    return Traffic(
        arrival_us=arrival_us.ravel(),
        prompt=prompt.ravel(),
        output=output.ravel(),
        shared=np.zeros(turns * talks, dtype=np.int64),
        group=np.full(turns * talks, -1),
        chains=Chains(
            first=np.concatenate(([0], np.cumsum(first))),
            segment=np.concatenate([each.ravel() for each in chains]).astype(np.int64),
            begins=begins.astype(np.int64),
            ends=ends.astype(np.int64),
        ),
        after=after.ravel() if turns > 1 else None,
        pause_us=draw.exponential(load.prefix.pause_s, turns * talks) * SECOND_US if turns > 1 else None,
        talk=np.tile(np.arange(talks), turns) if turns > 1 and not in_flight else None,
        in_flight=in_flight,
    )


def _require_within(shared: int, prompt: Ints) -> None:
    """UserError for more shared tokens than the shortest prompt has."""
    shortest = int(prompt.min(initial=shared))
    if shared > shortest:
        raise UserError(
            f"load.shared_tokens: {shared} are more than the {shortest} tokens of the shortest prompt; give fewer, or longer prompts (load.prompt)"
        )


def cut_short(output: Ints, in_flight: int) -> Ints:
    """Answers of a closed loop whose first requests are at every stage of theirs, as those of a loop that has run for long: requests that
    start together would all end together again and again, and those in the order of their stages as many at once as wait beside them.
    Those answers are cut short, so that a loop without others keeps them whole."""
    done = np.random.default_rng(SEED).permutation(in_flight) / max(1, in_flight)
    return np.concatenate((np.ceil(output[:in_flight] * (1 - done)).astype(np.int64), output[in_flight:]))


def load_of(traffic: Traffic, load: Load) -> Load:
    """The load with the number, rate, span and mean lengths of requests in place of its own, each with a prompt of its own. The rate is 0
    where all arrive at once."""
    return replace(
        load,
        rate=traffic.rate,
        concurrency=0,
        duration_s=traffic.span_s,
        requests=len(traffic),
        spread=0.0,
        distinct_prompts=0,
        shared_tokens=0,
        prompt=round(float(traffic.prompt.mean())),
        output=round(float(traffic.output.mean())),
    )


def with_known_prompts(traffic: Traffic, load: Load) -> Traffic:
    """Requests with the prompts that a load has in common, where they do not say which prompts are the same: different ones in turn, or
    leading tokens of all."""
    count = len(traffic)
    if (traffic.group >= 0).any():
        return traffic
    if load.distinct_prompts:
        group = np.arange(count) % load.distinct_prompts
        return replace(traffic, group=group, shared=shortest_of_each(traffic.prompt, group))
    if load.shared_tokens:
        _require_within(load.shared_tokens, traffic.prompt)
        shared = np.full(count, load.shared_tokens)
        return replace(traffic, group=np.zeros(count, dtype=np.int64), shared=shared)
    return traffic


def shortest_of_each(prompt: Ints, group: Ints) -> Ints:
    """The tokens of the shortest prompt of each request's group."""
    shortest = np.full(int(group.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, group, prompt)
    found: Ints = shortest[group]
    return found


def at_rate(load: Load, rate: float) -> Load:
    """The same load in an open loop at another rate. The requests of a file stay the same: at half the rate they arrive
    over twice the time."""
    span = (load.requests - 1) / rate if load.file else load.duration_s
    return replace(load, rate=rate, concurrency=0, duration_s=span)


def every(traffic: Traffic, replicas: int) -> Traffic:
    """Every so many-th request, as a balancer that takes its replicas in turn gives the first of them."""
    names = ("arrival_us", "prompt", "output", "shared", "group", "place")
    columns = {name: column[::replicas] for name in names if (column := getattr(traffic, name)) is not None}
    chains = traffic.chains and traffic.chains.chosen(np.arange(len(traffic))[::replicas])
    return replace(traffic, **columns, chains=chains)


def _count(load: Load) -> int:
    """Requests of the load: a Poisson stream is drawn with as many as it has on average, so that its rate is the one stated."""
    if load.concurrency:
        return load.requests or max(200, 20 * load.concurrency)
    return round(load.rate * load.duration_s)


def _arrivals_us(load: Load, count: int, draw: np.random.Generator) -> Floats:
    if load.concurrency:
        return np.zeros(count)
    if load.arrivals == "constant":
        return np.arange(count) / load.rate * SECOND_US
    return np.sort(draw.uniform(0.0, load.duration_s * SECOND_US, count))


def quantiles_of(load: Load, of: str, count: int = MOST_QUANTILES) -> Ints:
    """Lengths of a load's `prompt` or `output` distribution, ascending: `count` quantiles of it. ConfigError, without
    the key, for one that is none."""
    longest = getattr(load, f"{of}_max")
    table = _quantiles(getattr(load, f"{of}_lengths"), min(count, MOST_QUANTILES))
    return np.minimum(table, longest) if longest else table


def longest_of(load: Load, of: str) -> int:
    """Tokens of the longest `prompt` or `output` that a load may have."""
    if getattr(load, f"{of}_lengths"):
        return int(quantiles_of(load, of)[-1])
    mean: int = getattr(load, of)
    return round(mean * (1 + load.spread))


def with_mean_length(load: Load, of: str, folder: Path) -> Load:
    """The load with the mean of its distribution for `prompt` or `output`; a file of lengths lies in `folder`.
    ConfigError, without the key, for a distribution that is not valid."""
    text = str(getattr(load, f"{of}_lengths"))
    if not text:
        return load
    kind, _, path = text.partition(":")
    changed: dict[str, Any] = {f"{of}_lengths": f"file:{(folder / path).absolute()}" if kind == "file" else text}
    load = replace(load, **changed)
    changed = {of: max(1, round(float(quantiles_of(load, of).mean())))}
    return replace(load, **changed)


@lru_cache(maxsize=32)
def _quantiles(text: str, count: int) -> Ints:
    return np.array(real_lengths(text, count, Path()), dtype=np.int64)


def _lengths(load: Load, of: str, count: int, draw: np.random.Generator) -> Ints:
    """`count` lengths of the prompts or answers, in random order."""
    if getattr(load, f"{of}_lengths"):
        table = quantiles_of(load, of, count)
        drawn: Ints = table[draw.permutation(count) * len(table) // count]
        return drawn
    mean, spread = getattr(load, of), load.spread
    if not spread:
        return np.full(count, mean, dtype=np.int64)
    return np.maximum(1, np.rint(draw.uniform(mean * (1 - spread), mean * (1 + spread), count))).astype(np.int64)
