"""More of anything carries no less, on servers drawn at random; `python -m tests.trust.capacity` tries more of them."""

from tests.trust.capacity import tried

SERVERS = (1000, 1001, 1006)
"""The last one's cache holds a quarter of the requests that it may run, so that it preempts."""


def test_random_servers_carry_no_less_with_more() -> None:
    assert tried(SERVERS) == {}
