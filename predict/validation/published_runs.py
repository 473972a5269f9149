"""The runs that a published row may stand for: one, or several where something that matters was not published.

Every rule goes by the text of a column (a framework's name, a precision, a network), never by the table's author; but a row that
names no framework is given one by the columns it states (`OWN_COLUMNS` in `published_software.py`), which are those of one table each.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from predict.config.load import build
from predict.model.spec import ModelSpec
from predict.plan_search.layouts import in_letters
from predict.plan_search.unknown_settings import INTERLEAVED_BY_DEFAULT, likely_runs
from predict.run.execution import NATURAL
from predict.run.frameworks import selective_is_of_operators
from predict.run.lengths import PACKED
from predict.run.training_run import TrainingRun
from predict.validation.published_models import is_of_neox, model_of, stated_layout, stated_mtp_layers
from predict.validation.published_row import NotExpressibleError, PublishedRow
from predict.validation.published_software import (
    NEVER_INTERLEAVED,
    PRIME_RL,
    adapters_of_row,
    exchanges_heads,
    framework_of,
    is_routed_naturally,
    offload_of_row,
    precision_of,
    settings_of,
    tuning_of_row,
    unstated_settings,
)
from sampling.errors import ConfigError
from sampling.files.faults import did_you_mean
from sampling.hardware.cluster import hardware_facts, hardware_named, known_hardware
from sampling.number_text import plain

NOT_PUBLISHED = "not published, taken"


def assumptions(row: PublishedRow, runs: Sequence[TrainingRun]) -> Iterator[str]:
    """A phrase for each open column of a row that stands for `runs`, which differ in what it leaves open alone."""
    run = runs[0]
    if len({one.execution.overlap_ep for one in runs}) > 1:
        graphs = "" if row.text("cuda_graph") else " and graphs"
        yield f"overlap of the exchange{graphs} not published"
        if not row.text("moe_dispatch"):
            yield f"moe_dispatch: {NOT_PUBLISHED} as {run.execution.dispatch}"
    if len({one.execution.gradient_dtype for one in runs}) > 1:
        yield "dtype of the gradients' reduction not published"
    if len({one.plan.recompute for one in runs}) > 1:
        yield "recomputation was not published"
    elif not row.text("recompute"):
        yield f"recompute: {NOT_PUBLISHED} as {run.plan.recompute}"
    yield from _of_model(row, run) if row.text("layers") else (f"layers: {NOT_PUBLISHED} from configs/models",)
    yield from _of_cluster(row, run)
    yield from _of_plan(row, runs)


def _of_model(row: PublishedRow, run: TrainingRun) -> Iterator[str]:
    model = run.model
    sizes = {
        "gated_mlp": f"as {int(model.gated)}, as norm is {row.text('norm')}",
        "kv_heads": "as heads" if model.attention.IS_PLAIN else "",
        "head_dim": "as hidden / heads" if model.attention.IS_PLAIN else "",
        "ffn": f"as {model.ffn}" if not all(kind.sparse for kind in model.kinds()) else "",
        "vocab": f"as GPT-2's {model.vocab}" if not row.text("vocab_padded") else "",
        "attn": "as full attention" if model.attention.IS_PLAIN and not row.text("attn_kernel") else "",
    }
    if model.experts:
        sizes["moe_layer_note"] = "as all layers sparse" if not row.text("moe_layer_freq") else ""
        sizes["shared_experts"] = "as none" if not model.experts.shared_ffn else ""
    yield from (f"{column}: {NOT_PUBLISHED} {what}" for column, what in sizes.items() if what and not row.text(column))
    if model.mtp_layers and stated_mtp_layers(row) is None:
        yield f"mtp_layers: {NOT_PUBLISHED} as {model.mtp_layers}"
    as_named = model.tied == model.gated and not row.text("tied_embedding")
    if as_named:
        yield f"tied_embedding: {NOT_PUBLISHED} as the model of its name has it"
    usually = ("norm", "position", "linear_bias", *(() if as_named else ("tied_embedding",)))
    if blank := [name for name in usually if not row.text(name)]:
        usual = "Llama" if model.gated else "GPT-NeoX" if is_of_neox(row) else "GPT-2"
        yield f"{', '.join(blank)}: {NOT_PUBLISHED} as in {usual}"


def _of_cluster(row: PublishedRow, run: TrainingRun) -> Iterator[str]:
    if not row.text("gpus_per_node"):
        yield f"gpus_per_node: {NOT_PUBLISHED} as {run.cluster.gpus_per_node}"
    kin = {
        hardware_facts(name).memory_gib for name in known_hardware() if name.startswith(row.text("gpu").lower() + "-")
    }
    if not row.text("gpu_mem_gb") and len(kin) > 1:
        yield f"gpu_mem_gb: {NOT_PUBLISHED} as {plain(run.cluster.gpu.memory_gib)}"


def _of_plan(row: PublishedRow, runs: Sequence[TrainingRun]) -> Iterator[str]:
    run, plan = runs[0], runs[0].plan
    chunks = sorted({one.plan.vpp for one in runs}) if plan.pp > 1 and not row.text("vpp") else []
    open_chunks = chunks if run.execution.framework not in NEVER_INTERLEAVED else []
    if not row.text("framework"):
        yield f"framework: {NOT_PUBLISHED} as {run.execution.framework}"
    if open_chunks:
        yield f"vpp: {NOT_PUBLISHED} as {' or '.join(map(str, open_chunks))}"
    if plan.tp > 1 and not row.text("seq_parallel"):
        yield f"seq_parallel: {NOT_PUBLISHED} as {int(plan.sp)}"
    sharding = ("zero_fsdp", "fsdp", "distributed_optimizer")
    if plan.dp * plan.cp > 1 and not any(map(row.text, sharding)):
        yield f"zero_fsdp: {NOT_PUBLISHED} as ZeRO-{plan.zero}"
    if not row.text("mbs"):
        sizes = sorted({one.batch.micro for one in runs})
        yield f"mbs: {NOT_PUBLISHED} as {' or '.join(map(str, sizes))}"
    if run.model.experts and not row.text("ep"):
        spreads = sorted({one.plan.ep for one in runs})
        yield f"ep: {NOT_PUBLISHED} as {' or '.join(map(str, spreads))}, which fits in memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """The runs that a row may stand for."""

    runs: tuple[TrainingRun, ...]
    unknown: tuple[str, ...]
    """Keys of a config that the row leaves open, and the runs may differ in."""
    assumed: tuple[str, ...]
    """A phrase for each column that the row leaves open."""


def candidates(row: PublishedRow, profile: str = "", *, timed: bool = True) -> Candidates:
    """The runs of a row, priced from `profile` where one is named; with `timed`, a row needs a time.

    NotExpressibleError, with the reason, for a row that cannot be expressed as a run.
    """
    _refuse_other_work(row, timed=timed)
    model = model_of(row)
    hardware = hardware_of(row)
    precision, recipe = precision_of(row)
    framework = framework_of(row)
    plan = _plan(row, model)
    offload = offload_of_row(row, model.layers)
    plan |= _recompute(row, model.layers / (plan["pp"] * plan["vpp"]))
    execution: dict[str, Any] = {"framework": framework} | settings_of(row)
    if recipe:
        execution["fp8_recipe"] = recipe
    if model.experts and is_routed_naturally(row):
        execution["expert_load"] = NATURAL
    unknown = tuple(_unknown(row, model, plan))
    runs: list[TrainingRun] = []
    for settings in unstated_settings(row, model, hardware_facts(hardware).architecture):
        sections: dict[str, Any] = {
            "cluster": _cluster(row, hardware) | ({"profile": profile} if profile else {}),
            "plan": plan,
            "batch": _batch(row),
            "execution": execution | settings,
            "precision": precision,
            "adapters": adapters_of_row(row),
            "offload": offload,
            "tuning": tuning_of_row(row),
        }
        try:
            runs += likely_runs(build(row.row_id, model, sections), unknown)
        except ConfigError as error:
            raise NotExpressibleError(str(error).replace(f"{row.row_id}: ", "")) from None
    return Candidates(runs=tuple(runs), unknown=unknown, assumed=tuple(assumptions(row, runs)))


def _refuse_other_work(row: PublishedRow, *, timed: bool) -> None:
    if row.fault:
        raise NotExpressibleError(row.fault)
    if timed and row.text("status") not in ("", "ok"):
        raise NotExpressibleError(
            f"status: {row.text('status')}, so there is no time; `validate ranking` judges such rows"
        )
    if timed and row.measured_us is None:
        raise NotExpressibleError(row.why_not_timed)


def hardware_of(row: PublishedRow) -> str:
    """The catalogue's entry by name, and by memory where there are several."""
    found = hardware_named(row.text("gpu"), row.number("gpu_mem_gb"))
    if not found:
        nearest = did_you_mean(row.text("gpu").lower(), known_hardware())
        raise NotExpressibleError(f"gpu: {row.text('gpu')} is not in configs/hardware{nearest}")
    return found


def nodes_of(gpus: int, node_size: int) -> dict[str, int]:
    """Equal nodes of at most `node_size` GPUs that have all of these GPUs, as few as can be."""
    per_node = max(size for size in range(1, min(node_size, gpus) + 1) if gpus % size == 0)
    return {"nodes": gpus // per_node, "gpus_per_node": per_node}


def _cluster(row: PublishedRow, hardware: str) -> dict[str, Any]:
    gpus, node_size = row.gpus(), row.integer("gpus_per_node")
    if "NVL72" in row.text("intra_node"):
        node_size = hardware_facts(hardware).gpus_per_node
    cluster: dict[str, Any] = {
        "hardware": hardware,
        **nodes_of(gpus, node_size),
        "node_size": node_size,
        "profile": profile_of(hardware),
    }
    if gb_per_s := _inter_node_gb_per_s(row, row.integer("gpus_per_node")):
        cluster["inter_node_gb_per_s"] = gb_per_s
    return cluster


def profile_of(hardware: str) -> str:
    """The profile of imported samples of a device, or a name without any; samples that hold a cluster's own network are not taken."""
    from sampling.store.profiles import is_fitted

    profile = f"{hardware}-aiconfigurator"
    return profile if is_fitted(profile) else f"{hardware}-published"


def _inter_node_gb_per_s(row: PublishedRow, per_node: int) -> float | None:
    """GB/s of the network per GPU, from `400 Gbps per GPU`, `8x 200 Gbps per node` or `4 OmniPath links/node`; other
    figures are per node."""
    text = row.text("inter_node")
    if not text:
        return None
    if links := re.search(r"(\d+) OmniPath links", text):
        return float(links[1]) * 100 / 8 / per_node
    many = re.search(r"(\d+)\s*x\s*(\d+)\s*Gb", text)
    if many:
        return float(many[1]) * float(many[2]) / 8 / per_node
    found = re.search(r"(\d+)\s*Gb", text) or re.search(r"bandwidth (\d+)", text)
    if not found:
        return None
    of_gpu = "per GPU" in text
    return float(found[1]) / 8 / (1 if of_gpu else per_node)


def _unknown(row: PublishedRow, model: ModelSpec, plan: Mapping[str, Any]) -> Iterator[str]:
    """The keys of a config that the row leaves open, whose usual values are equally likely: chunks where the framework or
    the row says interleaved, recomputation, the sequences of a microbatch, and the ranks that a mixture's experts spread over."""
    text = row.text("pp_schedule")
    interleaved = framework_of(row) in INTERLEAVED_BY_DEFAULT or "interleaved" in text.lower()
    if row.integer("pp") > 1 and not row.text("vpp") and interleaved and "layout" not in plan:
        yield from ("plan.vpp", *(["plan.schedule"] if "interleaved" in text.lower() else []))
    if not row.text("recompute") and "maxtext" not in row.text("framework").lower():
        yield "plan.recompute"
    if not row.text("mbs") and not row.text("grad_accum"):
        yield "batch.micro"
    if model.experts and not row.text("ep"):
        yield "plan.ep"


def _plan(row: PublishedRow, model: ModelSpec) -> dict[str, Any]:
    degree = {name: row.integer(name) for name in ("tp", "pp", "cp", "ep", "etp")}
    ranks, gpus = degree["tp"] * degree["pp"] * degree["cp"], row.gpus()
    dp = row.integer("dp", gpus // ranks)
    if model.experts and dp * ranks * degree["ep"] == gpus:
        dp = gpus // ranks  # some tables count the ranks that hold the same experts
    if dp * ranks != gpus:
        raise NotExpressibleError(f"dp: tp · pp · cp · dp = {dp * ranks}, but n_gpus is {gpus}")
    if not model.experts:
        degree["ep"] = degree["etp"] = 1
    vpp = row.integer("vpp") if degree["pp"] > 1 else 1
    plan: dict[str, Any] = {**degree, "dp": dp, "vpp": vpp, "sp": _sequence_parallel(row, degree["tp"])}
    plan["schedule"] = (
        "interleaved-1f1b" if vpp > 1 else "afab" if row.text("pp_schedule").startswith("afab") else "1f1b"
    )
    if exchanges_heads(row, model, degree["tp"] * degree["cp"]):
        plan["cp_method"] = "all_to_all"
    stage = _zero(row)
    plan["zero"] = stage if dp * degree["cp"] > 1 else 0
    if "HSDP" in row.text("zero_fsdp"):
        plan["shard"] = row.integer("gpus_per_node")
    if group := re.search(r"group=(\d+)|ici_FSDP=(\d+)", row.text("zero_fsdp")):
        shard = int(group[1] or group[2]) * degree["cp"]  # ranks of cp shard the state too
        if plan["zero"] and shard > 1 and (dp * degree["cp"]) % shard == 0:
            plan["shard"] = shard
    return plan | _layout(row, model, degree["pp"] * vpp)


def _sequence_parallel(row: PublishedRow, tp: int) -> bool:
    """The published setting; without one, Megatron's descendants of 2023 and later use it wherever tp is above 1."""
    if tp == 1:
        return False
    stated = row.number("seq_parallel")
    return framework_of(row) not in ONLY_IF_STATED if stated is None else bool(stated)


ONLY_IF_STATED = ("megatron-2021", "megatron-deepspeed", "gpt-neox", "aa-scaling")
"""Frameworks from before sequence parallelism, or whose default is off."""
STAGES: tuple[tuple[str, int], ...] = (
    ("SHARD_GRAD_OP", 2),
    ("(?i)[fh]sdp", 3),
    (r"ZeRO-1|^1$|distributed optimizer", 1),
    (r"ZeRO-2|^2$", 2),
    (r"ZeRO-3|^3$", 3),
    (r"(?i)\bddp\b|\bnone\b|ZeRO-0|^0$", 0),
)
"""Patterns for sharded data parallelism and their ZeRO stage; the first match counts."""


def _zero(row: PublishedRow) -> int:
    """The published ZeRO stage; without one, Megatron's recipes of 2023 and later shard the optimizer."""
    text = row.text("zero_fsdp") or row.text("fsdp") or row.text("distributed_optimizer")
    if not text:
        return 1 if framework_of(row) in ("nemo", "megatron-core") else 0
    stage = next((stage for words, stage in STAGES if re.search(words, text)), None)
    if stage is None:
        raise NotExpressibleError(f"zero_fsdp: {text} is not known; give DDP, ZeRO-1, ZeRO-2, ZeRO-3, FSDP or HSDP")
    return stage


MODULES_AFTER_LAYERS = {"gpt-neox": 3, "aa-scaling": 2}
"""Frameworks that share out all modules of the model alike, the embedding among them, and how many modules follow the last layer:
DeepSpeed's PipelineModule under GPT-NeoX; norm and head (github.com/Aleph-Alpha/scaling, transformer/model/model.py)."""


def _layout(row: PublishedRow, model: ModelSpec, stages: int) -> dict[str, Any]:
    framework = framework_of(row)
    if layout := stated_layout(row):
        return {"layout": layout}
    if framework in MODULES_AFTER_LAYERS:
        return {"count_embedding": 1, "count_loss": MODULES_AFTER_LAYERS[framework]}
    ends = counted_ends(model, stages)
    fills = framework in FULL_STAGES and model.experts and not ends
    split = full_stages(model.layers, stages) if fills else ()
    return {"layout": in_letters(split, model.mtp_layers)} if split else ends


FULL_STAGES = ("nemo",)
"""Frameworks whose recipes of mixtures fill all stages but the last where layers do not divide (Megatron-Bridge,
recipes/deepseek/deepseek_v3.py, set_deepseek_v3_pipeline_model_parallel_layout, and that of Kimi K2: 61 layers on 16 stages are 4 on
each of 15, and one before the loss)."""


def full_stages(layers: int, stages: int) -> tuple[int, ...]:
    """An uneven split: all stages but the last have the mean, rounded up, and the last has the rest. Where the others would hold one layer
    more than there are, the last has none and the first, which has the embedding, one fewer. Empty where they would hold more than that,
    and where layers divide."""
    most = -(-layers // stages)
    left = layers - most * (stages - 1)
    if layers % stages == 0 or left < -1 or stages == 1:
        return ()
    return (most + min(0, left), *[most] * (stages - 2), max(0, left))


def counted_ends(model: ModelSpec, stages: int) -> dict[str, int]:
    """Embedding and head each take a layer's place where a count of layers is chosen for that."""
    fits_with_ends = model.layers % stages and (model.layers + 2) % stages == 0
    return {"count_embedding": 1, "count_loss": 1} if fits_with_ends else {}


def _recompute(row: PublishedRow, layers_per_chunk: float) -> dict[str, Any]:
    """The published recomputation; none without one, but MaxText's recipes recompute whole layers."""
    of_torch = selective_is_of_operators(framework_of(row))
    text, modules = row.text("recompute"), re.search(r"modules=([\w,]+)", row.text("recompute_detail"))
    if text == "full" or (row.text("offload") and framework_of(row) == PRIME_RL):
        # prime-rl offloads the inputs of layers that it repeats (trainer/config.py: ac_offloading switches ac on)
        return {"recompute": "full"} | _method(row)
    if text.endswith(" layers"):
        return _first_layers(int(text.split()[0]))
    if text == "selective" and of_torch:
        return _share_of_layers(row, layers_per_chunk) or {"recompute": "ops"}
    if text == "selective":
        named = modules_of(row.text("recompute_modules")) or (modules[1] if modules else "core_attn")
        return {"recompute": "selective", "recompute_modules": named}
    return {"recompute": "full" if not text and "maxtext" in row.text("framework").lower() else "none"}


def modules_of(text: str) -> str:
    """Recomputed modules, separated by commas, from a list with spaces or commas between."""
    return ",".join(re.split(r"[\s,]+", text.strip()))


def _method(row: PublishedRow) -> dict[str, Any]:
    if row.text("recompute_method") != "block":
        return {}
    return {"recompute_method": "block", "recompute_layers": row.integer("recompute_layers")}


def _first_layers(count: int) -> dict[str, Any]:
    """Recomputation of the first layers of each chunk."""
    if not count:
        return {"recompute": "none"}
    return {"recompute": "full", "recompute_method": "block", "recompute_layers": count}


def _share_of_layers(row: PublishedRow, layers_per_chunk: float) -> dict[str, Any]:
    """The layers whose repetition costs what selective checkpointing does, by hardware over model FLOPs (a whole forward is a
    third of the model's); empty where those were not published."""
    hardware, model = row.number("hfu_pct"), row.number("mfu_pct")
    if not (hardware and model and hardware > model):
        return {}
    share = 3 * (hardware / model - 1)
    return _first_layers(max(1, round(min(1.0, share) * layers_per_chunk)))


SQUAD_TOKENS = 204
"""Tokens of a question with its passage and answer, of which 20 fill a row of 4,096 (SQuAD: passages of 117 words on average, Rajpurkar et
al., arXiv 1606.05250, prompts and 1.3 tokens a word)."""


def _batch(row: PublishedRow) -> dict[str, Any]:
    """Sequences a step, and those of a microbatch, each from the other and the accumulation steps where not stated."""
    replicas = row.gpus() // (row.integer("tp") * row.integer("pp") * row.integer("cp"))
    total = row.integer("gbs", replicas * row.integer("mbs", 1) * row.integer("grad_accum", 0, least=0)) or row.integer(
        "gbs"
    )
    stated = row.number("mbs")
    accumulated = row.text("grad_accum")
    micro = (
        row.integer("mbs", 1) if stated or not accumulated else max(1, total // (replicas * row.integer("grad_accum")))
    )
    if total % (micro * replicas):
        # a last microbatch that is smaller than the others: as many even ones
        micro = math.gcd(total // replicas, micro) if total % replicas == 0 else micro
    batch = {"global": total, "micro": micro, "seq_len": row.integer("seq_len")}
    if "packed sequences (SQuAD)" not in row.text("notes"):
        return batch
    in_a_row = row.integer("seq_len") // SQUAD_TOKENS
    return batch | {"global": total * in_a_row, "lengths": f"constant:{SQUAD_TOKENS}", "padding": PACKED}
