"""Floors: step time and memory that a plan cannot undercut, at a small part of the cost of its full estimate."""
