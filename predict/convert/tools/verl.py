"""verl's arguments on a command line or as YAML (verl, trainer/config/*.yaml), those that an RL config takes too among them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.offload import offload_of
from predict.convert.tool import ACCEPT, NO_VALUES, OFF, Reading, Sections, Tool, key_lists, model_named, typed
from predict.convert.tools import megatron_lm
from predict.convert.tools.transformers_trainer import LIGER
from predict.huggingface.config_json import load_model
from predict.model.shipped import shipped_model
from predict.rl.section import VERL, resolved
from sampling.files.faults import shown

ACTOR, ROLLOUT, REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"
TRANSFORMER = f"{ACTOR}.megatron.override_transformer_config."
OPTIMIZER = f"{ACTOR}.optim.override_optimizer_config."
"""Starts of keys that Megatron-LM's own arguments follow."""
ENGINES: Mapping[str, str] = {"vllm": "vllm-v1", "sglang": "sglang"}
FRAMEWORKS: Mapping[str, str] = {"fsdp": "transformers", "fsdp2": "transformers", "megatron": "megatron-core"}
USUAL_TOKENS = 16384
"""`ppo_max_token_len_per_gpu` of verl's trainer/config/actor/actor.yaml."""
ESTIMATORS = ("grpo", "gae", "reinforce_plus_plus", "rloo", "reinforce_plus_plus_baseline", "dapo")


def _read(reading: Reading) -> Sections:
    given = replace(reading.given, values={name: typed(value) for name, value in reading.given.values.items()})
    found: dict[str, dict[str, Any]] = {}
    for name, value in given.values.items():
        if name in VERL and value not in NO_VALUES:
            path, converted = resolved(name, given.value(name))
            if converted is not None:
                _put(found, path, converted)
    trainer = _framework(given)
    plan, execution = found.setdefault("plan", {}), found.setdefault("execution", {})
    execution["framework"] = FRAMEWORKS.get(trainer, "transformers")
    if given.count("actor_rollout_ref.model.lora_rank"):
        given.fault("actor_rollout_ref.model.lora_rank", "adapters of RL steps are not modelled; set it to 0")
    rl = found.setdefault("rl", {})
    if trainer == "megatron":
        found |= _megatron(reading, given, plan, execution)
    else:
        _fsdp(given, plan, execution)
    _batches(given, rl, found.get("cluster", {}))
    _passes(given, rl)
    _pass_of_reference(given, rl)
    _rollout(given, rl)
    _offload(given, rl, trainer)
    _critic(given, rl)
    dtype = given.text(f"{ACTOR}.fsdp_config.dtype", given.text(f"{ACTOR}.megatron.dtype", "bfloat16")).lower()
    model = model_named(replace(reading, given=given), "actor_rollout_ref.model.path")
    return {**found, **model, "precision": {"float16": "fp16", "float32": "fp32"}.get(dtype, "bf16")}


def _put(found: dict[str, dict[str, Any]], path: str, value: Any) -> None:
    section, _, key = path.partition(".")
    into = found.setdefault(section, {})
    while "." in key:
        above, _, key = key.partition(".")
        into = into.setdefault(above, {})
    into[key] = value


def _framework(given: Arguments) -> str:
    named = given.text(f"{ACTOR}.strategy", "").lower()
    config = str(given.values.get("config_name", ""))
    given.passed_over("config_name", "config_path")
    if named and named not in FRAMEWORKS:
        given.fault(f"{ACTOR}.strategy", f"{shown(named)} is not modelled; {', '.join(FRAMEWORKS)} are")
    is_megatron = "megatron" in config or any(name.startswith(f"{ACTOR}.megatron.") for name in given.values)
    return named or ("megatron" if is_megatron else "fsdp")


def _megatron(reading: Reading, given: Arguments, plan: dict[str, Any], execution: dict[str, Any]) -> Sections:
    """Settings of the transformer and the optimizer, by Megatron's names; returned is what they have the host hold."""
    own = {_own(name): value for name, value in given.values.items() if _own(name) != name}
    virtual = given.values.get(f"{ACTOR}.megatron.virtual_pipeline_model_parallel_size")
    given.passed_over(f"{ACTOR}.megatron.virtual_pipeline_model_parallel_size")
    if virtual not in NO_VALUES:
        own["virtual_pipeline_model_parallel_size"] = virtual
    renamed = {
        "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
        "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    }
    values = {renamed.get(name, name): value for name, value in own.items()}
    degrees = {
        "tensor_model_parallel_size": plan.get("tp"),
        "pipeline_model_parallel_size": plan.get("pp"),
        "sequence_parallel": plan.get("tp", 1) > 1,
    }
    # mixtures are known by the model that is named; Megatron's arguments need to know that experts are there
    values |= {
        "bf16": True,
        "num_experts": 1,
        "attention_dropout": 0.0,
        **{k: v for k, v in degrees.items() if v is not None},
    }
    inner = replace(reading, given=replace(given, values=values, used=set()), chosen_model="")
    mixture = _has_experts(given, reading.chosen_model)
    said = len(given.notes)
    read = megatron_lm.read_arguments(inner)
    if not mixture:
        del given.notes[said:]  # on the load of experts
    plan |= {key: value for key, value in read["plan"].items() if key not in plan and (key != "etp" or mixture)}
    plan["zero"] = 1
    kept = ("overlap_ep", "dispatch", "fuse_permute", "expert_products", "master_dtype", "moment_dtype")
    stated = {
        "master_dtype": "use_precision_aware_optimizer",
        "moment_dtype": "exp_avg_dtype",
        "dispatch": "moe_token_dispatcher_type",
        "fuse_permute": "moe_permute_fusion",
        "overlap_ep": "moe_shared_expert_overlap",
    }
    if mixture and "expert_load" in read["execution"]:
        execution["expert_load"] = read["execution"]["expert_load"]
    execution |= {key: read["execution"][key] for key in kept if stated.get(key) in own and key in read["execution"]}
    offload = offload_of(inner.given)
    given.passed_over(*(name for name in given.values if _own(name) != name and _is_read(_own(name), inner.given)))
    checkpointing = given.values.get("actor_rollout_ref.model.enable_gradient_checkpointing")
    given.passed_over("actor_rollout_ref.model.enable_gradient_checkpointing")
    if "recompute" not in plan and checkpointing not in OFF:
        plan["recompute"] = "none"  # of FSDP's trainer alone; Megatron's recomputes by the override
    return offload


def _own(name: str) -> str:
    """Megatron-LM's name of a key that overrides one of its arguments; another key as it is."""
    return name.removeprefix(TRANSFORMER).removeprefix(OPTIMIZER)


def _has_experts(given: Arguments, chosen_model: Any) -> bool:
    """Whether the model that the path or the user names is a mixture, whose experts Megatron splits as attention by default."""
    path = shipped_model(str(chosen_model or given.values.get("actor_rollout_ref.model.path", "")).rstrip("/"))
    return path is not None and load_model(path).experts is not None


def _is_read(own: str, inner: Arguments) -> bool:
    return own not in inner.left_over or own.endswith("pipeline_stage")


def _fsdp(given: Arguments, plan: dict[str, Any], execution: dict[str, Any]) -> None:
    plan["zero"] = 3
    if given.text(f"{ACTOR}.fsdp_config.model_dtype", "").lower() in ("bf16", "bfloat16"):
        # the actor's shards are fp32 by default; else weights, gradients and moments are of that dtype (workers/fsdp_workers.py)
        execution |= {"master_weights": False, "gradient_dtype": "bf16", "moment_dtype": "bf16"}
    if given.switch("actor_rollout_ref.model.use_liger"):
        execution |= {name: LIGER[name] for name in ("fuse_rms_norm", "elementwise")}
    if given.switch("actor_rollout_ref.model.use_fused_kernels"):
        execution["fuse_loss"] = True
    if plan.get("cp", 1) > 1:
        plan["cp_method"] = "all_to_all"
    plan["recompute"] = (
        "full" if given.switch("actor_rollout_ref.model.enable_gradient_checkpointing", True) else "none"
    )
    size = given.whole(f"{ACTOR}.fsdp_config.fsdp_size", -1)
    if size > 1:
        plan["shard"] = size
    if not given.switch(f"{ACTOR}.fsdp_config.reshard_after_forward", True):
        plan["zero"] = 2


def _batches(given: Arguments, rl: dict[str, Any], cluster: Mapping[str, Any]) -> None:
    """Older scripts state microbatches of all GPUs together."""
    world = (cluster.get("nodes") or 0) * (cluster.get("gpus_per_node") or 0)
    for name, path in (
        (f"{ACTOR}.ppo_micro_batch_size", ("micro",)),
        (f"{ROLLOUT}.log_prob_micro_batch_size", ("passes", "micro")),
    ):
        total = given.count(name)
        if not total:
            continue
        if not world or total % world:
            given.fault(name, f"{total} is of all GPUs together; give {name}_per_gpu")
            continue
        into = rl
        for key in path[:-1]:
            into = into.setdefault(key, {})
        into.setdefault(path[-1], total // world)
    updates_by_tokens = given.switch(f"{ACTOR}.use_dynamic_bsz")
    passes_by_tokens = given.switch(f"{ROLLOUT}.log_prob_use_dynamic_bsz", updates_by_tokens)
    _filled(rl, by_tokens=updates_by_tokens, usual=USUAL_TOKENS)
    if "passes" in rl or passes_by_tokens > updates_by_tokens:
        _filled(rl.setdefault("passes", {}), by_tokens=passes_by_tokens, usual=rl.get("max_tokens", USUAL_TOKENS))
    if "micro" not in rl and "max_tokens" not in rl:
        given.fault(f"{ACTOR}.ppo_micro_batch_size_per_gpu", "missing; verl needs it, or use_dynamic_bsz")


def _filled(microbatch: dict[str, Any], *, by_tokens: bool, usual: int) -> None:
    """Leaves out what verl does not read: the sequences of microbatches that are filled by tokens, the tokens of others."""
    microbatch.pop("micro" if by_tokens else "max_tokens", None)
    if by_tokens:
        microbatch.setdefault("max_tokens", usual)


def _passes(given: Arguments, rl: dict[str, Any]) -> None:
    estimator = given.text("algorithm.adv_estimator", "gae")
    if estimator not in ESTIMATORS:
        given.fault("algorithm.adv_estimator", f"{estimator} is not modelled; grpo, gae and reinforce_plus_plus are")
    own = {"gae": "ppo", "reinforce_plus_plus_baseline": "reinforce++", "reinforce_plus_plus": "reinforce++"}
    rl["algorithm"] = own.get(estimator, "grpo")
    in_reward = given.switch("algorithm.use_kl_in_reward")
    rl["reference"] = bool(rl.get("reference")) or in_reward
    if given.switch("algorithm.rollout_correction.bypass_mode"):
        rl["old_log_prob"] = False  # the engines' own log-probabilities stand for the actor's


def _pass_of_reference(given: Arguments, rl: Mapping[str, Any]) -> None:
    """A fault where the reference has other microbatches than the actor in its pass, since an RL config has one size for both."""
    if not rl["reference"]:
        return
    by_tokens = given.switch(f"{REF}.log_prob_use_dynamic_bsz", given.switch(f"{ACTOR}.use_dynamic_bsz"))
    key, name = ("max_tokens", "max_token_len") if by_tokens else ("micro", "micro_batch_size")
    stated = f"{REF}.log_prob_{name}_per_gpu"
    own, taken = given.count(stated), rl.get("passes", {}).get(key) or rl.get(key)
    if own and taken and own != taken:
        problem = f"{own}, and the reference's pass has the {taken} of the actor's ({ROLLOUT}.log_prob_{name}_per_gpu); other microbatches"
        given.fault(stated, f"{problem} for it are not modelled; give both the same, or {ACCEPT} {stated} for {taken}")


def _rollout(given: Arguments, rl: dict[str, Any]) -> None:
    rollout = rl.setdefault("rollout", {})
    engine = given.text(f"{ROLLOUT}.name", "vllm").lower()
    if engine not in ENGINES:
        given.fault(f"{ROLLOUT}.name", f"{shown(engine)} is not modelled; {', '.join(ENGINES)} are")
    rollout["engine"] = ENGINES.get(engine, "vllm-v1")
    for name, default in (
        ("free_cache_engine", True),
        ("enable_chunked_prefill", True),
        ("enable_prefix_caching", True),
    ):
        if not given.switch(f"{ROLLOUT}.{name}", default):
            given.notes.append(f"{ROLLOUT}.{name}: off, and predicted as if it were on")
    rollout.setdefault("tp", 2)  # rollout.yaml
    dtype = given.text(f"{ROLLOUT}.dtype", "bfloat16").lower()
    rollout["precision"] = {"float16": "fp16", "half": "fp16", "float32": "fp32"}.get(dtype, "bf16")


def _offload(given: Arguments, rl: dict[str, Any], trainer: str) -> None:
    group = "megatron" if trainer == "megatron" else "fsdp_config"
    found = {
        "parameters": given.switch(f"{ACTOR}.{group}.param_offload"),
        "optimizer": given.switch(f"{ACTOR}.{group}.optimizer_offload"),
        "reference": given.switch(f"{REF}.{group}.param_offload") and bool(rl.get("reference")),
    }
    given.passed_over(f"{ACTOR}.{group}.grad_offload", f"{REF}.{group}.optimizer_offload")
    rl["offload"] = [name for name, is_on in found.items() if is_on]


def _critic(given: Arguments, rl: dict[str, Any]) -> None:
    path = given.values.get("critic.model.path")
    given.passed_over("critic.model.path")
    if rl["algorithm"] == "ppo" and path not in NO_VALUES:
        rl["critic"] = str(path)
    elif rl["algorithm"] != "ppo":
        given.passed_over(*(name for name in given.values if name.startswith("critic.")))


TOOLS = (
    Tool(
        name="verl",
        marks=("data.train_batch_size actor_rollout_ref.model.path", "actor_rollout_ref.actor trainer.n_gpus_per_node"),
        programs=r"verl\.trainer\.main_ppo",
        read=_read,
        keys=key_lists("verl"),
    ),
)
