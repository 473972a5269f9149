"""One rank's share of a training run, built with torch's own parallelism: DTensor, DDP, ZeRO and pipelining.

Ranks are laid out with tensor parallelism innermost, then data parallelism, then pipeline stages.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

from predict.measurement.decoder import DTYPES, SEED, Decoder, Training, next_token_loss, random_batch
from predict.measurement.lora import with_adapters
from predict.measurement.vision import random_pixels, with_tower
from predict.run.training_run import TrainingRun
from predict.schedules import registry, torch_csv
from sampling.files.disk import scratch_folder


def parallelize(model: Decoder, mesh: DeviceMesh, *, sequence_parallel: bool, gated: bool) -> None:
    """Shard a decoder (or a stage of one) in place over a one-dimensional mesh, laid out as torch's own tutorials of DTensor do.

    Column-parallel query, key, value, gate and up; row-parallel output and down; vocabulary-parallel embedding, head and
    loss. Attention and MLP take their input once (one gather, or one all-reduce of its gradient), not once a matrix.
    With sequence parallelism, norms and residuals hold 1/tp of the sequence.
    Without sequence parallelism the norms' weights stay plain tensors, replicated and with equal gradients.
    """
    residual: Placement = Shard(1) if sequence_parallel else Replicate()
    styles: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=residual),
        "positions": RowwiseParallel(input_layouts=Replicate(), output_layouts=residual),
        "head": ColwiseParallel(input_layouts=residual, output_layouts=Shard(-1), use_local_output=False),
    }
    if sequence_parallel:
        styles["norm"] = SequenceParallel()
    for name, style in styles.items():
        if getattr(model, name) is not None:
            parallelize_module(model, mesh, {name: style})
    for layer in model.layers:
        parallelize_module(layer, mesh, layer_styles(residual, gated=gated))
    # Sharding gave embedding and head a parameter each.
    model.tie()


def layer_styles(residual: Placement, *, gated: bool) -> dict[str, ParallelStyle]:
    """The style of each part of a layer whose residual stream is laid out as `residual`."""
    styles: dict[str, ParallelStyle] = {
        "attention": PrepareModuleInput(input_layouts=(residual, None), desired_input_layouts=(Replicate(), None)),
        "attention.q": ColwiseParallel(),
        "attention.k": ColwiseParallel(),
        "attention.v": ColwiseParallel(),
        "attention.o": RowwiseParallel(output_layouts=residual),
        "mlp": PrepareModuleInput(input_layouts=(residual,), desired_input_layouts=(Replicate(),)),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=residual),
    }
    if gated:
        styles["mlp.gate"] = ColwiseParallel()
    if isinstance(residual, Shard):
        styles["attention_norm"] = SequenceParallel()
        styles["mlp_norm"] = SequenceParallel()
    return styles


LEARNING_RATE = 1e-3
PIPELINES = {"afab": ScheduleGPipe, "1f1b": Schedule1F1B}


def build_training(run: TrainingRun) -> Training:
    """Build this rank's model, optimizer and data; with more than one rank, torch.distributed must be initialised."""
    plan = run.plan
    alone = plan.tp * plan.dp * plan.pp == 1
    mesh = None if alone else init_device_mesh("cpu", (plan.pp, plan.dp, plan.tp), mesh_dim_names=("pp", "dp", "tp"))
    decoders = build_chunks(run, mesh.get_local_rank("pp") if mesh else 0)
    if run.adapters.are_trained:
        with_adapters(decoders[0], run.model, run.adapters)
    if mesh and plan.tp > 1:
        for decoder in decoders:
            parallelize(decoder, mesh["tp"], sequence_parallel=plan.sp, gated=run.model.gated)
    modules: list[nn.Module] = [with_tower(run, decoder) for decoder in decoders]
    if mesh and plan.dp > 1:
        # The pipeline's shape inference runs a backward that DDP records and never sees end, so that regrouping its
        # buckets fails ("rebuilt parameter indices size"); it does not regroup where parameters may be unused.
        group, pipelined = mesh.get_group("dp"), plan.pp > 1
        modules = [
            DistributedDataParallel(decoder, process_group=group, find_unused_parameters=pipelined)
            for decoder in decoders
        ]
    pixels = random_pixels(run)
    tokens, targets = random_batch(run, replica=mesh.get_local_rank("dp") if mesh else 0)
    loss_context = loss_parallel if plan.tp > 1 else nullcontext
    passes: Callable[[], Tensor | None]
    if mesh and plan.pp > 1:
        passes = pipeline(run, modules, mesh, tokens, targets, loss_context)
    else:
        inputs = (tokens,) if pixels is None else (tokens, pixels)
        passes = accumulation(run, modules[0], inputs, targets, loss_context)
    module = modules[0] if len(modules) == 1 else nn.ModuleList(modules)
    return Training(
        module=module,
        optimizers=make_optimizers(module, mesh, zero=plan.zero),
        passes=passes,
        parameters=sum(to_local(parameter).numel() for parameter in module.parameters()),
    )


def build_chunks(run: TrainingRun, rank: int) -> list[Decoder]:
    """The stages of the model that a pipeline rank holds, as the run's schedule lays them out."""
    placement = run.schedule.placement(run.plan.pp, run.plan.vpp)
    return [build_stage(run, stage, placement.depth) for stage in placement.stages[rank]]


def build_stage(run: TrainingRun, stage: int, stages: int) -> Decoder:
    """A pipeline stage's share of the model; the first stages take the layers that do not divide evenly."""
    even, extra = divmod(run.model.layers, stages)
    first = stage * even + min(stage, extra)
    return Decoder(
        run.model,
        first=first,
        last=first + even + (stage < extra),
        seq_len=run.batch.seq_len,
        dtype=DTYPES[run.precision],
        recompute=run.plan.recompute == "full",
        seed=SEED,
    )


def make_optimizers(module: nn.Module, mesh: DeviceMesh | None, *, zero: int) -> list[Optimizer]:
    """Fused AdamW over what is trained of the module; two of them where some parameters are sharded and some plain (it refuses a mix)."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if zero and mesh:
        group = mesh.get_group("dp")
        settings: dict[str, Any] = {"lr": LEARNING_RATE, "fused": True}
        return [ZeroRedundancyOptimizer(trained, AdamW, process_group=group, **settings)]
    sharded = [parameter for parameter in trained if isinstance(parameter, DTensor)]
    plain = [parameter for parameter in trained if not isinstance(parameter, DTensor)]
    return [AdamW(group, lr=LEARNING_RATE, fused=True) for group in (sharded, plain) if group]


def accumulation(
    run: TrainingRun,
    module: nn.Module,
    inputs: Sequence[Tensor],
    targets: Tensor,
    loss_context: Callable[[], AbstractContextManager[Any]],
) -> Callable[[], Tensor]:
    """Microbatch after microbatch of `inputs`, all of whose first dimension is the batch, on a whole model; replicas average their
    gradients during the last backward only."""
    microbatches = list(zip(*(torch.split(each, run.batch.micro) for each in (*inputs, targets)), strict=True))
    replicas = module if isinstance(module, DistributedDataParallel) else None

    def passes() -> Tensor:
        total = torch.zeros(())
        for index, (*seen, wanted) in enumerate(microbatches, start=1):
            with replicas.no_sync() if replicas and index < len(microbatches) else nullcontext(), loss_context():
                loss = next_token_loss(module(*seen), wanted) / len(microbatches)
                loss.backward()  # type: ignore[no-untyped-call]
            total += to_local(loss.detach())
        return total

    return passes


def pipeline(
    run: TrainingRun,
    modules: Sequence[nn.Module],
    mesh: DeviceMesh,
    tokens: Tensor,
    targets: Tensor,
    loss_context: Callable[[], AbstractContextManager[Any]],
) -> Callable[[], Tensor | None]:
    """torch's own pipeline schedule over this rank's stages; only the last stage knows the loss."""
    rank = mesh.get_local_rank("pp")
    placement = run.schedule.placement(run.plan.pp, run.plan.vpp)
    held, group = placement.stages[rank], mesh.get_group("pp")
    stages = [
        PipelineStage(module, stage, placement.depth, torch.device("cpu"), group=group)
        for module, stage in zip(modules, held, strict=True)
    ]
    schedule = torch_schedule(run, stages)
    inputs = (tokens,) if 0 in held else ()

    def passes() -> Tensor | None:
        losses: list[Tensor] = []
        last = {"target": targets, "losses": losses} if placement.depth - 1 in held else {}
        with loss_context():
            schedule.step(*inputs, **last, return_outputs=False)
        return torch.stack([to_local(loss.detach()) for loss in losses]).mean() if losses else None

    return passes


def torch_schedule(run: TrainingRun, stages: list[PipelineStage]) -> Any:
    """torch's class for the schedule where it has one for a single stage a rank; else its runtime, with our order."""
    settings: dict[str, Any] = {"n_microbatches": run.microbatches, "loss_fn": next_token_loss}
    if run.plan.schedule in PIPELINES:
        return PIPELINES[run.plan.schedule](stages[0], **settings)
    order = registry.order(run.schedule, ranks=run.plan.pp, chunks=run.plan.vpp, microbatches=run.microbatches)
    schedule = _PipelineScheduleRuntime(stages, **settings)  # type: ignore[no-untyped-call]
    with scratch_folder("order") as folder:
        path = folder / "order.csv"
        path.write_text(torch_csv.dump(order))
        schedule._load_csv(str(path))
    return schedule


def to_local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor that may be sharded or replicated."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
