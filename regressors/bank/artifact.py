"""The fitted models of a profile as one file, `bank.npz`: a JSON header and pools of numbers, no code.

A few pools instead of one file member per array keep loading fast, whatever the number of models.
"""

import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from regressors.bank.fitted_operator import FittedOperator
from regressors.dataset.donor import Donor
from regressors.features.pricing import ModelKey
from regressors.features.schema import Schema
from regressors.models.domain import Domain
from regressors.models.smooth import Smooth
from regressors.models.time_model import Roofline, Target, TimeModel
from regressors.models.trees import FlatTrees
from regressors.uncertainty.intervals import Intervals, Novelty
from regressors.uncertainty.sampled_times import SampledTimes
from sampling.errors import SamplesError
from sampling.files.disk import NotReadError, replacing, require_regular
from sampling.files.faults import shown
from sampling.files.places import fitting_command
from sampling.number_text import count

T = TypeVar("T")
FORMAT = 4
FILE = "bank.npz"
MOST_BYTES = 1_000_000_000
"""Largest file that is read, and the most that its members may unpack to."""
DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
)
"""Errors that numpy, zipfile and json raise for a damaged file."""
HEADER = "header"
LEARNT: Mapping[str, type[FlatTrees] | type[Smooth]] = {"trees": FlatTrees, "smooth": Smooth}

KINDS = {cls: name for name, cls in LEARNT.items()}


class Pools:
    """Flat dataclasses as JSON records whose arrays lie in one contiguous pool per dtype."""

    def __init__(self) -> None:
        self._arrays: dict[str, list[NDArray[Any]]] = {}
        self._sizes: dict[str, int] = {}

    def pack(self, instance: Any) -> dict[str, Any]:
        """The instance as a record: scalars unchanged, an array as [dtype, start, shape]. Fields: numbers, strings, arrays."""
        record = {field.name: getattr(instance, field.name) for field in fields(instance)}
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


class Artifact(NamedTuple):
    """An opened `bank.npz`. `facts`: the profile, the date of the fit, the samples' manifest, the hardware digests."""

    path: Path
    facts: Mapping[str, Any]
    records: Mapping[ModelKey, Mapping[str, Any]]
    pools: Mapping[str, NDArray[Any]]

    def operator(self, key: ModelKey) -> FittedOperator:
        """Rebuild one operator; its arrays are views. SamplesError where they are not in the file."""
        try:
            return self._rebuilt(key, self.records[key])
        except DAMAGES as error:
            raise self.error(f"the model of {key} is damaged ({error!r})") from None

    def _rebuilt(self, key: ModelKey, record: Mapping[str, Any]) -> FittedOperator:
        donor = record["donor"]
        return FittedOperator(
            key=key,
            schema=_schema(record["schema"]),
            model=self._model(record),
            intervals=unpack(Intervals, record["intervals"], self.pools),
            domain=unpack(Domain, record["domain"], self.pools),
            novelty=unpack(Novelty, record["novelty"], self.pools),
            sampled_times=unpack(SampledTimes, record["sampled_times"], self.pools),
            donor=Donor(schema=_schema(donor["schema"]), model=self._model(donor)) if donor else None,
        )

    def donor(self, key: ModelKey) -> Donor | None:
        """An operator's model as a donor; None if there is no model, or if it was fitted with a donor itself."""
        record = self.records.get(key)
        if record is None or record["donor"]:
            return None
        return Donor(schema=_schema(record["schema"]), model=self._model(record))

    def _model(self, record: Mapping[str, Any]) -> TimeModel:
        return TimeModel(
            candidate=record["candidate"],
            base=unpack(Roofline, record["base"], self.pools),
            target=Target(record["target"]),
            learnt=tuple(unpack(LEARNT[learnt["kind"]], learnt["fields"], self.pools) for learnt in record["learnt"]),
        )

    def error(self, what: str) -> SamplesError:
        return _error(self.path, what)


def save(directory: Path, operators: Sequence[FittedOperator], facts: Mapping[str, Any]) -> Path:
    """Write `directory/bank.npz` atomically; `facts` must be JSON."""
    pools = Pools()
    records = [_record(operator, pools) for operator in operators]
    header = json.dumps({"format": FORMAT, "facts": facts, "operators": records}).encode()
    path = directory / FILE
    members: dict[str, Any] = {HEADER: np.frombuffer(header, dtype=np.uint8), **pools.arrays()}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **members)
    return path


def load(directory: Path) -> Artifact:
    """Open `directory/bank.npz`; a SamplesError names the file and the command that makes it anew."""
    path = directory / FILE
    if not path.exists():
        raise _error(path, "does not exist")
    try:
        require_regular(path, most_bytes=MOST_BYTES)
        _require_small(path)
        with np.load(path, allow_pickle=False) as archive:
            header = json.loads(archive[HEADER].tobytes())
            if header["format"] != FORMAT:
                raise _error(path, f"has format {shown(header['format'])}, this version reads {FORMAT}")
            pools = {name: archive[name] for name in archive.files if name != HEADER}
        records = {ModelKey(*record["key"]): record for record in header["operators"]}
        facts = header["facts"]
        for key, record in records.items():
            if _schema(record["schema"]).digest != record["schema"]["digest"]:
                raise _error(path, f"the feature names of {key} do not match their digest")
    except NotReadError as error:
        raise _error(path, str(error)) from None
    except DAMAGES as error:
        raise _error(path, f"is truncated or not a regressor file ({error})") from None
    return Artifact(path=path, facts=facts, records=records, pools=pools)


def _require_small(path: Path) -> None:
    """NotReadError for members that unpack to more than is read: `save` packs nothing, so they are as large as the file."""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > MOST_BYTES:
        raise NotReadError(
            f"unpacks to {count(unpacked / 1e6)} MB, more than the {count(MOST_BYTES / 1e6)} MB that are read"
        )


def _record(operator: FittedOperator, pools: Pools) -> dict[str, Any]:
    donor = operator.donor
    return {
        "key": list(operator.key),
        **_packed(operator.schema, operator.model, pools),
        "intervals": pools.pack(operator.intervals),
        "domain": pools.pack(operator.domain),
        "novelty": pools.pack(operator.novelty),
        "sampled_times": pools.pack(operator.sampled_times),
        "donor": _packed(donor.schema, donor.model, pools) if donor else None,
    }


def _packed(schema: Schema, model: TimeModel, pools: Pools) -> dict[str, Any]:
    return {
        "schema": {
            "terms": schema.terms,
            "features": schema.features,
            "absent": dict(schema.absent),
            "digest": schema.digest,
        },
        "candidate": model.candidate,
        "target": model.target,
        "base": pools.pack(model.base),
        "learnt": [{"kind": KINDS[type(learnt)], "fields": pools.pack(learnt)} for learnt in model.learnt],
    }


def _schema(record: Mapping[str, Any]) -> Schema:
    return Schema(terms=tuple(record["terms"]), features=tuple(record["features"]), absent=record["absent"])


def _error(path: Path, what: str) -> SamplesError:
    return SamplesError(f"{path}: {what}; run {fitting_command(path.parent.name)}")
