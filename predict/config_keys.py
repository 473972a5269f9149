"""The keys of a run config's sections, each with its kind, range, default and meaning."""

from __future__ import annotations

from collections.abc import Mapping

from predict.keys import Key, keys_of
from predict.schedules.registry import names as schedule_names
from predict.workload.plan import BEST, Plan
from sampling.hardware import DTYPE_BYTES, known_hardware

_DEGREES: Mapping[str, str] = {
    "tp": "tensor parallel ranks: each holds 1/tp of attention, MLP and vocabulary",
    "pp": "pipeline stages",
    "vpp": "chunks of a pipeline rank",
    "dp": "data parallel replicas",
}
_NOT_YET: Mapping[str, str] = {
    "cp": "context parallel ranks",
    "ep": "expert parallel ranks",
    "etp": "tensor parallel ranks inside an expert",
}

MIXED = ("fp8", "tf32")
"""What only the matrix products of a run are in, while norms, attention and optimizer stay in a wider dtype."""

PLAN: tuple[Key, ...] = keys_of(
    Plan,
    **{name: {"doc": doc} for name, doc in _DEGREES.items()},
    **{name: {"doc": doc, "modelled_to": 1} for name, doc in _NOT_YET.items()},
    sp={"doc": "sequence parallelism: norms and residuals keep 1/tp of the sequence"},
    zero={"doc": "ZeRO stage: 1 shards the optimizer over dp", "minimum": 0, "maximum": 3, "modelled_to": 1},
    schedule={
        "doc": "pipeline schedule, a .csv or .json file with an order, or best: the shortest under the memory limit",
        "choices": lambda: (*schedule_names(), BEST),
        "pattern": r"(?i).+\.(csv|json)",
    },
    memory_limit={"doc": "most chunk activations a pipeline rank may hold, 0 for no limit", "minimum": 0},
    recompute={
        "doc": "activation recomputation",
        "choices": lambda: ("none", "full"),
        "unmodelled": ("selective", "uniform", "block"),
    },
)
BATCH: tuple[Key, ...] = (
    Key(name="global", kind="integer", required=True, doc="sequences a step, over all replicas"),
    Key(name="micro", kind="integer", required=True, doc="sequences of one microbatch on one replica"),
    Key(name="seq_len", kind="integer", required=True, doc="tokens of a sequence"),
)
CLUSTER: tuple[Key, ...] = (
    Key(
        name="hardware",
        kind="string",
        required=True,
        choices=known_hardware,
        pattern=".+",  # what is no entry may be a file, and hardware_facts says best what it is not
        doc="entry of configs/hardware, or the path of a .yml file like those, relative to the working directory",
    ),
    Key(name="nodes", kind="integer", required=True, doc="machines"),
    Key(
        name="gpus_per_node",
        kind="integer",
        required=True,
        doc="GPUs a machine; on a CPU the ranks that share its cores",
    ),
    Key(name="profile", kind="string", required=True, doc="name under data/samples of this cluster's measurements"),
    Key(name="cores", kind="integer", nullable=True, doc="CPU cores of a machine; default: those of the sampled one"),
)
PRECISION = Key(
    name="precision",
    kind="string",
    required=True,
    choices=lambda: tuple(dtype for dtype in DTYPE_BYTES if dtype not in MIXED),
    unmodelled=MIXED,
    doc="dtype of weights and activations",
)
