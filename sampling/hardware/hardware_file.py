"""Reading a description of hardware: a YAML file of `configs/hardware` or a user's own, and all that is wrong with it."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from sampling.errors import ConfigError

DTYPE_BYTES: Mapping[str, int] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""tf32 are the matrix products of fp32 tensors on tensor cores, so its elements are of fp32's size."""
KINDS = ("cuda", "rocm", "cpu")
TEXTS: Mapping[str, str] = {
    "name": "text, what reports call the device",
    "device_name": "what torch.cuda.get_device_name calls it, or a list of such names",
    "kind": f"one of {', '.join(KINDS)}",
    "architecture": "text, the generation of the chip",
}
FIGURES: Mapping[str, str] = {
    "peak_tflops": "dense TFLOP/s by dtype",
    "fastest_tflops": "TFLOP/s by dtype of the best of the devices that the entry stands for",
    "sustained": "by dtype, time of products in a long run over that in a short measurement",
    "memory_gib": "GiB",
    "memory_gb_per_s": "GB/s",
    "cache_mib": "MiB of the last-level cache",
    "multiprocessors": "SMs or compute units",
    "efficiency": "shares of the peak, at most 1",
    "intra_node": "latency and bandwidth one way of a GPU inside a node",
    "inter_node": "latency and bandwidth one way of a GPU between nodes",
    "gpus_per_node": "GPUs that are usual in a node",
}
"""What must have a source."""
OPTIONAL = ("fastest_tflops", "sustained")
LINK = ("latency_us", "gb_per_s")
DTYPES = ("fp64", *DTYPE_BYTES, "fp4", "int8")
TABLES: Mapping[str, tuple[str, ...]] = {
    "peak_tflops": DTYPES,
    "fastest_tflops": DTYPES,
    "sustained": DTYPES,
    "efficiency": ("gemm", "attention", "elementwise", "wire"),
    "intra_node": LINK,
    "inter_node": LINK,
}
WHOLE = ("multiprocessors", "gpus_per_node")
KEYS = (*TEXTS, *FIGURES, "sources")
LARGEST = 1e12
"""No figure is near it; what is beyond is a slip of units, or infinite."""


def read_hardware(path: Path) -> dict[str, Any]:
    """The facts in a file; ConfigError with a line for each thing wrong: `file: key path: value, what it must be`."""
    facts = _parse(path)
    if faults := list(_faults(facts)):
        raise ConfigError("\n".join(f"{path}: {fault}" for fault in faults))
    return facts


def keys_in_words() -> str:
    required = [key for key in KEYS if key not in OPTIONAL]
    return f"{', '.join(required[:-1])} and {required[-1]}"


def did_you_mean(name: Any, known: Collection[str]) -> str:
    """`; did you mean 'x'?`, or nothing where no known name is near."""
    nearest = difflib.get_close_matches(str(name)[:100], known, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def _parse(path: Path) -> dict[str, Any]:
    import yaml

    try:
        from yaml import CSafeLoader as Loader
    except ImportError:  # PyYAML built without libyaml
        from yaml import SafeLoader as Loader  # type: ignore[assignment]
    try:
        facts = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # ValueError: no UTF-8, a NUL in the path, a strange date
        raise ConfigError(f"{path}: not YAML ({' '.join(str(error).split())}); mend the syntax there") from None
    if not isinstance(facts, dict):
        raise ConfigError(f"{path}: holds {reprlib.repr(facts)}, not a mapping; give it the keys {keys_in_words()}")
    return facts


def _faults(facts: Mapping[Any, Any]) -> Iterator[str]:
    yield from _unknown(facts, KEYS)
    required = [
        key for key in KEYS if key not in OPTIONAL and not (key == "device_name" and facts.get("kind") == "cpu")
    ]
    yield from (
        f"{key}: missing; give {({**TEXTS, **FIGURES}).get(key, 'the source of each figure')}"
        for key in required
        if key not in facts
    )
    for key in TEXTS:
        if key in facts and not _is_text(key, facts[key]):
            yield f"{key}: {reprlib.repr(facts[key])} is not {TEXTS[key]}; give that"
    for key in FIGURES:
        if key in facts:
            yield from _wrong_figures(key, facts[key])
    if "sources" in facts:
        yield from _wrong_sources(facts["sources"], [key for key in FIGURES if key in facts])


def _is_text(key: str, value: Any) -> bool:
    if key == "device_name" and isinstance(value, list):
        return bool(value) and all(isinstance(name, str) and name for name in value)
    return isinstance(value, str) and bool(value) and (key != "kind" or value in KINDS)


def _wrong_figures(key: str, value: Any) -> Iterator[str]:
    if key not in TABLES:
        yield from _wrong_number(key, value, key)
        return
    if not isinstance(value, dict) or not value:
        yield f"{key}: {reprlib.repr(value)} is not {FIGURES[key]}; give a mapping of any of {', '.join(TABLES[key])}"
        return
    yield from _unknown(value, TABLES[key], f"{key}.")
    if TABLES[key] is not DTYPES:
        yield from (f"{key}.{part}: missing; give {FIGURES[key]}" for part in TABLES[key] if part not in value)
    for part in TABLES[key]:
        if part in value:
            yield from _wrong_number(f"{key}.{part}", value[part], key)


def _wrong_number(path: str, value: Any, key: str) -> Iterator[str]:
    types = (int,) if key in WHOLE else (int, float)
    largest = 1 if key == "efficiency" else LARGEST
    if type(value) not in types or not 0 < value <= largest:  # True is an int to isinstance
        number = "a whole number" if key in WHOLE else "a number"
        yield f"{path}: {reprlib.repr(value)} is not {number} above 0; give {FIGURES[key]}"


def _wrong_sources(sources: Any, figures: Collection[str]) -> Iterator[str]:
    if not isinstance(sources, dict):
        yield f"sources: {reprlib.repr(sources)} is not a mapping; give the source of each of {', '.join(figures)}"
        return
    yield from _unknown(sources, figures, "sources.")
    for figure in figures:
        if not (isinstance(sources.get(figure), str) and sources[figure].strip()):
            yield f"sources.{figure}: {reprlib.repr(sources.get(figure))} is no source; name the data sheet, its year and table"


def _unknown(given: Mapping[Any, Any], known: Collection[str], where: str = "") -> Iterator[str]:
    for key in given:
        if key not in known:
            advice = did_you_mean(key, known) or f"; allowed: {', '.join(known)}"
            yield f"{where}{key}: unknown, remove it{advice}"
