"""One step of reinforcement learning: generation by the model of servers, training by the model of training steps.

From a config to a step, read `config` and `section` (what is stated), `step` (the phases put together), `rollout` (generation), `training`
(updates and passes), `phases` (factors, moving of samples, weight sync), `memory`, and `plain_torch` (a step that samples price).
"""
