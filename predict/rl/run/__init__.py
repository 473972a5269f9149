"""The run of an RL config: its section, the samples of a step, and reading both."""
