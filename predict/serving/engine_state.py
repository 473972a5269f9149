"""All that an engine's loop reads and writes, as tuples of arrays that numba can compile with it; lists do as well where it is not used."""

from typing import Any, NamedTuple

from predict.serving.batch import Seen

NEVER = 1e300


class Requests(NamedTuple):
    """Requests in order of arrival, one element each."""

    arrival: Any
    """µs. In a closed loop those beyond the first `in_flight` are written when others end."""
    prompt: Any
    """Tokens."""
    output: Any
    """Tokens."""
    chain_start: Any
    """Place in `chain` of each request's first segment; one element more than there are requests."""
    chain: Any
    """Segments of each request's tokens that others have too, from its first token on: nodes of a tree of prompts."""
    segment_start: Any
    """Whole blocks of a sequence before each segment."""
    segment_size: Any
    """Whole blocks of each segment."""
    remote: Any
    """Leading tokens of each request that another pool computes; 0 for none."""
    beside: Any
    """Blocks that it takes in addition to those of its tokens while it runs."""


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
    recv_interval: int
    """Steps of decodes alone between two looks for new requests."""
    gather_steps: int
    """Steps for which prompts wait beside decodes for more of them; 0 for none."""
    gather_tokens: float
    """Tokens of prompts and decodes with which they wait no longer."""
    reserving: int
    """A request joins only with blocks for its whole answer; 0 or 1."""
    seen: Seen
    """The keys that a query sees of layers with a window."""
    prompts_alone: int
    """A step has prompts or decodes, never both; 0 or 1."""
    own_nodes: int
    """The node of the first request's own blocks; those of the segments of the caches come before it."""
    hands_on: int
    """Whether another pool goes on with the keys and values of requests that end; 0 or 1."""
    distance: int
    """Places from a request of the pool that computes prompts to the one that goes on with it."""
    overlap: float
    """Share of a transfer that may hide behind the computing of what is sent, layer by layer."""
    coupled: int
    """The loop returns after each step in which a request ends, since another engine may have to learn of it; 0 or 1."""
    drafts: int
    """Draft tokens that each decode verifies; 0 for none."""
    watched_since: float
    """µs from which on times between tokens count."""
    watched_until: float
    """µs up to which they do."""
    accepted: Any
    """Draft tokens that a decode accepts, one element per decode; each request goes through them from a place of its own."""


class Levels(NamedTuple):
    """Places other than the engine's cache where keys and values are found, one element each: level 0 is a pool that computed them, the
    others are tiers of slower memory."""

    token_us: Any
    """µs to bring the keys and values of a token."""
    start_us: Any
    """µs before the first of them."""
    first_node: Any
    """The node of a tier's first segment."""
    own_nodes: Any
    """The node of the first request's own blocks."""
    ends: Any
    """The node that ends the tier's order of reuse; State.kept counts the blocks of the tier there."""
    capacity: Any
    """Blocks that a tier holds."""


class Table(NamedTuple):
    """The StepTable as the loop reads it: times per part of a sum are one array, in the order of the sums (see SUMS)."""

    decode_us: Any
    mixed_us: Any
    attention_us: Any
    window_attention_us: Any
    contexts: Any
    sums_us: Any
    floor_us: float
    decode_tokens: int
    """Tokens that a decode computes: its own and its drafts."""


class State(NamedTuple):
    """The engine between steps."""

    computed: Any
    """Tokens of each request whose keys and values are in the cache."""
    made: Any
    """Output tokens of each request."""
    held: Any
    """Blocks of each request's own."""
    base: Any
    """Blocks of its segments that each request holds, or held before it was preempted."""
    room: Any
    """Tokens that the blocks of each request and of its segments hold."""
    drafted: Any
    """Place of each request in `Rules.accepted`: the decodes with drafts that it has had, and where it began."""
    joined: Any
    """Segments of its chain that each request holds."""
    builds: Any
    """Place in the chain of the first segment that each request holds and has not computed in full."""
    following: Any
    """The request after each in the queue of its engine, or −1."""
    running: Any
    """Requests in order of admission; NUMBERS[RUNNING] of them count."""
    chunk: Any
    """Tokens in this step, by place in `running`."""
    waiting: Any
    """Preempted requests, the last of which comes first; NUMBERS[WAITING] of them count."""
    pulling: Any
    """Requests that wait for keys and values from elsewhere; NUMBERS[PULLS] of them count."""
    ended: Any
    """Requests that ended in the last step; NUMBERS[ENDED] of them count."""
    ready: Any
    """µs at which each of those has them; of one that computed them for another pool, at which they may be freed."""
    source: Any
    """Engine of another pool that holds the keys and values of each request, or −1."""
    began: Any
    """µs at which that engine began to compute them."""
    wanted: Any
    """Tokens that the request looked at could have from each level."""
    links: Any
    """µs up to which the link to each level is taken."""
    sending: Any
    """µs up to which the link out of each engine is taken."""
    holders: Any
    """Requests that hold the segment of each node."""
    kept: Any
    """Blocks of each node that are in its cache, its first ones: of a segment, or of what a request gave back of its own."""
    earlier: Any
    """The node before each in the order in which blocks are reused."""
    later: Any
    """The node after each; the first of a cache follows the node NUMBERS[ENDS], which closes the circle."""
    clock: Any
    """Start and end of the last step, when the engine can go on, and its last look for new requests, µs."""
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
    found: Any
    """Tokens of each request that the cache had when it was first scheduled."""
    trace: Any
    """A row per step until it is full: start, time, chunks, chunk tokens, decodes, running, blocks in use."""
    totals: Any
    """See RUNNING_US and on."""
    gaps: Any
    """Tokens of answers by the time since the one before, in the bins of `token_gaps`."""


RUNNING, WAITING, NEXT, LAST, FREE, UNUSED, FIRST_NODE, ENDS = range(8)
DONE, ENDED, PREEMPTED, NEXT_CLOSED, BUDGET, PULLS, LENT, UNSEEN, GATHERED, COUNTERS = range(8, 18)
"""Places in State.numbers: running and waiting requests, the first and the last of the queue or −1, free blocks, those of them that keep
nothing, the node of the cache's first segment, the node that ends its order of reuse, requests done, of these in the last step,
preemptions, the next of a closed loop, tokens left in the step, requests that wait for keys and values, the last of those that ended and
hold theirs for another pool, or −1, steps since the last look for new requests, steps for which prompts have waited for more of them; and
how many places."""
CHUNKS, TOKENS, PAIRS, READ, WINDOW_PAIRS, WINDOW_READ, DECODES, CONTEXT, WINDOW_KEYS, SUMS = range(10)
"""Places in State.sums: chunks, their tokens, their query-key pairs, keys they read, both in layers with a window, decodes, their tokens in
the cache, and the keys that they see in layers with a window."""
RUNNING_US, BLOCKS_US, MOST_BLOCKS, BUSY_US, CHUNK_TOKENS, STEPS, PULLED = range(7)
"""Places in Record.totals: running requests and blocks times µs, most blocks, µs of steps, tokens computed in chunks, steps, and the
first of the tokens brought from each level."""
TRACE_COLUMNS = 7
