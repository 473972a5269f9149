"""The peaks of a device that a bound is made of, from a hardware file or from SOLAR's architecture file, read as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from sampling.errors import ConfigError
from sampling.files.documents import read_yaml
from sampling.files.faults import config_error
from sampling.files.schema import Key, Text, build
from sampling.hardware.cluster import hardware_entry, hardware_facts
from sampling.hardware.hardware_file import Hardware
from sampling.units import GIB, MIB

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


CLOCK_GHZ = 1.0
"""Clock by which cycles are counted where the file states none, as hardware files do: a cycle is a nanosecond."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device's peaks per cycle of its clock. `macs_per_cycle` are multiply-accumulates of its matrix units by precision."""

    entry: str
    """The name of its file without the ending, which result files have in theirs."""
    name: str
    clock_ghz: float
    bytes_per_cycle: float
    macs_per_cycle: Mapping[str, float]
    vector_macs_per_cycle: float
    """Multiply-accumulates of fp32 outside the matrix units; 0 where the file states none."""
    on_chip_bytes: float
    """Memory on the chip that all of it shares: the last-level cache."""
    memory_bytes: float

    def macs_in(self, precision: str) -> float:
        """Multiply-accumulates per cycle; ConfigError for a precision that the device lacks."""
        if precision not in self.macs_per_cycle:
            known = ", ".join(self.macs_per_cycle)
            raise ConfigError(
                f"--precision {precision}: {self.name} has no such peak (it has {known}); use one of those"
            )
        return self.macs_per_cycle[precision]

    def cycles_of(self, macs: float, precision: str) -> float:
        return macs / self.macs_in(precision)

    def cycles_to_move(self, size_bytes: float) -> float:
        return size_bytes / self.bytes_per_cycle

    def time_us(self, cycles: float) -> float:
        return cycles / (self.clock_ghz * 1e3)

    def ridge(self, precision: str) -> float:
        """Multiply-accumulates per byte from which on products limit."""
        return self.macs_in(precision) / self.bytes_per_cycle


def device_of(name: str) -> Device:
    """The device of an entry of configs/hardware, or of a YAML file of ours or of SOLAR's; ConfigError for what is neither."""
    path = Path(name)
    if path.suffix.lower() in (".yaml", ".yml"):
        content, _ = read_yaml(path)
        if content is not None and len([key for key in KEYS if key in content]) > 1:
            return _of_architecture(read_architecture(path), path.stem)
    return _of_hardware(hardware_facts(name), Path(hardware_entry(name)).stem)


def _of_hardware(facts: Hardware, entry: str) -> Device:
    per_cycle = CLOCK_GHZ * 1e9
    macs: dict[str, float] = {dtype: tflops * 1e12 / 2 / per_cycle for dtype, tflops in facts.peak_tflops.items()}
    return Device(
        entry=entry,
        name=facts.name,
        clock_ghz=CLOCK_GHZ,
        bytes_per_cycle=facts.memory_gb_per_s * 1e9 / per_cycle,
        macs_per_cycle=macs,
        vector_macs_per_cycle=macs.get("fp32", 0.0),
        on_chip_bytes=facts.cache_mib * MIB,
        memory_bytes=facts.memory_gib * GIB,
    )


def _of_architecture(facts: Architecture, entry: str) -> Device:
    return Device(
        entry=entry,
        name=facts.name,
        clock_ghz=facts.freq_GHz,
        bytes_per_cycle=facts.DRAM_byte_per_cycle,
        macs_per_cycle=facts.macs_per_cycle,
        vector_macs_per_cycle=facts.MAC_per_cycle_fp32_sm or 0.0,
        on_chip_bytes=facts.SRAM_capacity,
        memory_bytes=facts.DRAM_capacity,
    )


Bottleneck = Literal["compute", "memory"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Multiply-accumulates and bytes that go together; `other_ops` are scalar operations outside the matrix units."""

    macs: float
    size_bytes: float
    other_ops: float = 0.0

    @property
    def intensity(self) -> float:
        """Multiply-accumulates per byte."""
        return self.macs / self.size_bytes if self.size_bytes else 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            macs=self.macs + other.macs,
            size_bytes=self.size_bytes + other.size_bytes,
            other_ops=self.other_ops + other.other_ops,
        )


NOTHING = Work(macs=0.0, size_bytes=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """The time of some work on a device; `cycles` may exceed both resources' where it is a sum over parts."""

    work: Work
    compute_cycles: float
    vector_cycles: float
    """Cycles of the scalar operations, for information: they are not in the time."""
    memory_cycles: float
    cycles: float
    time_us: float

    @property
    def bottleneck(self) -> Bottleneck:
        return "compute" if self.compute_cycles >= self.memory_cycles else "memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class Models:
    """The three models by one rule, each no slower than the one before."""

    unfused: Roofline
    fused: Roofline
    fused_prefetched: Roofline


def whole(work: Work, device: Device, precision: str) -> Roofline:
    """One maximum over sums: everything overlaps everything."""
    return _roofline(work, device, precision, None)


def one_after_another(parts: Iterable[Work], device: Device, precision: str) -> Roofline:
    """A maximum for each part, added up: a part overlaps only itself."""
    every = tuple(parts)
    total = sum(every, NOTHING)
    cycles = sum(_longest(part, device, precision) for part in every)
    return _roofline(total, device, precision, cycles)


def _longest(work: Work, device: Device, precision: str) -> float:
    compute = device.cycles_of(work.macs, precision) if work.macs else 0.0
    return max(compute, device.cycles_to_move(work.size_bytes))


def _roofline(work: Work, device: Device, precision: str, cycles: float | None) -> Roofline:
    compute = device.cycles_of(work.macs, precision) if work.macs else 0.0
    memory = device.cycles_to_move(work.size_bytes)
    vector = work.other_ops / device.vector_macs_per_cycle if device.vector_macs_per_cycle else 0.0
    taken = max(compute, memory) if cycles is None else cycles
    return Roofline(
        work=work,
        compute_cycles=compute,
        vector_cycles=vector,
        memory_cycles=memory,
        cycles=taken,
        time_us=device.time_us(taken),
    )
