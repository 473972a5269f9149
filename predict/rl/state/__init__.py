"""The state of an RL run: what lies on a GPU or in the host's memory, what offload moves, what a checkpoint writes."""
