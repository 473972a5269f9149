"""Lessons of published runs: widths of intervals and constants, each judged on sources left out."""
