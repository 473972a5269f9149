"""Generation: the rollout of a step on its engines, in rounds or as a steady stream, and the queue before the trainer."""
