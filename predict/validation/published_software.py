"""The software of a published run: its framework, its precision, and the settings of the framework that its row states."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from predict.model.spec import ModelSpec
from predict.rank.share import NARROW
from predict.run.execution import DISPATCHERS, EXPANDABLE, PRIMARY
from predict.run.frameworks import framework_settings, memory_profile
from predict.run.tuning import POLICY
from predict.validation.published_row import NotExpressibleError, PublishedRow
from predict.validation.truth_columns import NO_GRAPHS, WHOLE_GRAPH


def precision_of(row: PublishedRow) -> tuple[str, str]:
    """The dtype of products, and the way fp8 is scaled."""
    text = row.text("precision").lower()
    if "fp4" in text:
        return ("mxfp4" if "mx" in text else "nvfp4"), ""
    if "fp8" in text or "float8" in text:
        if "mx" in text:
            return "fp8", "mxfp8"
        named = next((recipe for recipe in ("rowwise", "blockwise") if recipe in text), "tensorwise")
        return "fp8", row.text("fp8_recipe") or named
    if "bf16" in text:
        return "bf16", ""
    if "fp16" in text:
        return "fp16", ""
    raise NotExpressibleError(f"precision: {row.text('precision') or 'not published'}")


FRAMEWORKS: tuple[tuple[str, str], ...] = (
    ("nemo automodel", "fsdp-compile"),
    ("nemo", "nemo"),
    ("megatron-bridge", "nemo"),
    ("torchtitan", "torchtitan"),
    ("maxtext", "maxtext"),
    ("prime-?rl", "prime-rl"),
    ("pith-?train", "pith-train"),
    ("nanochat", "nanochat"),
    ("llm-foundry", "llm-foundry"),
    ("fsdp1.*compile", "fsdp1-compile"),
    ("fsdp.*compile", "fsdp-compile"),
    ("fsdp", "fsdp"),
    ("neox", "gpt-neox"),
    ("megatron|primus", "megatron-core"),
    ("^$", "megatron-core"),
)
"""Patterns of a framework's name, the first match of which counts, and its entry in configs/frameworks; an empty name is
taken for the Megatron family."""


OWN_COLUMNS = {"dp_bucket_elems": "gpt-neox", "attn_kernel": "aa-scaling"}
"""Columns that name a setting of one framework, which a table with it was made with if it names none."""


def framework_of(row: PublishedRow) -> str:
    """The entry of configs/frameworks that a name stands for; Megatron's by its age, which shows in its attention."""
    text, attention = row.text("framework").lower(), row.text("attn").lower()
    if not text:
        own = next((name for column, name in OWN_COLUMNS.items() if row.text(column)), None)
        if own:
            return own
    found = next((name for words, name in FRAMEWORKS if re.search(words, text)), None)
    if found is None:
        raise NotExpressibleError(f"framework: {row.text('framework')} is not in configs/frameworks")
    if found != "megatron-core" or not ("no flash" in attention or "unfused" in attention):
        return found
    return "megatron-2021" if re.search("megatron-lm|/lm", text) else "megatron-deepspeed"


CONTAINER = re.compile(r"(\d\d)\.(\d\d)(\.\d\d)?")
"""The date of a container such as 25.09 or 26.04.01, as NVIDIA names them."""


def stack_of(row: PublishedRow) -> str:
    """Year and month of the software, by the row's date; empty where it has none."""
    date = row.text("date")
    if container := CONTAINER.fullmatch(date):
        return f"20{container[1]}-{container[2]}"
    found = re.match(r"20\d\d-(0[1-9]|1[0-2])", date)
    return found[0] if found else ""


GRAPHED_SINCE = "2026-06"
"""Month from which most of NVIDIA's recipes of mixtures on Blackwell whose settings are published overlap their exchange and graph the
whole step; those on Hopper do not."""
PER_NODE_SINCE = "2025-09"
"""Month from which Megatron-Bridge's recipes of mixtures exchange tokens between nodes by DeepEP."""


def unstated_settings(row: PublishedRow, model: ModelSpec, architecture: str) -> tuple[dict[str, Any], ...]:
    """Settings of a mixture that are equally likely where they were not published: under FSDP the dtype of reduction (torch's
    MixedPrecisionPolicy.reduce_dtype; recipes of mixtures use both), else overlap and graphs where they may be of the newer kind, whose
    exchange is HybridEP's in racks and DeepEP's elsewhere (Megatron-Bridge, MoE hardware configuration reference: platform playbook)."""
    if model.experts and framework_of(row).startswith("fsdp") and "gradient_dtype" not in settings_of(row):
        return ({}, {"gradient_dtype": "bf16"})
    recent = framework_of(row) == "nemo" and architecture == "blackwell" and stack_of(row) >= GRAPHED_SINCE
    exchanges = model.experts and row.integer("ep") > 1
    if not (recent and exchanges) or row.text("overlap_flags"):
        return ({},)
    exchange = (
        {} if row.text("moe_dispatch") else {"dispatch": "hybridep" if "NVL72" in row.text("intra_node") else "deepep"}
    )
    overlapped: dict[str, Any] = {"overlap_ep": "microbatch"}
    if not row.text("cuda_graph"):
        overlapped |= {"cuda_graphs": "full", "fp8_attention": _attends_in_fp8(row)}
    return exchange, exchange | overlapped


MIXTURE_RECIPES_SINCE = "2026-04"
"""Month from which Megatron-LM has recipes of mixtures of its own (examples/moe_recipes): in all of them, fp8 weights are kept in fp8
alone (fp8_param_gather), and torch's allocator has expandable segments."""
LOSS_COMPILED_SINCE = "2025-04"
"""Month from which torchtitan compiles the loss with the model (pull request 1033)."""
FUSED_NORM_SINCE = "2025-10"
"""Month from which torch.nn.RMSNorm is one kernel without compilation (torch 2.9)."""
FUSED_ATTENTION_SINCE = "2024-09"
"""Month from which NVIDIA's launcher of NeMo leaves attention to Transformer Engine's choice; until then it sets NVTE_FUSED_ATTN to 0,
so that FlashAttention-2 runs (NeMo-Framework-Launcher, launcher_scripts/conf/config.yaml, pull request 422 of 29 August 2024)."""


def settings_of(row: PublishedRow) -> dict[str, Any]:
    settings = _kernels(row)
    if framework_of(row) == "gpt-neox" and "unfused" not in row.text("attn"):
        settings["attention"] = "best"  # a fused kernel, which one is not published
    if not stack_of(row) and framework_settings(framework_of(row), "").get("attention") == "sdpa":
        settings = {"attention": "fa2"} | settings  # undated runs are taken for older ones than torch 2.8
    if framework_of(row) == "nemo" and "" < stack_of(row) < FUSED_ATTENTION_SINCE:
        settings = {"attention": "fa2"} | settings
    flags = row.text("overlap_flags").lower()
    if "synchronous p2p" in row.text("pp_schedule"):
        settings["overlap_p2p"] = False
    if "asynctp" in flags:
        settings["overlap_tp"] = "pipelined"
    if "moe_a2a_overlap=true" in flags or "1f1b overlap" in flags:
        settings["overlap_ep"] = "microbatch"
    if graphs := row.text("cuda_graph"):
        settings["cuda_graphs"] = _graphs(graphs)
        settings["fp8_attention"] = settings["cuda_graphs"] == "full" and _attends_in_fp8(row)
    if dispatch := _dispatch(row):
        settings["dispatch"] = dispatch
    if framework_of(row) == "pith-train" and row.number("experts"):
        settings["overlap_ep"] = "microbatch"
    if "torchtitan" in row.text("framework").lower():
        compiled = "compile" in row.text("framework").lower()
        settings |= {} if compiled else {"elementwise": "eager", "fuse_rms_norm": stack_of(row) >= FUSED_NORM_SINCE}
        settings["fuse_loss"] = compiled and stack_of(row) >= LOSS_COMPILED_SINCE
    if framework_of(row) == PRIME_RL and not tuning_of_row(row):
        settings["fuse_loss"] = (
            False  # supervised tuning takes the loss of whole logits (trainer/sft/config.py: loss_impl is torch)
        )
    if stack := stack_of(row):
        settings["stack"] = stack
    return settings | _optimizer(row) | _of_mixture_recipes(row)


def _of_mixture_recipes(row: PublishedRow) -> dict[str, Any]:
    """The memory of Megatron-LM's own recipes of mixtures."""
    if not _is_mixture_recipe(row):
        return {}
    return {"allocator": EXPANDABLE} | ({"fp8_weights": PRIMARY} if precision_of(row)[0] == "fp8" else {})


def _is_mixture_recipe(row: PublishedRow) -> bool:
    is_one = "megatron-lm" in row.text("framework").lower() and row.number("experts")
    return bool(is_one) and stack_of(row) >= MIXTURE_RECIPES_SINCE


VENDORS = re.compile("megatron-bridge|nemo|primus")
"""Frameworks whose published runs are their vendors' performance recipes: NVIDIA's Megatron-Bridge and NeMo, AMD's Primus."""


def is_tuned(row: PublishedRow) -> bool:
    """Whether the row's publisher tuned its plan: where its notes say tuned, and in vendors' performance recipes, unless the notes say
    that the recipe is a functional one. Of Megatron-LM's recipes of mixtures, benchmarks are those that force the balance of experts."""
    notes = row.text("notes").lower()
    if re.search(r"\bfunctional recipe\b", notes):
        return False
    of_vendor = VENDORS.search(row.text("framework").lower()) is not None
    is_benchmark = _is_mixture_recipe(row) and "forced balance" in notes
    return of_vendor or is_benchmark or re.search(r"\btuned\b", notes) is not None


PRIME_RL = "prime-rl"
BENCHMARKED_ADAPTERS = 4
"""Adapters that prime-rl's benchmarks of LoRA hold (MAX_LORAS of its benchmark of a single configuration); all data is the first one's."""
USUAL_RANK = 16
"""Rank of adapters where a row has none: MLPerf's, and that of NVIDIA's recipes (nemo, collections/llm/recipes/llama3_70b.py)."""


def adapters_of_row(row: PublishedRow) -> dict[str, Any]:
    """The adapters of a row whose task is `lora`. Megatron's kin joins query, key and value, and adapts attention alone, as MLPerf's rules
    and NVIDIA's performance recipes have it; others adapt every product."""
    if not row.text("task").startswith("lora"):
        return {}
    stated = re.search(r"LoRA rank (\d+)", row.text("notes"))
    of_megatron = memory_profile(framework_of(row)).megatron_core
    return {
        "kind": "lora",
        "rank": int(stated[1]) if stated else USUAL_RANK,
        "targets": "attention" if of_megatron else "all",
        "joint": of_megatron,
        "at_once": BENCHMARKED_ADAPTERS if framework_of(row) == PRIME_RL else 1,
    }


def exchanges_heads(row: PublishedRow, model: ModelSpec, ranks: int) -> bool:
    """Whether ranks of context parallelism turn tokens into heads, where the heads suffice: in NVIDIA's recipe of adapters (MLPerf Training
    v6.0, llama2_70b_lora, megatron_gpt_peft_tuning_config.yaml: cp_comm_type a2a), and where attention has sinks, for which Transformer
    Engine has no other method (its test_attention_with_cp.py; gpt_oss_20b, conf/gpt_oss.yaml: a2a). NVIDIA's other recipes run rings."""
    of_engine = memory_profile(framework_of(row)).transformer_engine
    if not (adapters_of_row(row).get("joint") or (model.sinks and of_engine)):
        return False
    return model.kv_heads % ranks == 0


def offload_of_row(row: PublishedRow, layers: int) -> dict[str, Any]:
    """The part that a row leaves on the host: the activations of all layers, or those of so many (Megatron's cpu_offloading_num_layers).

    Copies of prime-rl are on the stream of the kernels (trainer/utils/act_offloading.py: use_streams=False).
    """
    text = row.text("offload")
    if not text:
        return {}
    some = re.fullmatch(r"cpu_offload_layers=(\d+)", text)
    if text != "activations" and not some:
        raise NotExpressibleError(f"offload: {text} is not modelled; activations and cpu_offload_layers=N are")
    share = min(1.0, int(some[1]) / layers) if some else 1.0
    return {"activation_share": share, "overlap_activations": framework_of(row) != PRIME_RL}


def tuning_of_row(row: PublishedRow) -> dict[str, Any]:
    """The loss of reinforcement learning, where the notes name it."""
    return {"task": POLICY} if re.search(r"\brl loss\b", row.text("notes").lower()) else {}


def _optimizer(row: PublishedRow) -> dict[str, Any]:
    """The optimizer, and the dtypes of gradients and moments, where the row states them."""
    notes = row.text("notes").lower()
    settings = {"optimizer": "muon"} if row.text("optimizer") == "muon" else {}
    if "fp32 grad" in row.text("precision"):
        settings["gradient_dtype"] = "fp32"
    elif "PURE" in row.text("zero_fsdp") or "bf16 main gradients" in notes:
        settings["gradient_dtype"] = "bf16"
    if re.search(r"bf16 (optimizer |main gradients and )?moments", notes):
        settings["moment_dtype"] = "bf16"
    return settings


def is_routed_naturally(row: PublishedRow) -> bool:
    """Whether the row says that its router chose the experts, not a benchmark's forced balance, which is taken where it is silent."""
    return row.text("routing") == "natural" or "natural routing" in row.text("notes").lower()


def _graphs(text: str) -> str:
    """The part that CUDA graphs hold: nothing where the implementation is `none`, whatever scope stands after it (Megatron-Core,
    --cuda-graph-impl)."""
    if re.fullmatch(NO_GRAPHS, text):
        return "none"
    return "full" if re.fullmatch(WHOLE_GRAPH, text) else "layers"


def _attends_in_fp8(row: PublishedRow) -> bool:
    """Whether attention runs in fp8 where NVIDIA's recipes graph the whole step: in those of adapters (MLPerf Training v5.0,
    llama2_70b_lora, config_common.sh: FP8_DPA), of four bits whose ranks hold whole sequences (v5.1, llama31_8b,
    config_common_fp8attn.sh; those with context parallelism set NVTE_DPA_FP8_RECIPE to F16), and of mixtures in MXFP8 (Megatron-Bridge,
    pull requests 3983, 4173 and 4606: fp8_dot_product_attention)."""
    precision, recipe = precision_of(row)
    if framework_of(row) != "nemo" or precision not in NARROW:
        return False
    in_four_bits = precision != "fp8" and (row.number("cp") or 1) == 1
    of_bridge = "megatron-bridge" in row.text("framework").lower() and recipe == "mxfp8" and row.number("experts")
    return bool(adapters_of_row(row) or in_four_bits or of_bridge)


def _dispatch(row: PublishedRow) -> str:
    """The published exchange of tokens; without one, the exchange of Megatron-Bridge's recipes where experts span nodes."""
    stated = next((name for name in DISPATCHERS if name in row.text("moe_dispatch").lower()), "")
    in_node = row.gpus() if "NVL72" in row.text("intra_node") else row.integer("gpus_per_node")
    spans = row.integer("ep") * row.integer("etp") > in_node
    recent = "megatron-bridge" in row.text("framework").lower() and stack_of(row) >= PER_NODE_SINCE
    return stated or ("deepep" if spans and recent else "")


ATTENTION_KERNELS: Mapping[str, Mapping[str, Any]] = {
    "flash": {"attention": "fa1"},
    "flash2": {"attention": "fa2"},
    "flash3": {"attention": "fa3"},
    "flash4": {"attention": "fa4"},
    "te": {"attention": "best"},
    "cudnn": {"attention": "cudnn"},
    "sdpa": {"attention": "sdpa"},
    "flex": {"attention": "flex"},
    "triton": {"attention": "triton"},
    "megatron": {"attention": "unfused"},
    "torch": {"attention": "unfused", "fuse_softmax": False},
}
"""Kernels as a column `attn_kernel` names them: FlashAttention 1 to 4, those of Transformer Engine, cuDNN, torch, FlexAttention and Triton,
and two products with Megatron's fused softmax or torch's own."""


def _kernels(row: PublishedRow) -> dict[str, Any]:
    """The attention and norm kernels, where columns of their own name them."""
    settings: dict[str, Any] = {}
    if kernel := row.text("attn_kernel"):
        if kernel not in ATTENTION_KERNELS:
            raise NotExpressibleError(f"attn_kernel: {kernel} is not one of {', '.join(ATTENTION_KERNELS)}")
        settings |= ATTENTION_KERNELS[kernel]
    if row.text("rms_kernel"):
        settings["fuse_rms_norm"] = bool(row.integer("rms_kernel", least=0, most=1))
    return settings


COMPLETE = "complete"
VOCABULARY_UNPUBLISHED = "vocabulary unpublished"
RECOMPUTE_UNPUBLISHED = "recompute unpublished"
INCOMPLETE = "structurally incomplete"
CLASSES = tuple(
    f"{kind}, {stated}"
    for kind in ("dense", "MoE")
    for stated in (COMPLETE, VOCABULARY_UNPUBLISHED, RECOMPUTE_UNPUBLISHED, INCOMPLETE)
)
NEVER_INTERLEAVED = ("gpt-neox", "megatron-deepspeed")
"""Frameworks on DeepSpeed's pipeline, which has one chunk per rank, so that a blank `vpp` leaves nothing open."""


def completeness(row: PublishedRow, *, sparse: bool) -> str:
    """The class of a row whose model is `sparse` or dense: the first that holds: INCOMPLETE if a setting is open that
    shapes the schedule or what a rank holds, RECOMPUTE_UNPUBLISHED, VOCABULARY_UNPUBLISHED (GPT-2's is taken),
    COMPLETE.
    """
    if any(structural_gaps(row, sparse=sparse)):
        return INCOMPLETE
    if not row.text("recompute"):
        return RECOMPUTE_UNPUBLISHED
    sized = row.text("vocab") or not row.text("layers")  # a model without sizes is one of configs/models
    return COMPLETE if sized else VOCABULARY_UNPUBLISHED


def structural_gaps(row: PublishedRow, *, sparse: bool) -> Iterator[str]:
    """The columns left blank without which the plan or the batch is a guess; `sparse` for a mixture, be it so by its model's name."""
    yield from (column for column in ("tp", "pp") if not row.text(column))
    if (row.number("pp") or 1) > 1 and not row.text("vpp") and framework_of(row) not in NEVER_INTERLEAVED:
        yield "vpp"
    if sparse and not row.text("ep"):
        yield "ep"
    if not row.text("grad_accum"):
        yield from (column for column in ("mbs", "gbs") if not row.text(column))
    elif not (row.text("mbs") or row.text("gbs")):
        yield "mbs"
