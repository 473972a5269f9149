"""What a dtype's name asks of torch: the tensors' own dtype, and the state in which products run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from sampling.errors import SkippedError

if TYPE_CHECKING:
    import torch

Context = Callable[[], AbstractContextManager[Any]]


def torch_dtype(name: str) -> torch.dtype:
    """torch's dtype of the elements; SkippedError for one that a plain tensor operator does not take."""
    import torch

    known = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if name not in known:
        raise SkippedError(f"operators of dtype {name!r} are not timed here, only those of {', '.join(known)}")
    return known[name]


def products_in(dtype: str) -> Context:
    """The state that products of `dtype` run in: tf32 is fp32 tensors with torch's leave to round them."""
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
    """E4M3 in the encoding that this machine multiplies: the CDNA3 generation has one of its own."""
    import torch

    if torch.version.hip and torch.cuda.is_available():
        architecture = str(torch.cuda.get_device_properties().gcnArchName)
        if architecture.startswith("gfx94"):
            return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn
