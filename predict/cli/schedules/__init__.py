"""The command `predict schedule`: its options, the times of its schedules, and its files."""
