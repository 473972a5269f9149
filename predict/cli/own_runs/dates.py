"""Dates as options give them: a day or a time that is over, told as this machine's local time."""

from __future__ import annotations

from datetime import datetime

from sampling.errors import UserError


def past_date(option: str, text: str | None) -> str:
    """The local time in ISO 8601, without a zone; empty where none is given. UserError for what is no date, and for the future."""
    from predict.own_runs.records import local_time

    if not text:
        return ""
    try:
        date = local_time(text)
    except ValueError:
        raise UserError(f"{option}: {text!r} is not a date; give it as in 2026-03-12 or 2026-03-12T10:22") from None
    if date > datetime.now():
        raise UserError(f"{option}: {text} is in the future; give the day of the run")
    return date.isoformat(timespec="seconds")
