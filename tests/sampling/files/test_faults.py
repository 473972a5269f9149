"""Names that a word may stand for."""

import pytest

from sampling.files.faults import did_you_mean
from sampling.hardware.cluster import known_hardware


def test_a_word_that_begins_names_stands_for_them() -> None:
    assert did_you_mean("h100", known_hardware()) == "; did you mean 'h100-96gb' or 'h100-pcie' or 'h100-sxm'?"


@pytest.mark.parametrize("word", ["1F1B", "1f1", "1FB1"])
def test_the_case_of_letters_does_not_count(word: str) -> None:
    assert did_you_mean(word, ["afab", "1f1b", "zbv"]) == "; did you mean '1f1b'?"


def test_nothing_is_near_a_word_of_its_own() -> None:
    assert did_you_mean("quux", ["afab", "1f1b"]) == did_you_mean(7, ["7"]) == ""
