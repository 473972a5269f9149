"""Replay: a traced step under another plan: the paces that the trace tells, prices by them, and terms by their origin."""
