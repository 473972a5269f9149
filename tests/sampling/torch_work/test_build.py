"""Finding the function that builds a call in torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from sampling.arithmetic.operator import FORWARD_BACKWARD, Operator
from sampling.call import Phase, registry
from sampling.errors import SkippedError
from sampling.operators.gemm import Gemm
from sampling.torch_work.build import build, builder_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Unbuilt(Operator):
    NAME: ClassVar[str] = "unbuilt"
    PHASES: ClassVar[tuple[Phase, ...]] = FORWARD_BACKWARD

    def bytes_moved(self, phase: Phase) -> float:
        return 1.0


class WiderGemm(Gemm):
    """A subclass without a builder of its own."""


def test_every_registered_call_has_torch_work() -> None:
    assert [name for name, kind in registry().items() if builder_of(kind) is None] == []


def test_a_subclass_is_built_as_its_base_class() -> None:
    assert builder_of(WiderGemm) is builder_of(Gemm)


def test_a_call_without_torch_work_says_how_to_add_it() -> None:
    with pytest.raises(SkippedError, match=r"unbuilt: nothing in sampling/torch_work.*@builds\(Unbuilt\)"):
        build(Unbuilt(dtype="fp32"), torch.device("cpu"))


def test_the_arithmetic_of_all_calls_needs_no_torch() -> None:
    code = "import sys; from sampling.call import registry; registry(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
