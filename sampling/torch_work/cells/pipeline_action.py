"""A pipeline of next to no compute by torch's pipelining."""

import torch
from torch.distributed import get_rank

from sampling.cells.pipeline_action import MICROBATCHES, RANKS, PipelineAction
from sampling.torch_work.build import builds, torch_dtype
from sampling.torch_work.workload import StepWorkload


@builds(PipelineAction)
def pipeline_action(call: PipelineAction, device: torch.device) -> StepWorkload:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, dtype = get_rank(), torch_dtype(call.dtype)
    module = torch.nn.PReLU(device=device, dtype=dtype)
    stage = PipelineStage(module, rank, RANKS, device)
    schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=lambda output, target: output[0, 0])
    batch = torch.randn(MICROBATCHES, call.size_bytes // call.item_bytes, device=device, dtype=dtype)

    def step() -> None:
        if rank == 0:
            schedule.step(batch)
        else:
            schedule.step(target=batch, losses=[])

    return StepWorkload(step)
