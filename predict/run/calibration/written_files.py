"""Files that a command writes and another reads, told apart by their content, so that one in the place of another is named."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from sampling.errors import ConfigError
from sampling.files.documents import read_json, read_yaml
from sampling.files.schema import read

T = TypeVar("T")
CALIBRATION = "a calibration of `predict calibrate`, which --calibration takes"
COEFFICIENTS = "a file of `predict serving-fit`, which --coefficients takes"
FORMATS = {
    "serving-coefficients": COEFFICIENTS,
    "layer-benchmark": "a file of `predict benchmark`",
    "measured-run": "a run that `predict record` kept",
}
"""Value of the key `format` → what such a file is."""
OF_CALIBRATION = {"version", "terms", "covariance"}
"""Keys that only a calibration has; its file has no `format`."""


def read_written(cls: type[T], path: Path, wanted: str, *, fix: str) -> T:
    """The content of a file that is `wanted`; ConfigError lists every fault of it, or says what else the file is."""
    try:
        return read(cls, path, fix=fix)
    except ConfigError:
        found = _kind_of(path)
        if found in ("", wanted):
            raise
        raise ConfigError(f"{path}: is {found}, not {wanted.partition(',')[0]}; give one of those") from None


def _kind_of(path: Path) -> str:
    """The kind of a file in words; empty for one of no known kind."""
    content, _ = read_json(path) if path.suffix.lower() == ".json" else read_yaml(path)
    if content is None:
        return ""
    if content.keys() >= OF_CALIBRATION:
        return CALIBRATION
    written = content.get("format")
    return FORMATS.get(written, "") if isinstance(written, str) else ""
