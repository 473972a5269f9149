"""Logs as nccl-tests prints them."""

REDUCED = "   268435456      67108864     float     sum      -1   1201.5  223.42  390.98      0   1199.2  223.85  391.73      0"

SMALL = "        1024           256     float     sum      -1    21.35    0.05    0.08      0    20.98    0.05    0.09      0"


COLUMNS = """\
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""

END = """\
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 93.8731
#
"""


def ranks(nodes: int, per_node: int, device: str = "NVIDIA H100 80GB HBM3") -> str:
    return "".join(
        f"#  Rank {rank:2} Group  0 Pid  {4100 + rank} on    node{rank // per_node} device {rank % per_node:2} [0x1b] {device}\n"
        for rank in range(nodes * per_node)
    )


def log(program: str, nodes: int, per_node: int, *rows: str, device: str = "NVIDIA H100 80GB HBM3") -> str:
    return (
        f"# nccl-tests version 2.13.8 nccl-headers=22203 nccl-library=22203\n# Collective test starting: {program}\n"
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 268435456 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n"
        f"#\n# Using devices\n{ranks(nodes, per_node, device)}{COLUMNS}" + "".join(row + "\n" for row in rows) + END
    )
