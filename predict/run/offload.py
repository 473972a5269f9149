"""Offloading: what of a run's state and activations lies in the host's memory, or on its disks, instead of the GPU's."""

from dataclasses import dataclass
from typing import Annotated

from sampling.files.schema import Key, one_of

GPU, HOST, DISK = "gpu", "host", "disk"


@dataclass(frozen=True, kw_only=True, slots=True)
class Offload:
    """The state and activations that lie on the host. Its bandwidths and memory are the device's `host` (its hardware file)."""

    optimizer_share: Annotated[float, Key(minimum=0, maximum=1)] = 0.0
    """Share of the optimizer's state that lies on the host, whose cores update it: 1 under ZeRO-Offload (arXiv 2101.06840), a fraction in
    Megatron's hybrid optimizer (optimizer_offload_fraction)."""
    optimizer_on: Annotated[str, one_of(HOST, DISK)] = HOST
    """Where that state lies: in the host's memory, or on its disks, from which every step reads it and to which it writes it back
    (ZeRO-Infinity, arXiv 2104.07857)."""
    overlap_optimizer: bool = False
    """Gradients and weights are copied while the host updates others of them (Megatron's overlap_cpu_optimizer_d2h_h2d)."""
    gradients_on_host: bool = False
    """The gradients of that share go to the host as they are reduced, and take no memory of the GPU between microbatches (DeepSpeed's
    offload_optimizer, FSDP's CPUOffload)."""
    shards_on: Annotated[str, one_of(GPU, HOST, DISK)] = GPU
    """Where the shards of ZeRO-3 lie, from which every gathering copies them."""
    activation_share: Annotated[float, Key(minimum=0, maximum=1)] = 0.0
    """Share of what layers keep for their backward that waits for it in the host's memory."""
    overlap_activations: bool = True
    """Activations are copied while the GPU computes; otherwise it waits for each copy."""

    @property
    def takes_shards(self) -> bool:
        """Whether what ZeRO shards goes to the host: gradients as they are reduced, or weights. One rank's shards are whole, and leave
        too."""
        return self.gradients_on_host or self.shards_on != GPU

    @property
    def any(self) -> bool:
        """Whether anything lies on the host."""
        return bool(self.optimizer_share or self.activation_share) or self.shards_on != GPU
