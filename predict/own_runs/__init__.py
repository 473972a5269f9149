"""Runs of one's own: logs of training frameworks read and held against their configs, and a memory of runs that tells drift."""
