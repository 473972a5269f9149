"""Commands that write a run for other tools, and read theirs."""
