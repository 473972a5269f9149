"""A traced step under another plan, by the paces that the trace shows."""
