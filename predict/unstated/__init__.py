"""Runs whose settings are partly unknown: the runs that they may be, and one answer for all of them."""
