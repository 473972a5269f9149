"""Every RL step that a config leaves open: the split of GPUs, the engines, and any key that is a list or a range."""
