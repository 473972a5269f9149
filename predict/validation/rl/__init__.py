"""Published steps of reinforcement learning beside their predictions."""
