"""Arrays that the engine's loop reads and writes, as tuples of arrays; lists do as well where numba is not used."""

from __future__ import annotations

from typing import Any, NamedTuple


class Requests(NamedTuple):
    """Requests in order of arrival, one element each."""

    arrival: Any
    """µs. In a closed loop those beyond the first `in_flight` are written when others end."""
    prompt: Any
    """Tokens."""
    output: Any
    """Tokens."""
    shared: Any
    """Leading tokens of the prompt that all requests of the same group have in common."""
    group: Any
    """Identity of the shared tokens; −1 for none."""
    beside: Any
    """Blocks that it takes beside those of its tokens while it runs."""


class Rules(NamedTuple):
    """Limits of the engine, as whole numbers; `chunked` to `whole_prompt` are 0 or 1."""

    most_running: int
    most_tokens: int
    blocks: int
    block: int
    """Tokens of a block."""
    in_flight: int
    """Requests of a closed loop; 0 for an open one."""
    chunked: int
    caching: int
    asynchronous: int
    whole_prompt: int
    """The table counts pairs over whole prompts."""
    reserving: int
    """A request joins only with blocks for its whole answer; 0 or 1."""
    window: int
    """Keys that a query of sliding layers sees; 0 where none slides."""


class Table(NamedTuple):
    """The StepTable as the loop reads it: times per part of a sum are one array, in the order of the sums (see SUMS)."""

    decode_us: Any
    mixed_us: Any
    attention_us: Any
    contexts: Any
    sums_us: Any


class State(NamedTuple):
    """The engine between steps."""

    computed: Any
    """Tokens of each request whose keys and values are in the cache."""
    made: Any
    """Output tokens of each request."""
    held: Any
    """Blocks of each request's own."""
    room: Any
    """Tokens that the blocks of each request and of its group hold."""
    joined: Any
    """Group whose blocks each request holds too, or −1."""
    running: Any
    """Requests in order of admission; NUMBERS[RUNNING] of them count."""
    chunk: Any
    """Tokens in this step, by place in `running`."""
    waiting: Any
    """Preempted requests, the last of which comes first; NUMBERS[WAITING] of them count."""
    holders: Any
    """Requests that hold the blocks of each group."""
    kept_until: Any
    """Value of NUMBERS[TAKEN], for each group, at which its blocks, held by nobody, are reused; 0 for one that was never computed."""
    numbers: Any
    """Counters, see RUNNING and on."""
    sums: Any
    """Sums over the step's batch, see CHUNKS and on."""


class Record(NamedTuple):
    """Findings of the loop."""

    start_us: Any
    first_us: Any
    last_us: Any
    """Times of each request: first scheduled, first token, last token; −1 before that."""
    trace: Any
    """A row per step until it is full: start, time, chunks, chunk tokens, decodes, running, blocks in use."""
    totals: Any
    """See RUNNING_US and on."""


RUNNING, WAITING, NEXT, FREE, TAKEN, DONE, ENDED, PREEMPTED, NEXT_CLOSED, BUDGET, COUNTERS = range(11)
"""Places in State.numbers: running and waiting requests, the next to arrive, free blocks, blocks taken so far, requests done,
of these in the last step, preemptions, the next of a closed loop, tokens left in the step; and how many places."""
CHUNKS, TOKENS, PAIRS, READ, WINDOW_PAIRS, WINDOW_READ, DECODES, CONTEXT, SUMS = range(9)
"""Places in State.sums: chunks, their tokens, their query-key pairs, keys they read, both in sliding layers, decodes, keys these read."""
RUNNING_US, BLOCKS_US, MOST_BLOCKS, BUSY_US, CHUNK_TOKENS, STEPS, TOTALS = range(7)
"""Places in Record.totals: running requests and blocks times µs, most blocks, µs of steps, tokens computed in chunks, steps."""
TRACE_COLUMNS = 7
