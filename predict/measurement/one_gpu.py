"""A training run on one GPU: a whole decoder, layers run one operator after the other or compiled, trained for a span of time."""

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import AdamW, Optimizer

from predict.layers.run_json import load_run
from predict.measurement.decoder import DTYPES, SEED, Decoder, Training, next_token_loss, random_batch
from predict.measurement.gpu_steps import TIMED, WARM_UP, Span, Stepper, watched
from predict.measurement.mixture import busiest_expert, choose_products
from predict.measurement.reference_calls import ReferenceTimes
from predict.measurement.requirements import COMPILED
from predict.run.training_run import TrainingRun
from sampling.errors import UserError
from sampling.hardware.readings import read_device
from sampling.hardware.this_device import cpu_name


class MasterAdamW(AdamW):
    """torch's fused AdamW over fp32 copies of `weights`, which take the updated values after each step.

    State: 12 bytes per parameter (master and two moments, fp32) and 4 of gradient; a 16-bit gradient lives only until it is
    added to the fp32 one (Micikevicius et al., arXiv 1710.03740, section 3.1).
    """

    def __init__(self, weights: Iterable[Tensor], *, lr: float) -> None:
        self._weights = list(weights)
        self._masters = [weight.detach().float().requires_grad_() for weight in self._weights]
        for weight, master in zip(self._weights, self._masters, strict=True):
            weight.register_post_accumulate_grad_hook(partial(_collect, master))  # type: ignore[no-untyped-call]
        super().__init__(self._masters, lr=lr, fused=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        loss = super().step(closure)
        torch._foreach_copy_(self._weights, self._masters)
        return loss


def _collect(master: Tensor, weight: Tensor) -> None:
    """Move a weight's gradient to its master's, in fp32."""
    if weight.grad is None:
        return
    if master.grad is None:
        master.grad = weight.grad.float()
    else:
        master.grad += weight.grad
    weight.grad = None


LEARNING_RATE = 3e-4
"""The learning rate of Llama's small models (Touvron et al., arXiv 2302.13971, table 2): the loss neither stands still nor runs away."""
BACKENDS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
"""`execution.attention` → the kernel of torch's scaled_dot_product_attention; no other may take its place."""
INDUCTOR = "inductor"
REFERENCE_READINGS = 8
"""Readings of the device's pace after the steps, in a fifth of a second."""


def build_training(run: TrainingRun, device: torch.device, *, compiler: str = INDUCTOR) -> tuple[Training, str]:
    """The training of a run that `require_measurable` let pass, and the products that its experts run by ("" without experts).

    UserError for experts that cannot be compiled here.
    """
    with device:
        decoder = Decoder(
            run.model,
            first=0,
            last=run.model.layers,
            seq_len=run.batch.seq_len,
            dtype=DTYPES[run.precision],
            recompute=run.plan.recompute == "full",
            seed=SEED,
        )
    products = choose_products(decoder)
    if run.execution.framework == COMPILED:
        if products == "loop":
            raise UserError(
                f"execution.framework: {COMPILED}: torch has no grouped product here, and experts that run one after the other "
                "cannot be compiled; use torch-eager, or torch 2.9 or newer on a GPU of compute capability 8.0 or more"
            )
        compile_layers(decoder, compiler)
    training = Training(
        module=decoder,
        optimizers=[make_optimizer(decoder, run.precision)],
        passes=passes_of(run, decoder, device),
        parameters=sum(parameter.numel() for parameter in decoder.parameters()),
    )
    return training, products


def compile_layers(decoder: Decoder, compiler: str) -> None:
    """Compile each layer by itself, as one graph of fixed shapes; all layers of a kind share the result.

    A layer that torch would silently run eagerly, past its limit of recompilations, is an error.
    """
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    for layer in decoder.layers:
        layer.compile(backend=compiler, fullgraph=True, dynamic=False)


def make_optimizer(module: nn.Module, precision: str) -> Optimizer:
    """Fused AdamW: on fp32 weights themselves, or on fp32 masters of 16-bit ones."""
    if precision == "fp32":
        return AdamW(module.parameters(), lr=LEARNING_RATE, fused=True)
    return MasterAdamW(module.parameters(), lr=LEARNING_RATE)


def passes_of(run: TrainingRun, decoder: Decoder, device: torch.device) -> Callable[[], Tensor]:
    """Microbatch after microbatch, forward and backward; returns the mean loss."""
    tokens, targets = (each.to(device) for each in random_batch(run, replica=0))
    microbatches = list(zip(torch.split(tokens, run.batch.micro), torch.split(targets, run.batch.micro), strict=True))

    def passes() -> Tensor:
        total = torch.zeros((), device=device)
        # recomputation runs attention again in the backward, so the kernel is pinned for both
        with sdpa_kernel(BACKENDS[run.execution.attention]):
            for inputs, wanted in microbatches:
                loss = next_token_loss(decoder(inputs), wanted) / len(microbatches)
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.detach()
        return total

    return passes


def train(
    run: TrainingRun, device: torch.device, *, warm_up: Span, timed: Span, compiler: str = INDUCTOR
) -> dict[str, Any]:
    """Train the run and return times, losses, memory, clock and power, in the shape that `predict.measurement.real_step` reads."""
    training, products = build_training(run, device, compiler=compiler)
    stepper = Stepper(step=lambda: _started(training), wait=_waiter(device), now_s=time.perf_counter)
    warm = stepper.run(warm_up)
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    with watched(_uuid(device), lambda: read_device(device)) as readings:
        steps = stepper.run(timed)
    reading = readings.mean()
    peaks = _peaks(device)
    return {
        "wall_s": [step.wall_s for step in steps],
        "losses": [step.loss for step in (*warm, *steps)],
        "parameters": training.parameters,
        "versions": _versions(),
        "device": {
            "name": torch.cuda.get_device_name(device) if on_gpu else cpu_name(),
            "clock_mhz": reading.clock_mhz,
            "power_w": reading.power_w,
            **peaks,
            "attention": run.execution.attention,
            "expert_products": products,
            "busiest_expert": _busiest_expert(run, training, device),
        },
        **(_references(run, device) if on_gpu else {}),
    }


def _peaks(device: torch.device) -> dict[str, int | None]:
    """The most memory that tensors, and the allocator, had since it was last counted; None on a CPU."""
    if device.type != "cuda":
        return {"peak_allocated_bytes": None, "peak_reserved_bytes": None}
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(device),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device),
    }


def _references(run: TrainingRun, device: torch.device) -> dict[str, Any]:
    """The reference calls right after the steps, while the device has their clock: they need memory, which no peak shall contain. Nothing
    where the training leaves too little of it."""
    torch.cuda.empty_cache()
    try:
        times = ReferenceTimes(run.cluster, device)
        for _ in range(REFERENCE_READINGS):
            times.read()
    except torch.cuda.OutOfMemoryError:
        return {}
    return {"references": asdict(times.summary())}


def _busiest_expert(run: TrainingRun, training: Training, device: torch.device) -> float | None:
    tokens = random_batch(run, replica=0)[0][: run.batch.micro].to(device)
    # the hooks that count are not part of what was compiled
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        return busiest_expert(training.module, lambda: training.module(tokens))


def _started(training: Training) -> Callable[[], float]:
    """Start a step; the function returned reads its loss."""
    loss = training.step()
    assert loss is not None
    return lambda: float(loss.item())


def _waiter(device: torch.device) -> Callable[[], None]:
    return (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda: None)


def _uuid(device: torch.device) -> str:
    """The GPU's id as nvidia-smi takes it, which no list of visible devices renumbers."""
    if device.type != "cuda":
        return "none"
    return f"GPU-{getattr(torch.cuda.get_device_properties(device), 'uuid', 'unknown')}"


def _versions() -> dict[str, str]:
    runtime = torch.version.cuda or torch.version.hip
    return {"torch": torch.__version__, **({"cuda" if torch.version.cuda else "rocm": runtime} if runtime else {})}


def body(run: str, steps: int | None, device: str) -> dict[str, Any]:
    """The report of a run as `predict.layers.run_json` writes it, over `steps` timed steps or, for None, ten seconds of them.

    UserError for a run that cannot be trained here.
    """
    timed = Span(seconds=0.0, steps=steps) if steps else TIMED
    try:
        return train(load_run(run), torch.device(device), warm_up=WARM_UP, timed=timed)
    except torch.cuda.OutOfMemoryError as error:
        raise UserError(str(error)) from error
