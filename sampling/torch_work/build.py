"""Calls built in torch. The torch work of `sampling/X.py` is in `sampling/torch_work/X.py`: functions marked `@builds`."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, cast

import torch

from sampling.additions import add
from sampling.call import Call
from sampling.errors import SkippedError
from sampling.torch_work.workload_protocols import Workload

CallT = TypeVar("CallT", bound=Call)
Builder = Callable[[CallT, torch.device], Workload]
_BUILDERS: dict[type[Call], Builder[Any]] = {}


def builds(kind: type[CallT]) -> Callable[[Builder[CallT]], Builder[CallT]]:
    """Decorator: the function makes the workload of calls of this class, and of its subclasses without a builder."""

    def register(builder: Builder[CallT]) -> Builder[CallT]:
        add(_BUILDERS, kind, builder, "builders")
        return builder

    return register


def build(call: Call, device: torch.device) -> Workload:
    """Make the call's tensors and modules on a device. Raises SkippedError for a call that cannot run there."""
    builder = builder_of(type(call))
    if builder is None:
        raise SkippedError(
            f"{call.NAME}: nothing in sampling/torch_work builds it; add a function with @builds({type(call).__name__})"
        )
    return builder(call, device)


def builder_of(kind: type[Call]) -> Builder[Any] | None:
    """The builder of the class or of its nearest base class that has one."""
    for base in kind.__mro__:
        if base not in _BUILDERS:
            _import_torch_work(base.__module__)
        if base in _BUILDERS:
            return _BUILDERS[base]
    return None


def _import_torch_work(module: str) -> None:
    """Import the torch work of a module, if it has any, only now: the import of layers takes seconds."""
    package, _, name = module.partition(".")
    if package != "sampling":
        return
    torch_work = f"sampling.torch_work.{name}"
    try:
        importlib.import_module(torch_work)
    except ModuleNotFoundError as error:
        if not f"{torch_work}.".startswith(f"{error.name}."):
            raise


# The torch dtype of a dtype's name, and the context in which its products run.

Context = Callable[[], AbstractContextManager[Any]]


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of the elements. Raises SkippedError for one that plain operators do not take."""
    known = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if name not in known:
        raise SkippedError(f"operators of dtype {name!r} are not timed here, only those of {', '.join(known)}")
    return known[name]


def products_in(dtype: str) -> Context:
    """The context in which products of `dtype` run: tf32 is fp32 tensors that torch may round."""
    return _tf32_allowed if dtype == "tf32" else nullcontext


@contextmanager
def _tf32_allowed() -> Iterator[None]:
    matmul: Any = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        yield
    finally:
        matmul.fp32_precision = before


def fp8_dtype() -> torch.dtype:
    """E4M3 in the encoding that this machine multiplies; CDNA3 has its own."""
    if torch.version.hip and torch.cuda.is_available():
        architecture = str(torch.cuda.get_device_properties().gcnArchName)
        if architecture.startswith("gfx94"):
            return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn


# Functions and modules under torch.compile that can be timed repeatedly.

BACKEND = "inductor"

Work = TypeVar("Work", bound=Callable[..., Any])


def compiled(work: Work) -> Work:
    """`work`, compiled for fixed shapes on its first run, with a backward that can be repeated on one graph.

    By default a compiled backward reuses the memory of the tensors that forward saved, so that it can run only once; and a
    function that has met more shapes than the limit (8) runs eager from then on. Here that is an error.
    """
    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config

    functorch_config.donated_buffer = False
    dynamo_config.fail_on_recompile_limit_hit = True
    return cast(Work, torch.compile(work, backend=BACKEND, dynamic=False))


def forget_compiled() -> None:
    """Drop what earlier calls compiled: they count against the limit of shapes of the functions that this one shares with them."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
