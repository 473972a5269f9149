"""Formulas for the time of operators that are more than their traffic, by the class of operator."""

from collections.abc import Callable
from typing import Any, TypeVar

from sampling.additions import add
from sampling.arithmetic.operator import Operator
from sampling.call import Phase
from sampling.hardware.cluster import Gpu

OperatorT = TypeVar("OperatorT", bound=Operator)
Formula = Callable[[OperatorT, Phase, Gpu], tuple[float, float]]
"""Median µs of one rank's kernels, and the 90 % half-width of its logarithm."""
FORMULAS: dict[type[Operator], Formula[Any]] = {}


def formula_of(kind: type[OperatorT]) -> Callable[[Formula[OperatorT]], Formula[OperatorT]]:
    """Decorator: the function prices operators of this class."""

    def register(formula: Formula[OperatorT]) -> Formula[OperatorT]:
        add(FORMULAS, kind, formula, "formulas")
        return formula

    return register
