"""Megatron-LM's arguments of a plan, a batch and how they are executed, both ways, by the names in `predict.config.aliases`."""

from collections.abc import Iterator, Mapping
from typing import Any

from predict.config.aliases import ALIASES, CP_METHODS
from predict.config.rules.pipeline import SPLITTING
from predict.convert.arguments import (
    Arguments,
    Setting,
    Statement,
    degree,
    own_name,
    read_settings,
    setting,
    size,
    write_settings,
)
from predict.run.execution import COPIES, IN_TURN, MOMENT_DTYPES, NATURAL, PRIMARY, REMAINDER, UNTOUCHED
from predict.run.plan import Plan
from predict.run.stages import split_layers, stages_in
from predict.run.training_run import TrainingRun
from sampling.arithmetic.expert_rows import BALANCED
from sampling.files.faults import divisors, shown
from sampling.operators.experts import PER_EXPERT

NAMES: Mapping[str, str] = {f"{alias.section}.{alias.key}": name for name, alias in ALIASES.items()}
"""Key path → the argument."""
SHARDED: Mapping[int, str] = {2: "optim_grads", 3: "optim_grads_params"}
"""ZeRO stage → `--data-parallel-sharding-strategy` of Megatron-FSDP."""
OF_FSDP = "fsdp_dtensor"
"""The one format of checkpoints with which Megatron-FSDP starts."""
ENDS = tuple(f"plan.{key}" for key in SPLITTING[1:])
"""Keys of what the first and the last stage hold."""
RECOMPUTING = ("plan.recompute", "plan.recompute_modules", "plan.recompute_method", "plan.recompute_layers")


def _write_context(run: TrainingRun, statement: Statement) -> None:
    if run.plan.cp > 1:
        method = next(name for name, own in CP_METHODS.items() if own == run.plan.cp_method)
        statement.say("plan.cp_method", **{NAMES["plan.cp_method"]: method})


def _read_context(given: Arguments) -> dict[str, Any]:
    method = given.text(NAMES["plan.cp_method"], "p2p")
    is_used = (given.count(NAMES["plan.cp"]) or 1) > 1
    return {"plan.cp_method": CP_METHODS.get(method, method) if is_used else "ring"}


def _read_etp(given: Arguments) -> int:
    # Megatron-LM splits experts as attention is split where nothing else is said
    etp = given.count(NAMES["plan.etp"]) or given.count(NAMES["plan.tp"]) or 1
    return etp if given.count("num_experts") else 1


def _write_pipeline(run: TrainingRun, statement: Statement) -> None:
    plan, say = run.plan, statement.say
    usual = "interleaved-1f1b" if plan.vpp > 1 else "1f1b"
    if plan.schedule == usual or plan.pp == 1:
        say("plan.schedule")
    else:
        statement.cannot("plan.schedule", plan.schedule, f"Megatron-LM runs {usual} with this pp and vpp")
    say("plan.vpp", *(f"plan.{key}" for key in SPLITTING))
    if plan.layout or plan.count_embedding > 1 or plan.count_loss > 1 or not _divides(run):
        say(**{NAMES["plan.layout"]: _layout(run)})
        return
    if plan.vpp > 1:
        say(**{NAMES["plan.vpp"]: plan.vpp})
    ends = {path: getattr(plan, path.removeprefix("plan.")) for path in ENDS}
    say(**{NAMES[path]: bool(n) if "count" in path else n for path, n in ends.items() if n})


def _divides(run: TrainingRun) -> bool:
    """Whether the layers divide into equal chunks, apart from the ranks that are given their own; Megatron-LM splits no others
    without a layout."""
    plan = run.plan
    own = [layers for layers in (plan.first_stage_layers, plan.last_stage_layers) if layers]
    rest = run.model.layers + plan.count_embedding + plan.count_loss - sum(own)
    ranks = plan.pp - len(own)
    return all(layers % plan.vpp == 0 for layers in own) and rest % (max(ranks, 1) * plan.vpp) == 0


def _layout(run: TrainingRun) -> str:
    """The layout in Megatron's letters, whose stages are as many as its `|` separate."""
    shares = split_layers(run.model.layers, run.plan.pp * run.plan.vpp, run.plan)
    stages = [f"t*{share}" if share else "" for share in shares]
    stages[0], stages[-1] = f"E{stages[0]}", f"{stages[-1]}{'m' * run.model.mtp_layers}L"
    return "|".join(stages)


def _read_pipeline(given: Arguments) -> dict[str, Any]:
    pp = given.count(NAMES["plan.pp"]) or 1
    vpp = given.count(NAMES["plan.vpp"]) or given.count("virtual_pipeline_model_parallel_size") or 1
    of_chunk = given.count("num_layers_per_virtual_pipeline_stage")
    layout = given.text(NAMES["plan.layout"], "")
    read: dict[str, Any] = {}
    if layout:
        read["plan.layout"], vpp = layout, max(1, stages_in(layout) // pp)
    else:
        for path in ENDS:
            name = NAMES[path]
            read[path] = int(given.switch(name)) if "count" in path else given.count(name) or 0
        vpp = _chunks(given, pp, vpp, of_chunk, read)
    return read | {"plan.vpp": vpp, "plan.schedule": "interleaved-1f1b" if vpp > 1 else "1f1b"}


def _chunks(given: Arguments, pp: int, vpp: int, of_chunk: int | None, ends: Mapping[str, int]) -> int:
    """vpp, with a fault for layers that Megatron-LM does not split over the stages, or a stage over its chunks (arguments.py,
    `validate_args`); ranks with layers of their own are left to the rules of a plan."""
    counted = given.layers + sum(count for path, count in ends.items() if "count" in path)
    has_own = any(count for path, count in ends.items() if "count" not in path)
    if not given.layers or has_own or "deepspeed" in given.values:
        return max(1, given.layers // (pp * of_chunk)) if of_chunk and given.layers else vpp
    of_stage, rest = divmod(counted, pp)
    if rest:
        own = ", ".join(NAMES[path] for path in ENDS)
        problem = f"{pp} stages do not split {counted} layers evenly, which Megatron-LM refuses; give a divisor of {counted}, or {own}"
        given.fault(NAMES["plan.pp"], problem)
    elif of_chunk and of_stage % of_chunk:
        problem = f"{of_chunk} does not divide the {of_stage} layers of a stage, which Megatron-LM refuses; give {divisors(of_stage)}"
        given.fault("num_layers_per_virtual_pipeline_stage", problem)
    return max(1, of_stage // of_chunk) if of_chunk else vpp


def _write_sharding(run: TrainingRun, statement: Statement) -> None:
    plan, say = run.plan, statement.say
    say("plan.zero", "plan.shard")
    if not plan.zero:
        return
    say(**{NAMES["plan.zero"]: True})
    if plan.zero > 1:
        say(use_megatron_fsdp=True, data_parallel_sharding_strategy=SHARDED[plan.zero], ckpt_format=OF_FSDP)
    if plan.shard:
        say(num_distributed_optimizer_instances=plan.dp * plan.cp // plan.shard)


def _read_sharding(given: Arguments) -> dict[str, Any]:
    zero = int(given.switch(NAMES["plan.zero"]))
    strategy = given.text("data_parallel_sharding_strategy", "no_shard")
    if given.switch("use_megatron_fsdp"):
        zero = own_name({0: "no_shard", 1: "optim", **SHARDED}, strategy, zero)
    if given.switch("use_torch_fsdp2"):
        zero = 2 if given.switch("torch_fsdp2_no_reshard_after_forward") else 3
    return {"plan.zero": zero}


def _write_recompute(run: TrainingRun, statement: Statement) -> None:
    plan, say = run.plan, statement.say
    say(*RECOMPUTING)
    if plan.recompute == "ops":
        statement.cannot(
            "plan.recompute", plan.recompute, "Megatron-LM recomputes modules or whole layers; nothing is written"
        )
    if plan.recompute in ("none", "ops"):
        return
    say(**{NAMES["plan.recompute"]: plan.recompute})
    if plan.recompute == "selective":
        say(**{NAMES["plan.recompute_modules"]: list(plan.modules_recomputed)})
    else:
        layers = plan.recompute_layers if plan.recompute_method == "block" else 1
        say(**{NAMES["plan.recompute_method"]: plan.recompute_method, NAMES["plan.recompute_layers"]: layers})


def _read_recompute(given: Arguments) -> dict[str, Any]:
    how = given.text(NAMES["plan.recompute"], "none")
    modules = given.value(NAMES["plan.recompute_modules"], ["core_attn"])
    method = given.text(NAMES["plan.recompute_method"], "uniform")
    layers = given.count(NAMES["plan.recompute_layers"]) or 1
    if how == "full" and method == "uniform" and layers > 1:
        problem = f"{layers} layers between checkpoints are not modelled with uniform; write 1, or {NAMES['plan.recompute_method']} block"
        given.fault(NAMES["plan.recompute_layers"], problem)
    if how == "selective":
        names = modules if isinstance(modules, list) else [modules]
        return {"plan.recompute": how, "plan.recompute_modules": ",".join(map(str, names))}
    if how == "full" and method == "block":
        return {"plan.recompute": how, "plan.recompute_method": method, "plan.recompute_layers": layers}
    return {"plan.recompute": how}


PLAN: tuple[Setting, ...] = (
    *(degree(path, NAMES[path], left_out=True) for path in ("plan.tp", "plan.pp", "plan.cp", "plan.ep")),
    setting(
        "plan.sp",
        write=lambda value, run: {NAMES["plan.sp"]: True} if value else {},
        read=lambda given: given.switch(NAMES["plan.sp"]) and (given.count(NAMES["plan.tp"]) or 1) > 1,
    ),
    setting(
        "plan.etp",
        write=lambda value, run: {} if run.model.experts is None else {NAMES["plan.etp"]: value},
        read=_read_etp,
    ),
    Setting(write=_write_context, read=_read_context),
    Setting(write=_write_pipeline, read=_read_pipeline),
    Setting(write=_write_sharding, read=_read_sharding),
    Setting(write=_write_recompute, read=_read_recompute),
)
BATCH: tuple[Setting, ...] = tuple(size(path, NAMES[path]) for path in ("batch.global", "batch.micro", "batch.seq_len"))


def write_plan(run: TrainingRun, statement: Statement) -> None:
    """Add the arguments of a plan and its batch; degrees of 1 are left out."""
    statement.say("plan.dp")  # the ranks that the other degrees leave over
    write_settings((*PLAN, *BATCH), run, statement)


def read_plan(given: Arguments) -> dict[str, Any]:
    """The keys of `plan` that differ from its defaults, without dp, which the size of the cluster decides."""
    default = Plan()
    return {key: value for key, value in read_settings(PLAN, given)["plan"].items() if value != getattr(default, key)}


# Megatron-LM's arguments of how a plan is executed (megatron/training/arguments.py), both ways, setting by setting.

LOCAL_LAYERS = "megatron-local"
"""The framework that `--transformer-impl local` stands for."""
FLASH = "flash"
FLASH_OF: Mapping[str, str] = {"hopper": "fa3"}
"""Architecture → the kernel that Transformer Engine takes for `--attention-backend flash` where it is installed."""
OLDER_FLASH = "fa2"
BACKENDS: Mapping[str, str] = {"best": "auto", "fa2": FLASH, "fa3": FLASH, "cudnn": "fused", "unfused": "unfused"}
FULL_ITERATION = "full_iteration"
GRAPHS: Mapping[str, Mapping[str, Any]] = {
    "layers": {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": "attn"},
    # with which Megatron-LM starts only if it does not look for NaNs
    "full": {
        "cuda_graph_impl": "local",
        "cuda_graph_scope": FULL_ITERATION,
        "no_check_for_nan_in_loss_and_grad": True,
    },
}
OFF = ("", "none", "false", "False")
"""Words by which a format is off."""
RECIPES = ("tensorwise", "delayed", "mxfp8", "blockwise")
PRECISIONS: Mapping[str, Mapping[str, Any]] = {
    "fp16": {"fp16": True},
    "bf16": {"bf16": True},
    "fp8": {"bf16": True, "fp8_format": "hybrid"},
    "nvfp4": {"bf16": True, "fp4_format": "e2m1", "fp4_recipe": "nvfp4"},
}


def _switch(key: str, name: str) -> Setting:
    """A setting that is on where the switch is given."""
    return setting(
        f"execution.{key}",
        write=lambda value, run: {name: True} if value else {},
        read=lambda given: given.switch(name),
    )


def _unless(key: str, name: str, positive: str) -> Setting:
    """A setting that is on unless the switch `name` is given, which YAML files call by its opposite, `positive`."""
    return setting(
        f"execution.{key}",
        write=lambda value, run: {} if value else {name: True},
        read=lambda given: given.switch(positive, True) and not given.switch(name),
    )


def _dropout(value: bool, run: TrainingRun) -> Mapping[str, Any]:
    share = 0.1 if value else 0.0
    return {"attention_dropout": share, "hidden_dropout": share}


def _gradients(value: str, run: TrainingRun) -> Mapping[str, Any] | None:
    if run.precision in ("fp32", "tf32"):
        return {} if value == "fp32" else None
    own = "fp16" if run.precision == "fp16" else "bf16"
    if value not in ("fp32", own):
        return None
    if own == "fp16":
        return {"accumulate_allreduce_grads_in_fp32": True} if value == "fp32" else {}
    return {"grad_reduce_in_bf16": True} if value == "bf16" else {}


def _read_gradients(given: Arguments) -> str:
    in_fp32, in_bf16 = given.switch("accumulate_allreduce_grads_in_fp32"), given.switch("grad_reduce_in_bf16")
    if given.switch("fp16"):
        return "fp32" if in_fp32 else "fp16"
    return "bf16" if in_bf16 else "fp32"


WIDE_ENDS = "first_last_layers_bf16"


def _wide_layers(key: str, name: str) -> Setting:
    """Layers at one end that stay in 16 bits; one where Megatron's switch is given alone."""
    return setting(
        f"execution.{key}",
        write=lambda value, run: {WIDE_ENDS: True, name: value} if run.execution.wide_layers else {},
        read=lambda given: (1 if (found := given.count(name)) is None else found) if given.switch(WIDE_ENDS) else 0,
    )


def _in_fp8_attention() -> Setting:
    """Attention's products in fp8, which Transformer Engine may keep in fp8 for the products around them too (fp8_multi_head_attention)."""
    names = ("fp8_dot_product_attention", "fp8_multi_head_attention")
    return setting(
        "execution.fp8_attention",
        write=lambda value, run: {names[0]: True} if value else {},
        read=lambda given: True in [given.switch(name) for name in names],
    )


def _recipe(value: str, run: TrainingRun) -> Mapping[str, Any] | None:
    if run.precision != "fp8":
        return {} if not value else None
    return {"fp8_recipe": value or RECIPES[0]} if value in ("", *RECIPES) else None


def _read_recipe(given: Arguments) -> str:
    recipe = given.text("fp8_recipe", "delayed")
    if "fp8_format" not in given.values and "fp8" not in given.values:
        return ""
    return "" if recipe == RECIPES[0] else recipe


def _fp8_weights(value: str, run: TrainingRun) -> Mapping[str, Any]:
    in_blocks = {"reuse_grad_buf_for_mxfp8_param_ag": True} if run.execution.fp8_recipe == "mxfp8" else {}
    return {"fp8_param_gather": True} | in_blocks if value == PRIMARY else {}


def _read_fp8_weights(given: Arguments) -> str | None:
    """Weights in fp8 where they are asked for, copies where they are refused, as some recipes have them by default."""
    name = "fp8_param_gather"
    if given.switch(name):
        return PRIMARY
    return COPIES if name in given.values and read_precision(given) == "fp8" else None


def _masters(value: str, run: TrainingRun) -> Mapping[str, Any]:
    """The precision-aware optimizer, which keeps remainders of fp32 masters unless their dtype is fp16."""
    if value in ("", "fp32"):
        return {}
    return {"use_precision_aware_optimizer": True} | ({"main_params_dtype": "fp16"} if value == "fp16" else {})


PRINTED: Mapping[str, str] = {
    "torch.float32": "fp32",
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
    "torch.uint8": "fp8",
}
"""Dtype of the optimizer as Megatron-LM prints it among its arguments → its word on a command line (arguments.py, `dtype_map`)."""


def _dtype(given: Arguments, name: str) -> str:
    word = given.text(name, "fp32")
    return PRINTED.get(word, word)


def _read_masters(given: Arguments) -> str | None:
    if not given.switch("use_precision_aware_optimizer") or given.switch("fp16"):
        return None
    return "fp16" if _dtype(given, "main_params_dtype") == "fp16" else REMAINDER


def _moments(value: str, run: TrainingRun) -> Mapping[str, Any] | None:
    if value in ("", "fp32"):
        return {}
    takes_others = run.execution.master_dtype not in ("", "fp32")
    return {"exp_avg_dtype": value, "exp_avg_sq_dtype": value} if takes_others else None


def _read_moments(given: Arguments) -> str | None:
    first, second = (_dtype(given, f"exp_avg{end}_dtype") for end in ("", "_sq"))
    if first != second or first not in MOMENT_DTYPES:
        problem = (
            f"{first}, and exp_avg_sq_dtype is {second}; moments of one dtype are modelled, {', '.join(MOMENT_DTYPES)}"
        )
        given.fault("exp_avg_dtype", f"{problem}; give both the same")
        return None
    return first if first != "fp32" else None


def _parameters(value: bool, run: TrainingRun) -> Mapping[str, Any] | None:
    """The switch, which Megatron-LM refuses without the distributed optimizer, and unless gradients overlap too."""
    if not value or not run.plan.zero:
        return {}
    return {"overlap_param_gather": True} if run.execution.overlap_gradients else None


def _read_parameters(given: Arguments) -> bool | None:
    overlaps = given.switch("overlap_param_gather")
    shards = [given.switch(name) for name in ("use_distributed_optimizer", "use_megatron_fsdp")]
    return overlaps if any(shards) else None


def _overlap_tp(value: str, run: TrainingRun) -> Mapping[str, Any] | None:
    """The switch of a value; Megatron-LM refuses to pipeline without sequence parallelism, which needs tensor parallelism."""
    if run.plan.tp == 1:
        return {}
    if value == "pipelined" and not run.plan.sp:
        return None
    return {"pipelined": {"tp_comm_overlap": True}, "none": {"no_async_tensor_model_parallel_allreduce": True}}.get(
        value, {}
    )


def _read_overlap_tp(given: Arguments) -> str | None:
    behind = not given.switch("no_async_tensor_model_parallel_allreduce")
    read = "pipelined" if given.switch("tp_comm_overlap") else "backward" if behind else "none"
    return read if (given.count("tensor_model_parallel_size") or 1) > 1 else None


SHARED_EXPERT, OTHER_MICROBATCH = "moe_shared_expert_overlap", "overlap_moe_expert_parallel_comm"


def _overlap_ep(value: str, run: TrainingRun) -> Mapping[str, Any] | None:
    """The switch of a value; Megatron-LM refuses to pair microbatches in a pipeline without virtual stages, without expert parallelism and
    beside full recomputation."""
    plan = run.plan
    if value == "microbatch" and (plan.vpp == 1 < plan.pp or plan.ep == 1 or plan.recompute == "full"):
        return None
    names = {"shared_expert": SHARED_EXPERT, "microbatch": OTHER_MICROBATCH}
    return {names[value]: True} if value in names else {}


def _read_overlap_ep(given: Arguments) -> str:
    behind_shared = given.switch(SHARED_EXPERT)
    if given.switch(OTHER_MICROBATCH):
        for problem in _refusals_of_pairs(given, behind_shared=behind_shared):
            given.fault(OTHER_MICROBATCH, f"Megatron-LM refuses it {problem}")
        return "microbatch"
    return "shared_expert" if behind_shared else "none"


def _refusals_of_pairs(given: Arguments, *, behind_shared: bool) -> Iterator[str]:
    """The settings that Megatron-LM refuses beside exchanges that another microbatch hides (transformer_config.py, `__post_init__`)."""
    pp, ep = (given.count(NAMES[path]) or 1 for path in ("plan.pp", "plan.ep"))
    if pp > 1 and _read_pipeline(given)["plan.vpp"] == 1:
        yield f"in a pipeline of {pp} without virtual stages; give num_layers_per_virtual_pipeline_stage, or omit it"
    if ep == 1:
        yield f"without {NAMES['plan.ep']} above 1; give that, or omit it"
    if given.text(NAMES["plan.recompute"], "none") == "full":
        yield f"beside {NAMES['plan.recompute']} full; give selective, or omit one of them"
    if behind_shared:
        yield f"beside {SHARED_EXPERT}; omit one of them"


def _expert_load(value: str, run: TrainingRun) -> Mapping[str, Any] | None:
    """The option under which the router leaves the experts this load. Balanced experts get none: the script trains a model, which a forced
    balance would spoil."""
    if value == UNTOUCHED:
        return {"moe_router_load_balancing_type": "none"}
    return {} if value in (BALANCED, NATURAL) else None


def _dispatch(value: str, run: TrainingRun) -> Mapping[str, Any]:
    if run.model.experts is None:
        return {}
    if value in ("deepep", "hybridep"):
        kernels = {"moe_enable_deepep": True} if value == "deepep" else {"moe_flex_dispatcher_backend": value}
        return {"moe_token_dispatcher_type": "flex", **kernels}
    return {"moe_token_dispatcher_type": value}


def _read_dispatch(given: Arguments) -> str | None:
    kind = given.text("moe_token_dispatcher_type", "allgather")
    backend = given.text("moe_flex_dispatcher_backend", "deepep")
    given.passed_over("moe_enable_deepep")
    if not given.count("num_experts"):
        return None
    return backend if kind == "flex" else kind


def _attention(value: str, run: TrainingRun) -> Mapping[str, Any] | None:
    return {"attention_backend": BACKENDS[value]} if value in BACKENDS else None


def _read_attention(given: Arguments) -> str:
    backend = given.text("attention_backend", "auto").removeprefix("AttnBackend.")  # as Megatron-LM prints it
    return {FLASH: FLASH, **{theirs: own for own, theirs in BACKENDS.items() if theirs != FLASH}}.get(backend, backend)


def _graphs(value: str, run: TrainingRun) -> Mapping[str, Any]:
    return GRAPHS.get(value, {})


def _read_graphs(given: Arguments) -> str:
    scope = given.text("cuda_graph_scope", "") or given.text("cuda_graph_modules", "")
    older = [given.switch(name) for name in ("external_cuda_graph", "enable_cuda_graph")]
    return graphs_of(given.text("cuda_graph_impl", "local" if any(older) else "none"), scope)


def graphs_of(impl: str, scope: str) -> str:
    """`execution.cuda_graphs` of Megatron's implementation of graphs, which names whole steps since 2026, and of their scope."""
    if impl == "none":
        return "none"
    return "full" if FULL_ITERATION in (impl, scope) else "layers"


def _of_mixtures(key: str, name: str) -> Setting:
    """A switch that means something for mixtures of experts alone."""
    return setting(
        f"execution.{key}",
        write=lambda value, run: {name: True} if value and run.model.experts is not None else {},
        read=lambda given: given.switch(name) if given.count("num_experts") else None,
    )


def _expert_products(value: str, run: TrainingRun) -> Mapping[str, Any]:
    """Transformer Engine's GroupedLinear unless the older library's one kernel, or no grouping, is asked for."""
    if run.model.experts is None or value == IN_TURN:
        return {}
    return {"moe_grouped_gemm": True, **({} if value == PER_EXPERT else {"moe_use_legacy_grouped_gemm": True})}


def _read_expert_products(given: Arguments) -> str | None:
    is_grouped, is_older = given.switch("moe_grouped_gemm"), given.switch("moe_use_legacy_grouped_gemm")
    if not given.count("num_experts"):
        return None
    return ("grouped" if is_older else PER_EXPERT) if is_grouped else IN_TURN


def _fuse_loss(value: bool, run: TrainingRun) -> Mapping[str, Any]:
    return {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native"} if value else {}


def _read_fuse_loss(given: Arguments) -> bool:
    kernel = given.text("cross_entropy_fusion_impl", "native")
    is_fused = given.switch("cross_entropy_loss_fusion")
    if is_fused and kernel != "native":
        problem = "Transformer Engine's loss in one kernel, which execution.framework nemo has; others are taken as without fusion"
        given.notes.append(f"cross_entropy_fusion_impl: {kernel}: {problem}")
    return is_fused and kernel == "native"


def _scaling(value: bool, run: TrainingRun) -> Mapping[str, Any] | None:
    return {} if value == (run.precision == "fp16") else None


OPTIMIZERS: Mapping[str, str] = {"adam": "adamw", "muon": "muon", "dist_muon": "muon"}


def _read_optimizer(given: Arguments) -> str:
    word = given.text("optimizer", "adam")
    if word not in OPTIMIZERS:
        given.fault(
            "optimizer", f"{word} keeps other state than adam, which is not modelled; {', '.join(OPTIMIZERS)} are"
        )
    return OPTIMIZERS.get(word, "adamw")


def _clip(value: bool, run: TrainingRun) -> Mapping[str, Any]:
    return {} if value else {"clip_grad": 0.0}


EXECUTION: tuple[Setting, ...] = (
    _switch("overlap_gradients", "overlap_grad_reduce"),
    setting("execution.overlap_parameters", write=_parameters, read=_read_parameters),
    _unless("overlap_p2p", "no_overlap_p2p_communication", "overlap_p2p_comm"),
    _unless("split_p2p", "no_scatter_gather_tensors_in_pipeline", "scatter_gather_tensors_in_pipeline"),
    _unless("fuse_gradients", "no_gradient_accumulation_fusion", "gradient_accumulation_fusion"),
    _unless("fuse_softmax", "no_masked_softmax_fusion", "masked_softmax_fusion"),
    setting("execution.expert_products", write=_expert_products, read=_read_expert_products),
    _of_mixtures("fuse_permute", "moe_permute_fusion"),
    setting("execution.fuse_loss", write=_fuse_loss, read=_read_fuse_loss),
    setting("execution.cuda_graphs", write=_graphs, read=_read_graphs),
    setting("execution.overlap_tp", write=_overlap_tp, read=_read_overlap_tp),
    setting("execution.overlap_ep", write=_overlap_ep, read=_read_overlap_ep),
    setting("execution.expert_load", write=_expert_load, read=lambda given: None),
    setting("execution.dispatch", write=_dispatch, read=_read_dispatch),
    setting("execution.attention", write=_attention, read=_read_attention),
    _in_fp8_attention(),
    setting("execution.gradient_dtype", write=_gradients, read=_read_gradients),
    setting("execution.fp8_recipe", write=_recipe, read=_read_recipe),
    _wide_layers("wide_first_layers", "num_layers_at_start_in_bf16"),
    _wide_layers("wide_last_layers", "num_layers_at_end_in_bf16"),
    setting(
        "execution.fp8_weights",
        write=_fp8_weights,
        read=_read_fp8_weights,
    ),
    setting("execution.master_dtype", write=_masters, read=_read_masters),
    setting("execution.moment_dtype", write=_moments, read=_read_moments),
    setting("execution.loss_scaling", write=_scaling, read=lambda given: given.switch("fp16")),
    setting("execution.clip_gradients", write=_clip, read=lambda given: given.number("clip_grad", 1.0) > 0),
    setting(
        "execution.dropout",
        write=_dropout,
        read=lambda given: max(given.number("attention_dropout", 0.1), given.number("hidden_dropout", 0.1)) > 0,
    ),
    setting(
        "execution.optimizer",
        write=lambda value, run: {"optimizer": "adam" if value == "adamw" else value},
        read=_read_optimizer,
    ),
)


def write_execution(run: TrainingRun, statement: Statement) -> None:
    """Add the arguments of a run's execution and precision, with a reason for each value that none expresses."""
    write_settings(EXECUTION, run, statement)
    if run.execution.attention in ("fa2", "fa3"):
        why = f"written as --attention-backend flash; Transformer Engine takes the {run.execution.attention} that is installed"
        statement.cannot("execution.attention", run.execution.attention, why)
    if run.precision == "tf32":
        statement.cannot("precision", run.precision, "written as fp32; allow tf32 in torch")
    if run.precision == "mxfp4":
        statement.cannot("precision", run.precision, "Transformer Engine trains in four bits as nvfp4 alone")
    statement.say(**PRECISIONS.get(run.precision, {}))


def read_execution(given: Arguments) -> dict[str, Any]:
    """The keys of `execution` that the arguments settle, or Megatron-LM's defaults in their absence."""
    return read_settings(EXECUTION, given)["execution"]


def read_precision(given: Arguments) -> str:
    wide = "fp16" if given.switch("fp16") else "bf16" if given.switch("bf16") else "fp32"
    narrow = (("fp4_format", "fp4", {"e2m1": "nvfp4"}), ("fp8_format", "fp8", {"e4m3": "fp8", "hybrid": "fp8"}))
    for flag, key, meanings in narrow:  # a flag of the command line, and its key in a file
        name = flag if flag in given.values else key
        word = given.text(name, "")
        if word in meanings:
            recipe = given.text("fp4_recipe", "nvfp4")
            if key == "fp4" and recipe != "nvfp4":
                given.fault("fp4_recipe", f"{shown(recipe)} is not modelled; nvfp4 is")
            return meanings[word]
        if word not in OFF:
            given.fault(name, f"{shown(given.values[name])} is not modelled; {', '.join(meanings)} are")
    return wide
