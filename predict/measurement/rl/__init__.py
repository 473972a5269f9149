"""A step of reinforcement learning run for real on a CPU, in plain torch."""
