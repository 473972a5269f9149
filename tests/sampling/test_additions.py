"""Two additions of one name are an error, wherever they are found."""

from collections.abc import Callable
from functools import partial
from types import ModuleType

import pytest

from predict.huggingface import families
from predict.huggingface.families import llama
from predict.prices.kernels.formulas import formula_of
from predict.prices.kernels.products import gemm_us
from sampling import importers
from sampling.importers import nccl_tests
from sampling.operators.gemm import Gemm
from sampling.torch_work.build import builder_of, builds


@pytest.mark.parametrize(
    ("package", "module", "found"),
    [
        (families, llama, partial(families._found, "FAMILIES")),
        (importers, nccl_tests, importers.importers),
    ],
    ids=["model families", "importers"],
)
def test_two_files_of_one_name(
    package: ModuleType, module: ModuleType, found: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "modules_of", lambda name: (module, module))
    with pytest.raises(ValueError, match=r"^two .* are named"):
        found()


def test_two_functions_for_one_class() -> None:
    builder = builder_of(Gemm)
    assert builder is not None
    with pytest.raises(ValueError, match=r"^two builders are named"):
        builds(Gemm)(builder)
    with pytest.raises(ValueError, match=r"^two formulas are named"):
        formula_of(Gemm)(gemm_us)
