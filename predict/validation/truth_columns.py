"""The columns of a table of measured runs, declared as the fields of a dataclass; a blank cell was not published."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from predict.config.json_schema import key_schema
from predict.huggingface.families.family import MOST_LAYERS
from predict.truth_table import columns_of
from sampling.files.schema import Count, Key, field_docs, one_of

NORM = r"(RMS|rms|Layer|layer)[ _-]?(Norm|norm)"
SCHEDULE = Key(
    pattern=r"(none|None|1[Ff]1[Bb]|afab).*", meaning="none, 1F1B, 1F1B interleaved or afab, and words after it"
)
SPARSE_LAYERS = Key(pattern=r"[\[\]()*+01-9]*", meaning="N for every Nth layer, or a list such as ([0]*3+[1]*58)")
MOST_MTP_LAYERS = 64
"""Far more than any model has; published ones have one or two."""
MOST_PER_NODE = 4096
"""Far more GPUs than any node has."""
DATE = Key(
    pattern=r"\d\d\.(0[1-9]|1[0-2])(\.\d\d)?|20\d\d(-(0[1-9]|1[0-2])(-\d\d)?)?([ .].*)?",
    meaning="2025-06-10, 2025-06 or 2025, and words after it, or a container such as 26.04",
)
NO_GRAPHS = r"([Nn]one|[Ff]alse|[Oo]ff|[Nn]o|0)(:.*)?"
WHOLE_GRAPH = r"((local|transformer_engine):)?full[ _]iteration(:\[\])?"
SCOPE = r"'?(attn|mlp|moe|moe_router|moe_preprocess|mamba)'?"
CUDA_GRAPH = Key(
    pattern=rf"{NO_GRAPHS}|{WHOLE_GRAPH}|((local|transformer_engine):)?\[?{SCOPE}([, ]+{SCOPE})*\]?",
    meaning="none, full_iteration, or scopes such as attn moe_router, after the implementation where it is given",
)
GPU = Key(minimum=1, meaning="a device of configs/hardware")
PRECISION = Key(minimum=1, meaning="bf16, fp16 or fp8, and how it is scaled")
OptionalCount = Annotated[int | None, Key(minimum=0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class TruthRow:
    """One run. What a blank column of the model, the plan or the cluster is taken for is reported with the row's result."""

    row_id: str = ""
    """Name of the row; blank: its place in the table."""
    source_id: str = "table"
    """Short name of the source; errors are summed up by it."""
    source: str = ""
    """Where the row was published, as a reader finds it."""
    cluster: str = ""
    """Name of the cluster; few-shot calibration separates the clusters of a source by it."""
    model: str = ""
    """Name of the model. Without `layers` it must be one of `configs/models`, whose sizes then count."""
    task: str = ""
    """`pretrain`, `sft` or another word; one that starts with `lora` is refused."""
    kind: Annotated[str, one_of("dense", "moe", "mla", "hybrid")] = ""
    """Kind of model; `hybrid` is refused."""
    notes: str = ""
    """Remarks, shown next to the largest errors; `tuned`, or `functional recipe`, says whether `predict validate recipes` takes the row.
    Rows of Megatron-Bridge, NeMo and Primus are tuned unless they say otherwise."""

    test_case: str = ""
    """A test of Megatron-LM, where a row is one."""
    family: str = ""
    """Rows of one name are alike, and count once in figures of memory."""
    group: str = ""
    """Rows of one name are plans to choose among, for `predict validate ranking`. Blank: rows that differ in the plan alone."""
    dup_group: str = ""
    """Rows of one name repeat a configuration where all else agrees too; repeats count once."""
    status: Annotated[str, one_of("ok", "oom", "error")] = ""
    """ok, or oom for a plan that ran out of memory, which has no time."""

    layers: Annotated[int | None, Key(maximum=MOST_LAYERS)] = None
    """Transformer layers. Blank: the sizes of `model` in `configs/models`."""
    hidden: int | None = None
    """Width of the residual stream; needed with `layers`."""
    heads: int | None = None
    """Query heads; needed with `layers`."""
    kv_heads: int | None = None
    """Key and value heads. Blank: as many as `heads`."""
    head_dim: int | None = None
    """Width of a head. Blank: `hidden` / `heads`."""
    ffn: OptionalCount = None
    """Inner width of the dense MLP. Blank: 4 · `hidden`, or of a gated MLP 8/3 · `hidden` up to a whole 256."""
    vocab: int | None = None
    """Vocabulary, as padded. Blank: 50,257, which is GPT-2's."""
    vocab_padded: int | None = None
    """Vocabulary of Megatron-LM's tests, padded for their ranks."""
    gated_mlp: bool | None = None
    """1 for an MLP of three matrices (SwiGLU), 0 for two (GELU). Blank: as `norm` says, else the row is refused."""
    norm: Annotated[str, one_of("rms", "layer", pattern=NORM)] = ""
    """RMSNorm or LayerNorm. Blank: RMSNorm where the MLP is gated."""
    position: Annotated[str, one_of("rope", "learned_absolute", "none")] = ""
    """Position embedding; `none` is refused. Blank: rope where the MLP is gated."""
    linear_bias: bool | None = None
    """1 for biases on the matrices of attention and MLP. Blank: 1 where the MLP is not gated."""
    tied_embedding: bool | None = None
    """1 where the output head shares the embedding. Blank: 1 where the MLP is not gated."""
    attn: str = ""
    """Attention in words: `no flash` or `unfused` (two products with softmax between them), `MLA`, with its ranks as in
    `mla`, `sliding window 128`. Blank: full attention."""
    mla: str = ""
    """Ranks and widths of latent attention, as `q 1536 kv 512 nope 128 rope 64 v 128`."""
    attn_kernel: Annotated[
        str, one_of("flash", "flash2", "flash3", "flash4", "te", "cudnn", "sdpa", "flex", "triton", "megatron", "torch")
    ] = ""
    """Attention kernel: FlashAttention 2 or 1, else two products with Megatron's fused or torch's plain softmax between them. Blank:
    the framework's. Without a `framework` it says aa-scaling."""
    rms_kernel: bool | None = None
    """1 for a fused RMSNorm. Blank: as the framework has it."""
    attention_backend: Annotated[str, one_of("fused", "flash", "unfused")] = ""
    """Megatron-LM's flag, read of its tests alone."""
    transformer_impl: str = ""
    """Megatron-LM's flag, read of its tests alone."""
    experts: OptionalCount = None
    """Experts of a sparse layer. Blank or 0: a dense model."""
    topk: OptionalCount = None
    """Experts that a token is sent to; needed with `experts`."""
    moe_ffn: OptionalCount = None
    """Inner width of one expert; needed with `experts`."""
    shared_experts: Annotated[int, Key(minimum=0)] = 0
    """Experts that see every token, each of width `moe_ffn`."""
    shared_ffn: OptionalCount = None
    """Inner width of all shared experts together, in place of `shared_experts`."""
    routing: Annotated[str, one_of("natural", "forced")] = ""
    """How tokens fall on experts: as the router chooses (natural), or evenly, as benchmarks force it. Blank: natural where `notes` says
    natural routing, else forced."""
    moe_layer_note: str = ""
    """Which layers are sparse: `first 3 layers dense`, `every 2nd layer`; what `attn` may say too."""
    moe_layer_freq: Annotated[str, SPARSE_LAYERS] = ""
    """Megatron's form of the same."""
    mtp_layers: Annotated[int | None, Key(minimum=0, maximum=MOST_MTP_LAYERS)] = None
    """Layers of multi-token prediction. Blank: as many as the pipeline's layout has, or as `notes` say (w/ MTP, w/o MTP, MTP depth 1); else
    those of the model of that name where TFLOP/s over tokens per second count them; without these figures, or where they fit the model
    neither with them nor without, where the framework's recipes train them."""

    gpu: Annotated[str, GPU]
    """Device: a name of `configs/hardware`, as `H100` or `A100-SXM4-80GB`."""
    gpu_mem_gb: float | None = None
    """GB of memory per GPU, where the device comes with several. Blank: as its name says, else 80."""
    n_gpus: int | None = None
    """GPUs of the run. Blank: `tp` · `pp` · `cp` · `dp`, where `dp` is stated; of a test of Megatron-LM the fewest that its experts
    fold into."""
    gpus_per_node: Annotated[int, Key(maximum=MOST_PER_NODE)] = 8
    """GPUs per node."""
    intra_node: str = ""
    """Links inside a node; `NVL72` makes a node as large as the hardware file says."""
    inter_node: str = ""
    """Network: `400 Gbps per GPU`, `8x 200 Gbps per node`, `800 Gbps` (per node), `4 OmniPath links/node`. Blank, or without a
    figure: the hardware file's."""

    framework: str = ""
    """Megatron-LM, Megatron-DeepSpeed, NeMo, Megatron-Bridge, torchtitan, FSDP, MaxText, GPT-NeoX …, with `compile` where compiled.
    Blank: Megatron-Core."""
    precision: Annotated[str, PRECISION]
    """Dtype of the products: bf16, fp16 or fp8, the latter with mx, rowwise or blockwise; `fp32 grad` for gradients in fp32."""
    date: Annotated[str, DATE] = ""
    """Date of the software; a container's date is its year and month. Software older than its GPU's kernels takes longer, and
    recipes change. Blank, or a year alone: settled software."""
    fp8_recipe: Annotated[str, one_of("tensorwise", "rowwise", "blockwise", "mxfp8")] = ""
    """Scaling of fp8. Blank: as `precision` says, else tensorwise."""
    optimizer: Annotated[str, one_of("adam", "adamw", "muon")] = "adamw"
    """Optimizer."""
    tp: int = 1
    """Tensor-parallel ranks."""
    pp: int = 1
    """Pipeline stages."""
    vpp: int = 1
    """Chunks per pipeline rank."""
    dp: int | None = None
    """Replicas. Blank: `n_gpus` / (`tp` · `pp` · `cp`)."""
    cp: int = 1
    """Context-parallel ranks."""
    ep: int = 1
    """Expert-parallel ranks; counts for mixtures alone."""
    etp: int = 1
    """Tensor-parallel ranks of an expert."""
    seq_parallel: bool | None = None
    """1 with sequence parallelism. Blank: 1 where `tp` is above 1 and the framework is of 2023 or later."""
    zero_fsdp: str = ""
    """Sharding of the state: DDP, none, ZeRO-1 to ZeRO-3, distributed optimizer, FSDP, HSDP, SHARD_GRAD_OP, or the stage; `group=8` for
    the ranks that share. Blank: ZeRO-1 for Megatron-Core and NeMo, else none."""
    fsdp: str = ""
    """Megatron's own FSDP, in place of `zero_fsdp`."""
    distributed_optimizer: bool | None = None
    """1 for Megatron's ZeRO-1, in place of `zero_fsdp`."""
    dp_bucket_elems: Count | None = None
    """Elements of a gradient bucket: without a `framework` it says GPT-NeoX."""
    pp_schedule: Annotated[str, SCHEDULE] = ""
    """none, 1F1B, 1F1B interleaved (Interleaved1F1B) or afab (GPipe), with `layout=…` in Megatron's form and `synchronous p2p` where so."""
    overlap_flags: str = ""
    """`AsyncTP`, and `moe_a2a_overlap=true`."""
    cuda_graph: Annotated[str, CUDA_GRAPH] = ""
    """CUDA graphs: `none` (or false, off, no, 0), `full_iteration` for the whole step, or the modules that lie in graphs, as
    `attn moe_router`, with Megatron's `transformer_engine:` before them. Blank: the framework's, and for recent mixtures on
    Blackwell a graph of the whole step is equally likely."""
    moe_dispatch: Annotated[str, one_of("alltoall", "allgather", "deepep", "hybridep", pattern="DeepEP|HybridEP")] = ""
    """Exchange of a mixture's tokens. Blank: the framework's, and for Megatron-Bridge of 25.09 or later deepep between nodes."""
    offload: str = ""
    """`activations`, or `cpu_offload_layers=N` for those of so many layers, in the host's memory; anything else is refused."""
    recompute: Annotated[str, one_of("none", "selective", "full", pattern=r"\d+ layers")] = ""
    """Activation recomputation; `4 layers` for the first four of each chunk. Blank: none and selective are equally likely."""
    recompute_detail: str = ""
    """`modules=core_attn,mlp`, of selective recomputation."""
    recompute_method: Annotated[str, one_of("uniform", "block")] = ""
    """Which layers full recomputation takes. Blank: uniform."""
    recompute_layers: int | None = None
    """Layers per chunk that `block` recomputes."""
    recompute_modules: str = ""
    """Modules of selective recomputation, in place of `recompute_detail`."""
    seq_len: int
    """Tokens of a sequence."""
    mbs: int | None = None
    """Sequences of a microbatch. Blank: from `gbs` and `grad_accum`."""
    gbs: int | None = None
    """Sequences of a step. Blank: replicas · `mbs` · `grad_accum`."""
    grad_accum: int | None = None
    """Microbatches of a step."""

    step_time_s: float | None = None
    """Seconds per step. Where blank, the next of these that is stated gives the time."""
    step_ms: float | None = None
    """Milliseconds per step."""
    derived_step_time_s: float | None = None
    """Seconds per step that somebody derived from a throughput."""
    tokens_per_s_per_gpu: float | None = None
    """Tokens per second and GPU."""
    tokens_per_s_total: float | None = None
    """Tokens per second of all GPUs."""
    tflops_per_gpu: float | None = None
    """TFLOP/s per GPU; gives a time where `tflops_kind` has the word `hardware`."""
    tflops_kind: str = ""
    """`hardware` for FLOPs by Megatron's formula with recomputation (arXiv 2104.04473, equation 3)."""
    mfu_pct: float | None = None
    """Model FLOPs utilisation, %."""
    hfu_pct: float | None = None
    """Hardware FLOPs utilisation, %; over `mfu_pct` it says how much torch's selective checkpointing repeats."""

    peak_mem_gib: float | None = None
    """Peak memory of a GPU, GiB; in GB where `mem_note` starts with `max GB`."""
    peak_mem_gb: float | None = None
    """Peak memory of a GPU, GB."""
    mem_allocated_bytes: Count | None = None
    """Bytes allocated after the step on the last rank, of a test of Megatron-LM."""
    mem_max_allocated_bytes: Count | None = None
    """Most bytes allocated since the start on the last rank, of a test of Megatron-LM."""
    mem_counter: Annotated[str, one_of("allocated", "reserved", "nvidia-smi")] = ""
    """Counter of the peak. Blank: as `mem_note` says, else nvidia-smi."""
    mem_note: str = ""
    """The counter in words: `max_allocated`, `peak reserved`."""


OTHER_NAMES = {
    "run_id": "row_id",
    "mp": "tp",
    "seq": "seq_len",
    "micro_batch": "mbs",
    "microbatches": "grad_accum",
    "same_run_typical_s": "step_time_s",
    "attention": "attn",
    "zero": "zero_fsdp",
    "act_ckpt": "recompute",
    "activation_checkpointing": "recompute",
    "tokens_s_gpu": "tokens_per_s_per_gpu",
    "tflops_gpu": "tflops_per_gpu",
}
"""Columns of other tables of runs, and their names here."""
NOT_READ: Mapping[str, str] = {
    "where a row comes from, and what others made of it": "source_path url trust arch_source dp_source missing"
    " completeness consistency_ratio params_b golden_file in_paper_table paper_pred_s repo_pred_s"
    " amd_projected_tokens_s_gpu",
    "figures of the same run that are not compared": "measured_best_s tflops_megatron tflops_model samples_per_s"
    " iteration_time_s steps",
    "settings that are not modelled": "overlap",
}
"""What columns that are known and not read hold, and their names."""
RUNS = columns_of(
    TruthRow,
    "a CSV file of published runs",
    other_names=OTHER_NAMES,
    not_read=NOT_READ,
    needed=("n_gpus",),
    see="`predict schema --truth` describes the columns",
)


def truth_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of one row: its columns with types, units and allowed values; a blank cell is one left out."""
    docs = field_docs(TruthRow)
    columns = {name: key_schema(key, docs[name]) for name, key in RUNS.keys.items()}
    others = {name: {"description": f"Another name of {own}."} for name, own in OTHER_NAMES.items()}
    unread = {name: {"description": f"Not read: {what}."} for what, names in NOT_READ.items() for name in names.split()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "steptime truth row",
        "description": "One measured run, a line of a CSV file whose header names the columns. Yes and no are 1 and 0.",
        "type": "object",
        "properties": {**columns, **others, **unread},
        "patternProperties": {"^_": {"description": "A column of your own, which is not read."}},
        "required": [name for name, key in RUNS.keys.items() if key.required],
        "additionalProperties": False,
    }
