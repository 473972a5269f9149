"""Commands on reinforcement learning."""
