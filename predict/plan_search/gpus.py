"""A number of GPUs in a word, such as `64xh100`, and the nodes that hold them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sampling.errors import ConfigError, UserError
from sampling.files.faults import near_multiples, shown
from sampling.hardware.cluster import hardware_facts

OPTION = "--gpus"
FORM = re.compile(r"(?i)\s*([1-9]\d{0,6})\s*[x×*]\s*(\S.*?)\s*")
"""At most seven digits: more GPUs than anyone has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpus:
    """GPUs of one kind, on whole nodes of the usual size or on a part of one."""

    hardware: str
    """Entry of configs/hardware, an alias such as h100, or the path of a file."""
    count: int
    node: int
    """GPUs that are usual in a node."""

    @property
    def nodes(self) -> int:
        return max(1, self.count // self.node)

    @property
    def per_node(self) -> int:
        return self.count // self.nodes

    def twice(self) -> Gpus:
        """Twice as many; the next whole node, where that is in between."""
        return replace(self, count=self.node if self.count < self.node < 2 * self.count else 2 * self.count)

    def __str__(self) -> str:
        return f"{self.count}x{self.hardware}"


def parse_gpus(text: str) -> Gpus:
    """The GPUs of `64xh100`. UserError for another form, unknown hardware, or a count that no whole nodes make."""
    found = FORM.fullmatch(text)
    if found is None:
        raise UserError(f"{OPTION}: {shown(text)} is not a number of GPUs; write NUMBERxHARDWARE, as in 64xh100")
    count, hardware = int(found[1]), found[2]
    try:
        facts = hardware_facts(hardware)
    except ConfigError as error:
        raise UserError(f"{OPTION}: {error}") from None
    # the ranks that share a CPU are as many as are asked for
    node = count if facts.kind == "cpu" else facts.gpus_per_node
    if count > node and count % node:
        raise UserError(
            f"{OPTION}: {count} {hardware} do not fill nodes of {node}; give {near_multiples(count, node)}, or write a config "
            "with cluster.gpus_per_node"
        )
    return Gpus(hardware=hardware, count=count, node=node)
