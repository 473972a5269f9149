"""Reasons why a search leaves plans out: what is wrong with a plan that breaks a rule of a config, in a reader's words."""

from __future__ import annotations

from collections.abc import Mapping

from predict.config.rules.rule import Rule
from predict.run.execution import WHOLE_LAYERS

BROKEN: Mapping[str, str] = {
    "replicas_divide_the_batch": "the batch does not divide into microbatches on every replica",
    "tp_divides_the_sequence": "the sequence does not divide by tp",
    "cp_divides_the_sequence": "the sequence does not divide by cp",
    "tp_and_cp_divide_the_sequence": "the sequence does not divide by tp · cp",
    "positions_suffice": "the sequence is longer than the model's positions",
    "padding_needs_lengths": "a way of padding for sequences that are all as long as a row",
    "ep_needs_experts": "ep is above 1 for a model without experts",
    "ep_divides_experts": "the experts do not divide by ep",
    "etp_divides_expert_width": "an expert's width does not divide by etp",
    "experts_fold_into_a_stage": "the ranks of a pipeline stage do not divide by ep · etp",
    "mixtures_need_sp": "a mixture under tensor parallelism lacks sequence parallelism",
    "degrees_make_the_world": "tp · pp · cp · dp is not the number of GPUs",
    "tp_divides_heads": "the heads do not divide by tp",
    "tp_divides_kv_heads": "the key and value heads do not divide by tp",
    "tp_divides_ffn": "the width of the MLP does not divide by tp",
    "tp_divides_vocabulary": "the vocabulary does not divide by tp",
    "sp_needs_tp": "sequence parallelism without tensor parallelism",
    "cp_divides_heads": "the heads do not divide by tp · cp",
    "cp_needs_fused_attention": "context parallelism without fused attention",
    "zero_needs_replicas": "the state is sharded, but there is one replica alone",
    "shards_divide_replicas": "the replicas do not divide by shard",
    "schedule_recomputes": "the schedule does not support this recomputation",
    "vpp_needs_pp": "vpp is above 1 without a pipeline",
    "every_rank_has_a_layer": "a pipeline rank would have no layer",
    "every_stage_has_a_layer": "a chunk of the pipeline would have no layer",
    "layers_fit_the_stages": "the layout does not fit the layers and the stages",
    "schedule_runs": "the schedule does not run pp, vpp and this number of microbatches",
    "norms_over_all_heads_stay_whole": "tp splits norms over all heads, whose exchange is not modelled",
    "block_is_full_recomputation": "block recomputation without full recomputation",
    "layers_are_of_blocks": "a number of recomputed layers without block recomputation",
    "layers_are_split_in_one_way": "the layers are split in two ways at once",
    "shared_experts_hide_the_exchange": "the model lacks the experts that would hide the exchange",
    "load_is_of_the_experts": "the load is not that of the model's experts",
    "hardware_has_the_precision": "the device does not compute in this precision",
    "recipe_needs_fp8": "a recipe of fp8 at another precision",
    "cores_are_of_a_cpu": "cores are given for a GPU",
    "every_rank_has_a_core": "the machine has fewer cores than ranks",
    "profile_is_a_name": "the profile is not a plain name",
    "no_context_parallelism": f"the framework {WHOLE_LAYERS} does not model context parallelism",
    "only_the_optimizer_is_sharded": f"the framework {WHOLE_LAYERS} does not model sharded gradients",
    "layers_are_recomputed_whole": f"the framework {WHOLE_LAYERS} recomputes whole layers alone",
    "all_layers_are_recomputed": f"the framework {WHOLE_LAYERS} recomputes all layers or none",
    "layers_have_one_dtype": f"the framework {WHOLE_LAYERS} does not model this precision",
    "layers_are_plain": f"the framework {WHOLE_LAYERS} models plain dense layers alone",
    "no_setting_is_changed": f"the framework {WHOLE_LAYERS} runs layers as they are, and a setting would change nothing",
}
"""What is wrong, by the name of the rule's function: of every rule of a config, which a test asks for."""


def reason_of(rule: Rule) -> str:
    """The key path that a broken rule blames, and what is wrong there; the rules of equal plans are named by it."""
    name = rule.check.__name__
    return f"{rule.path}: {BROKEN.get(name, name)}"
