"""The calls of a server's steps that are worth timing: those at which its kernels are priced."""

from __future__ import annotations

from collections.abc import Iterator

from predict.serving.kernels.calls import decode_attention, head_kernels, prefill_attention, token_kernels
from predict.serving.kernels.features import PROMPT, priced_batches, priced_keys, priced_tokens
from predict.serving.server import Server
from sampling.call import Counted, Request


def requests_of_server(server: Server) -> list[Request]:
    """Each call once. Keys beyond the model's positions are left to what is learnt from the others."""
    calls = dict.fromkeys(one.call for one in _kernels(server))
    return [Request(call=call, phases=("forward",)) for call in calls]


def _kernels(server: Server) -> Iterator[Counted]:
    engine, most = server.engine, server.model.max_positions
    for tokens in priced_tokens(engine):
        for found in (token_kernels(server, tokens), head_kernels(server, min(tokens, engine.max_num_seqs))):
            for calls in found.values():
                yield from calls
    for batch in priced_batches(engine):
        for keys in priced_keys(server):
            if not most or keys <= most:
                yield from decode_attention(server, batch, keys)
    yield from prefill_attention(server, PROMPT)
