"""The torch dtype of a dtype's name, and the context in which its products run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from sampling.errors import SkippedError

if TYPE_CHECKING:
    import torch

Context = Callable[[], AbstractContextManager[Any]]


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of the elements. Raises SkippedError for one that plain operators do not take."""
    import torch

    known = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if name not in known:
        raise SkippedError(f"operators of dtype {name!r} are not timed here, only those of {', '.join(known)}")
    return known[name]


def products_in(dtype: str) -> Context:
    """The context in which products of `dtype` run: tf32 is fp32 tensors that torch may round."""
    return _tf32_allowed if dtype == "tf32" else nullcontext


@contextmanager
def _tf32_allowed() -> Iterator[None]:
    import torch

    matmul: Any = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        yield
    finally:
        matmul.fp32_precision = before


def fp8_dtype() -> torch.dtype:
    """E4M3 in the encoding that this machine multiplies; CDNA3 has its own."""
    import torch

    if torch.version.hip and torch.cuda.is_available():
        architecture = str(torch.cuda.get_device_properties().gcnArchName)
        if architecture.startswith("gfx94"):
            return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn
