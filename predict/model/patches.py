"""Patches of images in place of a vocabulary: what a vision tower or a diffusion transformer reads, and what becomes of its output. Of the
encoder of an encoder–decoder they are frames of sound, or tokens of a table that the decoder has."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sampling.cells.matrices import Matrix

SCALES_AND_SHIFTS = {"rms": 1, "layer": 2, "": 0}
"""Parameters of a norm over its width, by kind."""


def chain(widths: Sequence[int], *, bias: bool) -> tuple[Matrix, ...]:
    """Products one after the other, each as wide as the next one's input."""
    return tuple(
        Matrix(product="projector", outputs=outputs, inputs=inputs, bias=bias) for inputs, outputs in pairwise(widths)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Projector:
    """Products that make tokens of the text of merged patches."""

    matrices: tuple[Matrix, ...]
    linear: int = 0
    """The first so many of them have no activation after them, as the last has none."""
    pools: bool = False
    """It reads the mean of the merged patches rather than all of them in a row."""
    norm: str = ""
    """Kind of the norm of what it reads, rms or layer; empty for none."""
    reads_stream: bool = False
    """It reads the residual stream between two layers, which the next one keeps."""

    @property
    def inputs(self) -> int:
        """Width of what it reads."""
        return self.matrices[0].inputs

    @property
    def activated(self) -> tuple[Matrix, ...]:
        """The products that an activation follows."""
        return self.matrices[self.linear : -1]

    @property
    def elements(self) -> int:
        """Elements of the matrices, which multiply each token that it makes."""
        return sum(matrix.elements for matrix in self.matrices)

    @property
    def parameters(self) -> int:
        return sum(matrix.parameters for matrix in self.matrices) + SCALES_AND_SHIFTS[self.norm] * self.inputs


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditioning:
    """The products by which a diffusion transformer conditions its layers on the time and the text or class of each sample."""

    matrices: tuple[Matrix, ...]
    """Products over one row a sample: those of its time, and of what modulates the output."""
    text: tuple[Matrix, ...] = ()
    """Products over each token of its text."""
    tokens: int = 0
    """Tokens of the text."""
    tables: int = 0
    """Rows of learnt tables as wide as the model: classes, and what modulates the output."""

    @property
    def elements(self) -> int:
        """Multiplications of a sample."""
        return sum(each.elements for each in self.matrices) + self.tokens * sum(each.elements for each in self.text)

    def parameters(self, hidden: int) -> int:
        return sum(each.parameters for each in (*self.matrices, *self.text)) + self.tables * hidden


@dataclass(frozen=True, kw_only=True, slots=True)
class Stem:
    """Two convolutions in place of a product over patches: of each frame and its neighbours, and of what that makes, at every `stride`-th
    place (Radford et al., Whisper, arXiv 2212.04356, section 2.2). An activation follows each."""

    second: Matrix
    """Of the second one. The first is the product over `Patches.pixels`."""
    kernel: int
    """Neighbours that each of them sees, the frame's own place included."""
    stride: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Patches:
    """A product over the pixels of each patch in place of an embedding, and projectors in place of a head."""

    pixels: int
    """Inputs of that product: channels · frames · height · width of a patch."""
    bias: bool
    """The product has a bias."""
    positions: int = 0
    """Rows of a table of learnt positions, beside rotary ones or in their place; 0 without one."""
    interpolates: bool = False
    """A patch's position are four rows of the table, weighed, since images have any size."""
    class_tokens: int = 0
    """Learnt tokens that join the patches of each image and become none of the text."""
    kept_class_tokens: int = 0
    """Learnt tokens that join them and become tokens of the text too."""
    padding: int = 0
    """Places that fill up the sequence of an image: they are computed, and become none of the text."""
    text_tokens: int = 0
    """Tokens of a text that stand in the sequence beside the patches, as in Flux: they have no pixels, and nothing is made of them."""
    gates: int = 0
    """Learnt numbers that gate the positions."""
    merged: int
    """Patches that become one token of the text."""
    tokens: int = 0
    """Tokens of the text that an image becomes where all images have one size; 0 where the run says how many."""
    of_sequences: bool = False
    """It reads one sequence for each of the decoder's, in place of images."""
    table: int = 0
    """Rows of the decoder's embedding, which it looks up in place of multiplying pixels; 0 where it has pixels."""
    stem: Stem | None = None
    """Convolutions in which frames of sound become tokens."""
    conditioning: Conditioning | None = None
    """That of a diffusion transformer."""
    joins_text: bool = True
    """Tokens that the projectors make take places among those of a text; without, they are the output, or are attended to."""
    attended: bool = False
    """Layers of the model around it attend to what it makes, which all of them share."""
    projectors: tuple[Projector, ...]
    """All of them read the same patches: Qwen3-VL has one for the embedding, and one for each of the text's first layers."""

    def input_parameters(self, hidden: int) -> int:
        """The product over pixels, the positions, the learnt tokens and the conditioning of a model `hidden` wide."""
        beside = self.conditioning.parameters(hidden) if self.conditioning else 0
        beside += self.stem.second.parameters if self.stem else 0
        return hidden * (self.pixels + self.bias + self.positions + self.class_tokens) + self.gates + beside

    @property
    def output_elements(self) -> int:
        """Elements of the projectors' matrices, which multiply each token of the text."""
        return sum(projector.elements for projector in self.projectors)

    @property
    def output_parameters(self) -> int:
        return sum(projector.parameters for projector in self.projectors)

    def length(self, tokens: int) -> int:
        """Length of the sequence that the tower sees of an image that becomes so many tokens of the text."""
        return tokens * self.merged + self._without_patches

    def tokens_of(self, length: int) -> int:
        """Tokens of the text that a sequence of the tower becomes."""
        return max(0, length - self._without_patches) // self.merged

    @property
    def _without_patches(self) -> int:
        return self.class_tokens + self.padding + self.text_tokens

    def with_pixels(self, length: int) -> int:
        """Patches, or frames, of a sequence of the tower, which alone have pixels."""
        frames = self.stem.stride if self.stem else 1
        return (self.tokens_of(length) * self.merged - self.kept_class_tokens) * frames

    def stem_elements(self, length: int) -> int:
        """Multiplications of the second convolution over a sequence of the tower."""
        return self.tokens_of(length) * self.stem.second.elements if self.stem else 0
