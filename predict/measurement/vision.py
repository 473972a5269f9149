"""A vision tower before a decoder in plain torch: patches of images become some of the text's tokens."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from predict.measurement.decoder import (
    DTYPES,
    INIT_STD,
    NORM_EPS,
    SEED,
    Block,
    Decoder,
    initialise,
    make_norm,
    rope_tables,
    run_layers,
)
from predict.model.patches import Patches, Projector
from predict.model.spec import ModelSpec
from predict.run.training_run import TrainingRun

CORNERS = 4  # rows of the table of positions that are weighed for a patch (transformers, modeling_qwen3_vl.py, `interp_indices`)


class Tower(nn.Module):
    """Patches [images, length, pixels] to tokens of the text [images, tokens, width of the text] (Dosovitskiy et al., arXiv
    2010.11929, then a projector over merged patches), and to what further projectors make of the hidden states after the first layers. The
    tokens of classes come first, and are left out at the end; merged patches are in the order of windows between."""

    def __init__(self, spec: ModelSpec, *, length: int, dtype: torch.dtype, recompute: bool) -> None:
        super().__init__()
        patches = _patches(spec)
        self.recompute, self.classes = recompute, patches.class_tokens
        self.into = nn.Linear(patches.pixels, spec.hidden, bias=patches.bias)
        self.class_tokens = _table(patches.class_tokens, spec.hidden)
        self.positions = _table(patches.positions, spec.hidden)
        self.embedding_norm = make_norm(spec) if spec.embedding_norm else None
        self.layers = nn.ModuleList(Block(spec, kind) for kind in spec.kinds())
        self.norm = make_norm(spec) if spec.final_norm else None
        first, *further = (Projection(each, patches.merged) for each in patches.projectors)
        self.projector, self.further = first, nn.ModuleList(further)
        self.apply(initialise).to(dtype)
        self.rope_tables = rope_tables(length, spec.head_dim, dtype) if spec.rope else None
        # the order of windows, which only the images' sides decide; any takes as long
        self.order = torch.arange(length // patches.merged).flip(0) if spec.window else None
        # four rows of the table around each patch, whichever; where images have any size alone
        self.corners = (
            torch.arange(CORNERS * length).view(CORNERS, -1) % patches.positions if patches.interpolates else None
        )

    def forward(self, pixels: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = self.into(pixels)
        if self.class_tokens is not None:
            x = torch.cat((self.class_tokens.expand(len(x), -1, -1), x), dim=1)
        if self.positions is not None:
            x = x + self._of_places(self.positions)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        if self.order is not None:
            x = x.unflatten(1, (len(self.order), -1))[:, self.order].flatten(1, 2)
        between: list[Tensor] = []
        x = run_layers(self.layers, x, self.rope_tables, recompute=self.recompute, between=between)
        if self.norm is not None:
            x = self.norm(x)
        tokens: Tensor = self.projector(x[:, self.classes :])
        added = [projector(states) for projector, states in zip(self.further, between, strict=False)]
        return tokens if self.order is None else tokens[:, self.order.argsort()], added

    def _of_places(self, table: Tensor) -> Tensor:
        """The positions of the patches, of four rows each where they are weighed."""
        if self.corners is None:
            return table
        return (F.embedding(self.corners, table) / CORNERS).sum(dim=0)


class Projection(nn.Module):
    """Products over merged patches [images, patches, hidden] → [images, patches / merged, width], with GELU between them."""

    def __init__(self, shape: Projector, merged: int) -> None:
        super().__init__()
        self.merged, self.pools, self.linear = merged, shape.pools, shape.linear
        norms = {"rms": nn.RMSNorm, "layer": nn.LayerNorm}
        self.norm = norms[shape.norm](shape.inputs, eps=NORM_EPS) if shape.norm else None
        self.products = nn.ModuleList(nn.Linear(each.inputs, each.outputs, bias=each.bias) for each in shape.matrices)

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(len(x), -1, self.merged, x.shape[-1])
        x = x.mean(dim=2) if self.pools else x.flatten(2)
        if self.norm is not None:
            x = self.norm(x)
        for place, product in enumerate(self.products):
            x = product(x)
            if self.linear <= place < len(self.products) - 1:
                x = F.gelu(x)
        return x


class WithImages(nn.Module):
    """A decoder whose first tokens of each sequence are its images': tokens [batch, seq] and pixels [batch, images, length, pixels] to
    logits."""

    def __init__(self, tower: Tower, decoder: Decoder) -> None:
        super().__init__()
        self.tower, self.decoder = tower, decoder

    def forward(self, tokens: Tensor, pixels: Tensor) -> Tensor:
        images, added = self.tower(pixels.flatten(0, 1))
        of_text = [each.reshape(len(tokens), -1, self.decoder.hidden) for each in (images, *added)]
        logits: Tensor = self.decoder(tokens, of_text[0], of_text[1:])
        return logits


def with_tower(run: TrainingRun, decoder: Decoder) -> nn.Module:
    """The decoder behind its vision tower, of which is trained what the run says; the decoder itself where there are no images."""
    tower, projector = run.tower, run.projector
    if tower is None or projector is None:
        return decoder
    torch.manual_seed(SEED)
    recompute = run.plan.recompute == "full" and not tower.adapters.are_trained
    built = Tower(tower.model, length=tower.batch.seq_len, dtype=DTYPES[run.precision], recompute=recompute)
    built.requires_grad_(not tower.adapters.are_trained)
    for part in (built.norm, built.projector, built.further):
        if part is not None:
            part.requires_grad_(not projector.adapters.are_trained)
    return WithImages(built, decoder)


def random_pixels(run: TrainingRun) -> Tensor | None:
    """Patches of the images of a step, [global batch, images, length, pixels]; None where there are none."""
    if run.tower is None:
        return None
    patches = _patches(run.tower.model)
    length = run.tower.batch.seq_len - patches.class_tokens
    generator = torch.Generator().manual_seed(SEED)
    shape = (run.batch.global_, run.vision.images, length, patches.pixels)
    return torch.randn(shape, generator=generator).to(DTYPES[run.precision])


def _patches(spec: ModelSpec) -> Patches:
    assert spec.patches is not None
    return spec.patches


def _table(rows: int, width: int) -> nn.Parameter | None:
    return nn.Parameter(torch.randn(rows, width) * INIT_STD) if rows else None
