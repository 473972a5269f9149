"""Closed loops that others measured, beside their predictions."""
