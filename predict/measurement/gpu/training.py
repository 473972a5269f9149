"""A training run on one device: a whole decoder, layers run one operator after the other or compiled, no process group."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import AdamW, Optimizer

from predict.measurement.gpu.master_adamw import MasterAdamW
from predict.measurement.gpu.requirements import COMPILED
from predict.measurement.models.mixture import choose_products
from predict.measurement.models.real_model import Decoder, next_token_loss
from predict.measurement.training_step import DTYPES, SEED, Training, random_batch
from predict.run.training_run import TrainingRun
from sampling.errors import UserError

LEARNING_RATE = 3e-4
"""That of Llama's small models (Touvron et al., arXiv 2302.13971, table 2): the loss neither stands still nor runs away."""
BACKENDS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
"""`execution.attention` → the kernel of torch's scaled_dot_product_attention; no other may take its place."""
INDUCTOR = "inductor"


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
