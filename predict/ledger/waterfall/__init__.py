"""The step as a waterfall: its time by what bounds it, each bar with its interval."""
