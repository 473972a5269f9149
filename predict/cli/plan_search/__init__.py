"""The command `predict search`: its options, its progress and its files."""
