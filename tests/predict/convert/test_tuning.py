"""Kinds of tuning as other tools state them."""

from __future__ import annotations

from predict.convert.tuning import in_sequences


def test_a_pair_is_two_sequences_in_a_tools_usual_batch_too() -> None:
    sections = {"tuning": {"task": "dpo"}, "batch": {"global": 64}, "usual": {"batch": {"micro": 8}}}
    assert in_sequences(sections) == {
        "tuning": {"task": "dpo"},
        "batch": {"global": 128},
        "usual": {"batch": {"micro": 16}},
    }
    assert in_sequences({"batch": {"micro": 8}}) == {"batch": {"micro": 8}}
