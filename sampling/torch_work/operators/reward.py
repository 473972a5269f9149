"""Scores by a rule and advantages within a group in torch."""

import torch

from sampling.operators.reward import GroupReward
from sampling.torch_work.build import builds
from sampling.torch_work.workload import ColdWorkload

HIGHEST_TOKEN = 1000
SMALL = 1e-6


@builds(GroupReward)
def group_reward(call: GroupReward, device: torch.device) -> ColdWorkload:
    tokens = torch.randint(HIGHEST_TOKEN, (call.samples, call.tokens), device=device)
    real = torch.ones_like(tokens, dtype=torch.bool)

    def score() -> torch.Tensor:
        rewards = ((tokens % 2 == 0) & real).sum(dim=-1) / real.sum(dim=-1)
        groups = rewards.view(-1, call.group)
        spread = groups.std(dim=-1, correction=0, keepdim=True)
        return (groups - groups.mean(dim=-1, keepdim=True)) / (spread + SMALL)

    return ColdWorkload(score, device)
