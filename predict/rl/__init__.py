"""One step of reinforcement learning: generation by the model of servers, training by the model of training steps."""
