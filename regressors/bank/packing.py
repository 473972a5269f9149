"""Flat dataclasses of numbers and arrays as JSON records that refer to pools of numbers, one pool per dtype."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Pools:
    """Collects arrays into one contiguous pool per dtype."""

    def __init__(self) -> None:
        self._arrays: dict[str, list[NDArray[Any]]] = {}
        self._sizes: dict[str, int] = {}

    def pack(self, instance: Any) -> dict[str, Any]:
        """The instance as a record: scalars unchanged, an array as [dtype, start, shape]. Fields: numbers, strings, arrays."""
        record = {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}
        return {name: self._add(value) if isinstance(value, np.ndarray) else value for name, value in record.items()}

    def _add(self, array: NDArray[Any]) -> list[Any]:
        dtype = array.dtype.str
        start = self._sizes.get(dtype, 0)
        self._arrays.setdefault(dtype, []).append(array.reshape(-1))
        self._sizes[dtype] = start + array.size
        return [dtype, start, list(array.shape)]

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {dtype: np.concatenate(parts) for dtype, parts in self._arrays.items()}


def unpack(cls: type[T], record: Mapping[str, Any], pools: Mapping[str, NDArray[Any]]) -> T:
    """The inverse of `Pools.pack`; arrays are views of the pools."""
    return cls(**{name: _view(value, pools) if isinstance(value, list) else value for name, value in record.items()})


def _view(place: list[Any], pools: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    dtype, start, shape = place
    return pools[dtype][start : start + int(np.prod(shape))].reshape(shape)
