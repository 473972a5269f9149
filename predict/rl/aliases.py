"""verl's argument names, which an RL config may use in place of the keys they stand for, dotted or as verl's own YAML nests them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sampling.files.faults import Fault, nearest, shown

ROOTS = ("data", "actor_rollout_ref", "algorithm", "critic", "trainer", "async_training")
"""Sections of verl's configuration."""
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
ESTIMATORS: Mapping[str, str] = {"gae": "ppo", "grpo": "grpo", "reinforce_plus_plus": "reinforce++"}
"""verl's adv_estimator → algorithm."""


def _same(value: Any) -> Any:
    return value


def _estimator(value: Any) -> Any:
    return ESTIMATORS.get(value, value) if isinstance(value, str) else value


def _padding(removed: Any) -> Any:
    return ("removed" if removed else "kept") if isinstance(removed, bool) else removed


VERL: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "data.train_batch_size": ("rl.prompts", _same),
    "data.gen_batch_size": ("rl.rollout.round_prompts", _same),
    "data.max_prompt_length": ("rl.prompt_max", _same),
    "data.max_response_length": ("rl.response_max", _same),
    "algorithm.adv_estimator": ("rl.algorithm", _estimator),
    f"{_ACTOR}.use_kl_loss": ("rl.reference", _same),
    f"{_ACTOR}.ppo_mini_batch_size": ("rl.mini_batch", _same),
    f"{_ACTOR}.ppo_micro_batch_size_per_gpu": ("rl.micro", _same),
    f"{_ACTOR}.ppo_max_token_len_per_gpu": ("rl.max_tokens", _same),
    f"{_ACTOR}.ppo_epochs": ("rl.epochs", _same),
    f"{_ACTOR}.megatron.tensor_model_parallel_size": ("plan.tp", _same),
    f"{_ACTOR}.megatron.pipeline_model_parallel_size": ("plan.pp", _same),
    f"{_ACTOR}.megatron.context_parallel_size": ("plan.cp", _same),
    f"{_ACTOR}.megatron.expert_model_parallel_size": ("plan.ep", _same),
    f"{_ACTOR}.megatron.expert_tensor_parallel_size": ("plan.etp", _same),
    f"{_ACTOR}.ulysses_sequence_parallel_size": ("plan.cp", _same),
    "actor_rollout_ref.model.use_remove_padding": ("rl.padding", _padding),
    f"{_ROLLOUT}.n": ("rl.n", _same),
    f"{_ROLLOUT}.tensor_model_parallel_size": ("rl.rollout.tp", _same),
    f"{_ROLLOUT}.gpu_memory_utilization": ("rl.rollout.memory_share", _same),
    f"{_ROLLOUT}.enforce_eager": ("rl.rollout.enforce_eager", _same),
    f"{_ROLLOUT}.max_num_seqs": ("rl.rollout.max_num_seqs", _same),
    f"{_ROLLOUT}.max_num_batched_tokens": ("rl.rollout.max_num_batched_tokens", _same),
    f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": ("rl.passes.micro", _same),
    f"{_ROLLOUT}.log_prob_max_token_len_per_gpu": ("rl.passes.max_tokens", _same),
    "async_training.staleness_threshold": ("rl.staleness", _same),
    "async_training.trigger_parameter_sync_step": ("rl.fetches", _same),
    "async_training.partial_rollout": ("rl.rollout.partial", _same),
    "trainer.nnodes": ("cluster.nodes", _same),
    "trainer.n_gpus_per_node": ("cluster.gpus_per_node", _same),
}
"""verl's name → the key it stands for, and the conversion of its value."""
SIMILAR = frozenset(
    {
        "data.image_patch_size",
        "data.train_max_samples",
        "data.val_batch_size",
        *(f"{_ACTOR}.{name}" for name in ("ppo_micro_batch_size", "kl_loss_coef", "kl_loss_type")),
        *(f"{_ACTOR}.ppo_infer_{name}_per_gpu" for name in ("max_token_len", "micro_batch_size")),
        *(f"{_ACTOR}.megatron.{name}" for name in ("virtual_pipeline_model_parallel_size", "dynamic_context_parallel")),
        *(f"{_ROLLOUT}.{kind}_parallel_size" for kind in ("data", "expert", "pipeline_model")),
        f"{_ROLLOUT}.log_prob_micro_batch_size",
    }
)
"""Names of verl's that are not read and could be taken for misspelt ones that are (its generated reference configs at
00bbce4 and 035682e)."""


def resolved(path: str, value: Any) -> tuple[str, Any]:
    """The key and value that a name of verl's stands for; another name as it is."""
    if path not in VERL:
        return path, value
    key, convert = VERL[path]
    return key, convert(value)


def fault_of(path: str, value: Any) -> Fault | None:
    """The fault of a name under verl's sections that is not read: a misspelt one, or a value in place of a section. None for another,
    which changes nothing here."""
    above, _, name = path.rpartition(".")
    if not above:
        return Fault(path=path, problem=f"{shown(value)} is not a mapping; give verl's keys of {path}, or remove it")
    beside = [known.rpartition(".")[2] for known in VERL if known.rpartition(".")[0] == above]
    whole = [f"{above}.{each}" for each in nearest(name, beside)]
    near = "" if path in SIMILAR or not whole else f"; did you mean {' or '.join(map(repr, whole))}?"
    return Fault(path=path, problem=f"verl's argument is not read here{near} If not, remove it") if near else None


def leaves(values: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted paths of a nested mapping, and their values."""
    for name, value in values.items():
        path = f"{above}.{name}" if above else str(name)
        if isinstance(value, Mapping):
            yield from leaves(value, path)
        else:
            yield path, value
