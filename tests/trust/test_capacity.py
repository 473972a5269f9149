"""More of anything carries no less, on servers drawn at random; `python -m tests.trust.capacity` tries more of them."""

from __future__ import annotations

from tests.trust.capacity import tried

SERVERS = range(1000, 1002)


def test_random_servers_carry_no_less_with_more() -> None:
    assert tried(SERVERS) == {}
