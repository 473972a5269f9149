"""The keys of a run config's sections, each with its kind, range, default and meaning."""

from __future__ import annotations

from collections.abc import Mapping

from predict.run.execution import ATTENTION_KERNELS, RECIPES, Execution
from predict.run.frameworks import framework_names
from predict.run.plan import BEST, Plan
from predict.schedules.registry import names as schedule_names
from sampling.files.keys import Key, keys_of
from sampling.hardware.cluster import DTYPE_BYTES, known_hardware

_DEGREES: Mapping[str, str] = {
    "tp": "tensor parallel ranks: each holds 1/tp of attention, MLP and vocabulary",
    "pp": "pipeline stages",
    "vpp": "chunks of a pipeline rank",
    "dp": "data parallel replicas",
    "cp": "context parallel ranks: each holds 1/cp of every sequence",
    "ep": "expert parallel ranks",
    "etp": "tensor parallel ranks inside an expert",
}

RECOMPUTABLE = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
"""Megatron's `recompute_modules`."""


def _one_of(*choices: str, doc: str) -> dict[str, object]:
    return {"choices": lambda: choices, "doc": doc}


PLAN: tuple[Key, ...] = keys_of(
    Plan,
    **{name: {"doc": doc} for name, doc in _DEGREES.items()},
    sp={"doc": "sequence parallelism: norms and residuals keep 1/tp of the sequence"},
    cp_method=_one_of("ring", "all_to_all", "all_gather", doc="how keys and values meet the queries of other cp ranks"),
    zero={
        "doc": "ZeRO stage: 1 shards the optimizer over dp · cp, 2 gradients too, 3 weights too (FSDP)",
        "minimum": 0,
        "maximum": 3,
    },
    shard={"doc": "ranks that one copy of the sharded state spreads over, 0 for all (hybrid sharding)", "minimum": 0},
    schedule={
        "doc": "pipeline schedule, a .csv or .json file with an order, or best: the shortest under the memory limit",
        "choices": lambda: (*schedule_names(), BEST),
        "pattern": r"(?i).+\.(csv|json)",
    },
    memory_limit={"doc": "most chunk activations a pipeline rank may hold, 0 for no limit", "minimum": 0},
    recompute=_one_of("none", "selective", "full", doc="activation recomputation"),
    recompute_modules={
        "doc": f"what selective recomputation repeats, separated by commas: any of {', '.join(RECOMPUTABLE)}",
        "pattern": rf"\s*({'|'.join(RECOMPUTABLE)})\s*(,\s*({'|'.join(RECOMPUTABLE)})\s*)*",
        "choices": lambda: RECOMPUTABLE,
    },
    recompute_method=_one_of(
        "uniform", "block", doc="layers that full recomputation takes: all, or the first of a chunk"
    ),
    recompute_layers={"doc": "layers that block recomputes in each chunk"},
    layout={
        "doc": "layers of each stage, as 10,12,12 or in Megatron's form Et*4|(t*4|)*14tmL; empty for an even split"
    },
    first_stage_layers={"doc": "layers of the first pipeline rank, 0 for an even share", "minimum": 0},
    last_stage_layers={"doc": "layers of the last pipeline rank, 0 for an even share", "minimum": 0},
    count_embedding={"doc": "layers as which the embedding counts in the even split", "minimum": 0},
    count_loss={"doc": "layers as which head and loss count in the even split", "minimum": 0},
)
EXECUTION: tuple[Key, ...] = keys_of(
    Execution,
    framework=_one_of(
        *framework_names(), doc="whose settings hold where none is given; default: torch on a CPU, else megatron-core"
    ),
    attention=_one_of(*ATTENTION_KERNELS, doc="attention kernel, or unfused"),
    elementwise=_one_of("fused", "eager", doc="whether norms, activations and rotary embedding are fused kernels"),
    clocks=_one_of("sustained", "burst", doc="clocks of a long run, or of a short measurement"),
    launch_floor_us={"doc": "µs in which the host launches one layer's phase, however small its kernels", "minimum": 0},
    dropout={"doc": "dropout on attention's weights and the residual branches"},
    gemm_efficiency={
        "doc": "share of the 16-bit peak that the stack's largest products reach, 0 for the hardware's",
        "maximum": 1,
    },
    product_time={"doc": "factor on the time of products and attention, from a calibration"},
    memory_time={"doc": "factor on the time of all other kernels, from a calibration"},
    fp8_recipe=_one_of(*RECIPES, doc="how fp8 products are scaled; empty for tensorwise"),
    gradient_dtype=_one_of("fp32", "bf16", "fp16", doc="in what gradients are added up and reduced"),
    fuse_gradients={"doc": "a weight's gradient is added up by its own product"},
    optimizer=_one_of("adamw", "muon", doc="the optimizer"),
    master_weights={"doc": "fp32 weights beside those that are trained with"},
    clip_gradients={"doc": "the norm of all gradients is taken every step"},
    loss_scaling={"doc": "gradients are searched for overflow and scaled back, as fp16 needs"},
    step_overhead_us={"doc": "µs a step of data loading, logging and the like", "minimum": 0},
    overlap_gradients={"doc": "gradients are reduced in buckets behind the last backward"},
    overlap_parameters={"doc": "sharded weights are gathered behind the next forward"},
    overlap_tp=_one_of("none", "backward", "pipelined", doc="what hides tensor-parallel collectives"),
    overlap_ep=_one_of("none", "shared_expert", "microbatch", doc="what hides the exchange of tokens between experts"),
    sharded_reduction=_one_of(
        "reduce_scatter", "all_reduce", doc="how gradients reach the ranks that hold their optimizer state"
    ),
    overlap_p2p={"doc": "a stage goes on while its tensors travel"},
    split_p2p={"doc": "each tensor-parallel rank sends its share of an activation"},
    expert_load={
        "doc": "how tokens fall on experts: balanced, power_law_A, or how often each is chosen, separated by commas",
        "pattern": r"power_law_\d+(\.\d+)?|\d+(\.\d+)?(,\s*\d+(\.\d+)?)+",
        "choices": lambda: ("balanced",),
    },
    stragglers={"doc": "ranks wait for the slowest, the more the more there are"},
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
    Key(
        name="intra_node_gb_per_s",
        kind="number",
        nullable=True,
        doc="GB/s one way of a GPU inside a node; default: the hardware's",
    ),
    Key(
        name="intra_node_latency_us",
        kind="number",
        nullable=True,
        doc="µs of a hop inside a node; default: the hardware's",
    ),
    Key(
        name="inter_node_gb_per_s",
        kind="number",
        nullable=True,
        doc="GB/s one way of a GPU between nodes; default: the hardware's",
    ),
    Key(
        name="inter_node_latency_us",
        kind="number",
        nullable=True,
        doc="µs of a hop between nodes; default: the hardware's",
    ),
    Key(name="cores", kind="integer", nullable=True, doc="CPU cores of a machine; default: those of the sampled one"),
)
PRECISION = Key(
    name="precision",
    kind="string",
    required=True,
    choices=lambda: tuple(DTYPE_BYTES),
    doc="dtype of weights and activations; with fp8 and tf32 that of the layers' matrix products",
)
