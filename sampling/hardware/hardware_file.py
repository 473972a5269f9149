"""A description of hardware: a YAML file of `configs/hardware`, or a user's own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from sampling.files.faults import Fault
from sampling.files.schema import Key, Text, keys_of, read

DTYPE_BYTES: Mapping[str, int] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""tf32 stands for matrix products of fp32 tensors on tensor cores, so its elements have fp32's size."""
BLOCK_SCALED_BYTES: Mapping[str, float] = {"nvfp4": 0.5 + 1 / 16, "mxfp4": 0.5 + 1 / 32}
"""Bytes of an element with its share of a block's scale: 16 elements have one in NVFP4, 32 in MXFP4 (OCP Microscaling Formats 1.0)."""
ELEMENT_BYTES: Mapping[str, float] = {**DTYPE_BYTES, **BLOCK_SCALED_BYTES}
"""Bytes of an element of the dtypes in which matrix products are computed."""
PEAK_OF: Mapping[str, str] = dict.fromkeys(BLOCK_SCALED_BYTES, "fp4")
"""Name of a dtype's peak in a hardware file, where it is not the dtype's own."""
Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"]
Work = Literal["gemm", "attention", "elementwise", "wire"]
Activity = Literal["products", "memory", "communication", "waiting", "idle"]
"""What a board does, as its power differs: matrix products and attention, kernels bound by memory, communication that nothing hides,
waiting for other ranks or the host while a job runs, and no work at all."""
POWER_SHARES: Mapping[Activity, float] = {
    "products": 1.0,
    "memory": 0.75,
    "communication": 0.7,
    "waiting": 0.4,
    "idle": 0.15,
}
"""Shares of the board's limit where its file states none. Products of a long run are held at the limit: their clocks fall (`sustained`).
The idle one is that of H100 while they save (Morrison et al., arXiv 2503.05804, section 5: just over 100 of 700 W). The three between
are read off the mean power of Olmo 3 7B and 32B, 621 and 649 of 700 W (Ai2, with 146 MWh in 234,000 H100-hours, 681 in 1,050,000:
muxup.com/2025q4/minipost-olmo3-training-cost), whose predicted steps draw 627 and 632 with them; their order is that of Patel et al.
(arXiv 2308.12908, section 4), who saw training fall to half of its peak and less while it communicates."""
Share: TypeAlias = Annotated[float, Key(minimum=0.001, maximum=1, meaning="a share of the peak")]
Tflops: TypeAlias = Annotated[float, Key(minimum=1e-4, maximum=1e6)]
Ratio: TypeAlias = Annotated[float, Key(minimum=0.5, maximum=5)]
LatencyUs: TypeAlias = Annotated[float, Key(minimum=0.001, maximum=1e6, meaning="µs of a message")]
GbPerS: TypeAlias = Annotated[float, Key(minimum=0.001, maximum=1e6, meaning="GB/s one way per GPU")]
"""Bounds of links and devices; beyond them, times leave the range in which they can be added up."""
OPTIONAL_FIGURES = ("fastest_tflops", "sustained", "power_w", "power_shares", "host")
REQUIRED_FIGURES = (
    "peak_tflops",
    "memory_gib",
    "memory_gb_per_s",
    "cache_mib",
    "multiprocessors",
    "efficiency",
    "intra_node",
    "inter_node",
    "gpus_per_node",
)

Sources: TypeAlias = Annotated[
    Mapping[str, Annotated[str, Key(pattern=r"(?s).*\S.*", meaning="the data sheet, its year and table")]],
    Key(
        needs=REQUIRED_FIGURES,
        choices=lambda: (*REQUIRED_FIGURES, *OPTIONAL_FIGURES),
        meaning="the source of each figure",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One rank's way to another, in one direction."""

    latency_us: LatencyUs
    """Latency of a message, in µs; inside a node of CPUs that of the wake-up of a thread."""
    gb_per_s: GbPerS
    """Bandwidth in one direction, in GB/s."""
    chunk_latency: Annotated[float, Key(maximum=2)] = 0.65
    """Share of the latency that the chunks of a large collective are left with: the larger, the larger the message that fills the link."""
    mesh: Annotated[int, Key(minimum=0, maximum=64)] = 0
    """GPUs of a node that links join pair by pair, an equal share of the bandwidth each; in nodes of another number, and with 0, a switch
    gives any group all of it."""

    def bytes_per_us(self) -> float:
        return self.gb_per_s * 1e3


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A GPU's share of the machine that it stands in, on which what is offloaded lies."""

    gb_per_s: GbPerS
    """GB/s of copies between the GPU and the host's memory, each way."""
    memory_gb_per_s: GbPerS
    """GB/s of the host's memory."""
    memory_gib: Annotated[float, Key(minimum=0.001, maximum=1e6, meaning="GiB of the host's memory")]
    disk_gb_per_s: GbPerS = 3.0
    """GB/s of the machine's own NVMe disks, each way."""


USUAL_HOST = Host(gb_per_s=25.0, memory_gb_per_s=51.2, memory_gib=128.0, disk_gb_per_s=3.0)
"""An eighth of a DGX A100 (data sheet, 2020): PCIe 4.0 x16 at 25 of its 32 GB/s, 16 channels of DDR4-3200, 1 TB, and 4 NVMe disks of
about 6 GB/s."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """The facts of a device and of the nodes it usually comes in; on a CPU those of one core. Each figure has its source."""

    name: Text
    """The device's name in reports."""
    device_name: Text | tuple[Text, ...] = ()
    """The name that torch.cuda.get_device_name gives it, or a list of such names; none on a CPU."""
    aliases: tuple[Text, ...] = ()
    """Other names by which a config may call it, `name` and `device_name` apart."""
    kind: Literal["cuda", "rocm", "cpu"]
    architecture: Text
    """The generation of the chip."""
    peak_tflops: Annotated[Mapping[Dtype, Tflops], Key(minimum=1, meaning="dense TFLOP/s by dtype")]
    fastest_tflops: Annotated[Mapping[Dtype, Tflops], Key(meaning="TFLOP/s by dtype")] = field(default_factory=dict)
    """TFLOP/s by dtype of the best of the devices that the entry stands for."""
    sustained: Annotated[Mapping[Dtype, Ratio], Key(meaning="ratio by dtype")] = field(default_factory=dict)
    """The time, by dtype, of products in a long run over that in a short measurement."""
    memory_gib: Annotated[float, Key(minimum=0.001, maximum=1e6, meaning="GiB")]
    memory_gb_per_s: Annotated[float, Key(minimum=0.01, maximum=1e6, meaning="GB/s")]
    cache_mib: Annotated[float, Key(minimum=0.001, maximum=1e6, meaning="MiB of the last-level cache")]
    multiprocessors: Annotated[int, Key(maximum=10**6, meaning="SMs or compute units")]
    power_w: Annotated[float | None, Key(minimum=1, maximum=1e5, meaning="W of the board at its limit")] = None
    """Power in W at the board's limit; energy is not predicted without it."""
    power_shares: Annotated[Mapping[Activity, Share], Key(meaning="shares of power_w")] = field(default_factory=dict)
    """Shares of power_w that the board draws by what it does; those of H100 where none are given."""
    efficiency: Annotated[Mapping[Work, Share], Key(needs=("gemm", "attention", "elementwise", "wire"))]
    """Shares of the peak that each kind of work reaches where nothing was sampled."""
    intra_node: Link
    """Links of a GPU inside a node."""
    inter_node: Link
    """Links of a GPU between nodes."""
    gpus_per_node: Annotated[int, Key(meaning="GPUs that are usual in a node")]
    host: Host | None = None
    """A GPU's share of the host, of those that a node usually has; without it that of a DGX A100."""
    sources: Sources

    def contradictions(self) -> Iterator[Fault]:
        if self.kind != "cpu" and not self.device_name:
            yield Fault(path="device_name", problem="missing; give what torch.cuda.get_device_name calls it")
        for figure in OPTIONAL_FIGURES:
            if bool(getattr(self, figure)) != (figure in self.sources):
                problem = "missing; name the data sheet" if figure not in self.sources else "is the source of no figure"
                yield Fault(path=f"sources.{figure}", problem=problem)


def read_hardware(path: Path) -> Hardware:
    """Read the facts of a device; ConfigError has a line for each fault: `file: key path: value, what it must be`."""
    return read(Hardware, path)


def keys_in_words() -> str:
    """The keys that every description has."""
    required = [key.name for key in keys_of(Hardware) if key.required]
    return f"{', '.join(required[:-1])} and {required[-1]}"
