"""Answers to what-if questions as text and JSON."""
