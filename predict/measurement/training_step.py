"""The parts that every real step has in common, however it is spread: the seed, the batch, and the order of a training step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from predict.run.training_run import TrainingRun

SEED = 0
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """`passes` runs forward and backward of the whole batch; it returns this rank's mean loss, None where it has none."""

    module: nn.Module
    optimizers: Sequence[Optimizer]
    passes: Callable[[], Tensor | None]
    parameters: int
    """Parameters that this rank holds."""

    def step(self) -> Tensor | None:
        """One whole training step, from clearing the gradients to the updated weights."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = self.passes()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss


def random_batch(run: TrainingRun, *, replica: int) -> tuple[Tensor, Tensor]:
    """Tokens and next tokens, [global batch / dp, seq] each: this replica's rows of one batch that all plans share.

    The same batch serves every step, so that a loss that falls shows that the step really trains.
    """
    batch = run.batch
    generator = torch.Generator().manual_seed(SEED)
    sequences = torch.randint(run.model.vocab, (batch.global_, batch.seq_len + 1), generator=generator)
    mine = sequences.chunk(run.plan.dp)[replica]
    return mine[:, :-1].contiguous(), mine[:, 1:].contiguous()
