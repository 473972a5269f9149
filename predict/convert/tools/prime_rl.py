"""prime-rl's TOML: supervised fine-tuning, its trainer alone, and RL (prime-rl, configs/*.py)."""

from typing import Any

from predict.convert.arguments import Arguments
from predict.convert.offload import offload_of
from predict.convert.tool import Reading, Sections, Tool, key_lists, model_named
from predict.convert.tuning import vision_of
from sampling.files.faults import shown

FRAMEWORK = "prime-rl"
ATTENTION = {"flash_attention_2": "fa2", "flash_attention_3": "fa3", "sdpa": "fa2", "eager": "unfused"}
OPTIMIZERS = ("adamw", "muon")
DEFAULT_GPUS = 8
GPU_IDS = {"num_train": "trainer_gpu_ids", "num_infer": "inference_gpu_ids"}
"""Kind of machine in `deployment` → the key of older releases, which lists GPUs of one node (prime-rl, rl.py)."""


def _prefix(given: Arguments) -> str:
    return "trainer." if any(name.startswith(("orchestrator.", "trainer.")) for name in given.values) else ""


def _given(given: Arguments, section: str) -> bool:
    """Whether a section is there, however empty."""
    return any(name == section or name.startswith(f"{section}.") for name in given.values)


def _read(reading: Reading) -> Sections:
    given = reading.given
    prefix = _prefix(given)
    model = f"{prefix}model"
    plan = _plan(given, model)
    execution = _execution(given, prefix, model)
    named = model_named(reading, "model.name", f"{model}.name")
    sections: dict[str, Any] = {"plan": plan, "execution": execution, "precision": "bf16", **named}
    if given.text(f"{model}.optimization_dtype", "float32") == "bfloat16":
        execution["master_weights"] = False
    if given.text(f"{model}.reduce_dtype", "float32") == "bfloat16":
        execution["gradient_dtype"] = "bf16"
    if layers := given.count(f"{model}.debug.num_layers"):
        given.fault(
            f"{model}.debug.num_layers",
            f"{layers}: a cut model is not shipped; give --set model=FILE with its config.json",
        )
    if not prefix and not _given(given, "loss_impl"):
        execution["fuse_loss"] = False  # supervised tuning takes the loss of whole logits unless another is named
    if prefix:
        return {**sections, "cluster": _machines(given, "num_train"), "rl": _rl(given)}
    offload = offload_of(given).get("offload", {})
    if _given(given, f"{model}.ac_offloading") and given.values.get(f"{model}.ac_offloading", {}) not in (None, "None"):
        # the inputs of layers that are repeated, on the stream of the kernels (prime-rl, trainer/utils/act_offloading.py)
        offload |= {"activation_share": 1.0, "overlap_activations": False}
        plan["recompute"] = "full"
    given.passed_over(*(name for name in given.values if name.startswith(f"{model}.ac_offloading")))
    vision: dict[str, Any] = {}
    if _given(given, f"{model}.vlm"):
        # the projector is a part of the encoder there (prime-rl, trainer/model.py, `freeze_vision_encoder`)
        vision = vision_of(given, f"{model}.vlm.freeze_vision_encoder")
        given.passed_over(*(name for name in given.values if name.startswith(f"{model}.vlm")))
    return {
        **sections,
        **vision,
        **({"offload": offload} if offload else {}),
        "cluster": _machines(given, "num_train"),
        "batch": _batch(given),
    }


def _plan(given: Arguments, model: str) -> dict[str, Any]:
    plan: dict[str, Any] = {
        "zero": 3 if given.switch(f"{model}.reshard_after_forward", True) else 2,
        "recompute": "none",
    }
    for key in ("cp", "ep", "tp"):
        if degree := given.count(f"{model}.{key}"):
            plan[key] = degree
    if plan.get("cp", 1) > 1:
        style = given.text(f"{model}.cp_style", "ring")
        plan["cp_method"] = "all_to_all" if style == "ulysses" else "ring"
    replicas = given.count(f"{model}.dp_replicate") or 1
    if replicas > 1:
        given.fault(
            f"{model}.dp_replicate", f"{replicas}: give the ranks of one copy as --set plan.shard=N, and accept it"
        )
    if _given(given, f"{model}.ac"):
        given.passed_over(f"{model}.ac")
        _recompute(given, model, plan)
    return plan


def _recompute(given: Arguments, model: str, plan: dict[str, Any]) -> None:
    mode = given.text(f"{model}.ac.mode", "full")
    every = given.count(f"{model}.ac.freq") or 1
    if mode != "full":
        given.fault(f"{model}.ac.mode", f"{shown(mode)}: recomputation of chosen operators is not read; full is")
    elif every > 1:
        given.fault(f"{model}.ac.freq", f"one layer in {every} is not read; give --set plan.recompute_layers=N")
    plan["recompute"] = "full"


def _execution(given: Arguments, prefix: str, model: str) -> dict[str, Any]:
    compiled = _given(given, f"{model}.compile") and given.values.get(f"{model}.compile", {}) not in (None, False)
    given.passed_over(f"{model}.compile")
    attention = given.text(f"{model}.attn", "flash_attention_2")
    if attention not in ATTENTION:
        given.fault(f"{model}.attn", f"{shown(attention)} is not modelled; {', '.join(ATTENTION)} are")
    optimizer = given.text(f"{prefix}optim.type", "adamw")
    if optimizer not in OPTIMIZERS:
        given.fault(f"{prefix}optim.type", f"{shown(optimizer)} is not modelled; adamw and muon are")
    return {
        "framework": FRAMEWORK,
        **({} if compiled else {"elementwise": "eager"}),
        "attention": ATTENTION.get(attention, "fa2"),
        "optimizer": optimizer if optimizer == "muon" else "adamw",
    }


def _machines(given: Arguments, kind: str) -> dict[str, int]:
    """The trainer's machines; nothing where the file leaves them to the launcher."""
    nodes, gpus = given.count(f"deployment.{kind}_nodes"), given.count(f"deployment.{kind}_gpus")
    together, per_node = given.count("deployment.num_gpus"), given.count("deployment.gpus_per_node") or DEFAULT_GPUS
    if nodes:
        return {"nodes": nodes, "gpus_per_node": per_node}
    ids = given.values.get(GPU_IDS[kind])
    given.passed_over(GPU_IDS[kind])
    count = gpus or together or (len(ids) if isinstance(ids, list) else 0)
    return {"nodes": 1, "gpus_per_node": count} if count else {}


def _batch(given: Arguments) -> dict[str, Any]:
    batch: dict[str, Any] = {"micro": given.count("data.micro_batch_size") or 1}
    if together := given.count("data.batch_size"):
        batch["global"] = together
    if tokens := given.count("data.seq_len"):
        batch["seq_len"] = tokens
    return batch


def _rl(given: Arguments) -> dict[str, Any]:
    batch, group = given.count("orchestrator.batch_size") or 128, given.count("orchestrator.group_size")
    n = group or given.count("orchestrator.rollouts_per_example") or 1
    if not {"orchestrator.group_size", "orchestrator.rollouts_per_example"} & given.values.keys():
        problem = "not stated, and its default was 1, 8 and 16 in turn; add orchestrator.group_size"
        given.fault("orchestrator.group_size", problem)
    ahead = given.count("max_async_level") or given.count("orchestrator.max_async_level")
    limit = given.count("orchestrator.max_off_policy_steps")
    longest = given.count("seq_len") or given.count("trainer.model.seq_len")
    rl: dict[str, Any] = {
        "algorithm": "grpo",
        "reference": False,
        "n": n,
        "prompts": batch // n,
        "placement": "async",
        "staleness": min(64, ahead or limit or 1),
        "weight_sync": {"method": "buckets"},
    }
    if batch % n:
        given.fault("orchestrator.batch_size", f"{batch} samples do not divide into groups of {n}")
    if longest:
        rl["max_tokens"] = longest
    nested = ("inference.vllm", "inference.parallel", "inference")
    tp = next(
        (size for at in nested for key in ("tensor_parallel_size", "tp") if (size := given.count(f"{at}.{key}"))), 1
    )
    share = next(
        (
            given.number(f"{at}.gpu_memory_utilization", 0.9)
            for at in nested
            if f"{at}.gpu_memory_utilization" in given.values
        ),
        0.9,
    )
    machines = _machines(given, "num_infer")
    rl["rollout"] = {"tp": tp, "memory_share": share}
    if machines:
        rl["rollout"]["gpus"] = machines["nodes"] * machines["gpus_per_node"]
    if longest_response := given.count("orchestrator.train.sampling.max_completion_tokens") or given.count(
        "orchestrator.sampling.max_tokens"
    ):
        rl["response_max"] = longest_response
    return rl


KEYS = key_lists("prime_rl")
TOOLS = (
    Tool(
        name="prime-rl",
        marks=(
            "model.name data.batch_size data.seq_len",
            "model.name data.seq_len max_steps",
            "model.name data.type deployment",
        ),
        read=_read,
        keys=KEYS | key_lists("prime_rl_trainer"),
    ),
    Tool(
        name="prime-rl's RL",
        marks=(
            "orchestrator inference",
            "orchestrator trainer",
            "orchestrator.batch_size deployment",
            "orchestrator.batch_size seq_len",
        ),
        read=_read,
        keys=KEYS | key_lists("prime_rl_steps"),
    ),
)
