"""Steps of reinforcement learning, as text and JSON."""
