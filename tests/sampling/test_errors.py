"""Errors of several checks are reported together."""

import pytest

from sampling.errors import Checks, SamplesError, UserError


def test_the_error_that_ends_the_checks_is_reported_with_the_kept_ones() -> None:
    with pytest.raises(SamplesError) as caught, Checks() as checks:
        with checks.one():
            raise SamplesError("first")
        raise UserError("second")
    assert str(caught.value) == "first\nsecond"


def test_a_bug_within_the_checks_stays_one() -> None:
    with pytest.raises(KeyError), Checks() as checks:
        with checks.one():
            raise UserError("first")
        raise KeyError("bug")
