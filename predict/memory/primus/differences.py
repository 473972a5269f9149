"""The differences between the formulas of Primus Projection and ours, term by term, with our reasons."""

from __future__ import annotations

from collections.abc import Mapping

from predict.run.training_run import TrainingRun

DIFFERENCES: Mapping[str, str] = {
    "parameters": (
        "Primus divides no weights by tp (405B on tp 8 · pp 8 has 52.6 B parameters per rank, 6.6 B with tp divided); ours "
        "divides attention, MLP, embedding and output by it, and keeps norms and router whole"
    ),
    "total_parameters": (
        "Primus's total omits the output layer and the final norm where pp > 1, and counts a tied table twice where pp = 1; "
        "ours is the model's own count"
    ),
    "layer_norm": (
        "Primus has three norms of 2 H per layer, each keeping its input; ours has the model's own norms, H each where they "
        "are RMS norms, with their statistics"
    ),
    "residual_add": (
        "Primus keeps 2 T H for each addition; an addition keeps nothing, and its result is the next norm's input, which is "
        "counted there"
    ),
    "self_attention": (
        "Primus counts softmax statistics as wide as the queries, but 4 bytes per head in its 0.51 GB example; flash "
        "attention keeps the latter (4 T A), and ours counts that, the projections' biases and latent attention's own shapes"
    ),
    "mlp": (
        "Primus keeps gate, up, their product and the output for every framework; ours keeps what each framework's kernels "
        "keep (eager torch one tensor more, and the input, but no output)"
    ),
    "moe_mlp": (
        "Primus takes a shared expert to be as wide as a routed one and the rows of a rank to be T · topk; ours has the "
        "shared width, the expert-tensor ranks and the imbalance of tokens over experts"
    ),
    "output_layer": (
        "Primus keeps one tensor of two-byte logits and nothing for the loss; ours adds the fp32 logits of a loss that is "
        "not fused, and its working set"
    ),
    "optimizer": (
        "Primus takes 10 bytes per parameter, 2 for the master weights; fp32 masters and two moments are 12, as in ours, and "
        "gradients that are accumulated in fp32 are 4 bytes and not 2"
    ),
    "data_parallel": (
        "Primus shards every parameter's optimizer state over world / (ep · pp) ranks, as if a distributed optimizer were "
        "always on; ours shards as plan.zero says, dense weights over dp · cp and experts over their own group"
    ),
    "in_flight": (
        "Primus multiplies by pp · [1 + (pp − 1)/(pp · vpp)] · min(1, ga/pp) on every stage, embedding included, and so by "
        "up to 1.75 pp without virtual chunks; ours counts the microbatches that the schedule's order keeps on that rank "
        "(1F1B: min(m, pp − rank))"
    ),
    "recompute": (
        "Primus knows full recomputation only, and selective recomputation changes nothing in it; ours drops what the named "
        "modules keep"
    ),
    "transient": (
        "Primus's formulas have no buffers of collectives, allocator or kernels; ours adds working sets, and a memory "
        "benchmark the rest"
    ),
}


def differences(run: TrainingRun) -> dict[str, str]:
    """The differences that every run has, and the features of this one for which Primus has no formula."""
    model = run.model
    found = dict(DIFFERENCES)
    if any(mixer.IS_RECURRENT for mixer in model.mixers):
        found["linear_attention"] = _lacks("linear attention", "these layers are counted as its standard attention")
    if model.mtp_layers:
        found["multi_token_prediction"] = _lacks("multi-token prediction", "those layers are omitted")
    if not model.attention.IS_PLAIN:
        found[model.attention.TITLE.replace(" ", "_")] = _lacks(
            f"the activations of {model.attention.TITLE}", "they are those of standard attention with its query heads"
        )
    if run.precision not in ("bf16", "fp16"):
        found["precision"] = (
            f"Primus has two bytes for weights, gradients and activations; this run is in {run.precision}"
        )
    return found


def _lacks(feature: str, instead: str) -> str:
    return f"Primus has no formula for {feature}; {instead}"
