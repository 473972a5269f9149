"""SOLAR's architecture file: the peaks of a device per cycle of its clock, read as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, TypeAlias

from sampling.errors import ConfigError
from sampling.files.documents import read_yaml
from sampling.files.faults import config_error
from sampling.files.keys import Key, Text
from sampling.files.schema import build

PerCycle: TypeAlias = Annotated[float, Key(maximum=1e12, meaning="per cycle of freq_GHz")]
Capacity: TypeAlias = Annotated[float, Key(maximum=1e16, meaning="bytes")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """The keys that are read of an architecture file; those of MAC_per_cycle are multiply-accumulates, half the FLOPs."""

    name: Text
    freq_GHz: Annotated[float, Key(maximum=100, meaning="GHz")]  # noqa: N815  (the file's own key)
    DRAM_byte_per_cycle: PerCycle
    DRAM_capacity: Capacity = 0.0
    SRAM_byte_per_cycle: Annotated[float, Key(minimum=0, maximum=1e16)] = 0.0
    SRAM_capacity: Capacity = 0.0
    MAC_per_cycle_fp32_sm: PerCycle | None = None
    MAC_per_cycle_tf32_tc: PerCycle | None = None
    MAC_per_cycle_bf16_tc: PerCycle | None = None
    MAC_per_cycle_fp16_tc: PerCycle | None = None
    MAC_per_cycle_int8_tc: PerCycle | None = None
    MAC_per_cycle_fp8_tc: PerCycle | None = None
    MAC_per_cycle_nvfp4_tc: PerCycle | None = None

    @property
    def macs_per_cycle(self) -> Mapping[str, float]:
        """Peaks by precision; one of bf16 and fp16 stands for the other where it is missing."""
        stated = {
            "fp32": self.MAC_per_cycle_fp32_sm,
            "tf32": self.MAC_per_cycle_tf32_tc,
            "bf16": self.MAC_per_cycle_bf16_tc or self.MAC_per_cycle_fp16_tc,
            "fp16": self.MAC_per_cycle_fp16_tc or self.MAC_per_cycle_bf16_tc,
            "fp8": self.MAC_per_cycle_fp8_tc,
        }
        return {precision: macs for precision, macs in stated.items() if macs}


KEYS = tuple(field.name for field in fields(Architecture))


def read_architecture(path: Path) -> Architecture:
    """Read SOLAR's file; its keys that say nothing of a bound are passed over. ConfigError lists every fault."""
    content, faults = read_yaml(path)
    made = None
    if content is not None:
        made, more = build(Architecture, {key: value for key, value in content.items() if key in KEYS})
        faults = [*faults, *more]
    if made is None or faults:
        raise config_error(faults, {"": str(path)})
    if not made.macs_per_cycle:
        raise ConfigError(f"{path}: MAC_per_cycle_bf16_tc: missing; give the peak of at least one precision")
    return made
