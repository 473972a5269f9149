"""Where the seed's formulas and ours differ, term by term, and why ours are as they are."""

from __future__ import annotations

from collections.abc import Mapping

from predict.run.training_run import TrainingRun

NOTES: Mapping[str, str] = {
    "parameters": (
        "the seed divides no weights by tp (405B on tp 8 · pp 8 is 52.6 B parameters a rank, with tp divided 6.6 B); ours "
        "divides attention, MLP, embedding and output by it, and keeps norms and router whole"
    ),
    "total_parameters": (
        "the seed's total leaves out the output layer and the final norm where pp > 1, and counts a tied table twice where "
        "pp = 1; ours is the model's own count"
    ),
    "layer_norm": (
        "the seed has three norms of 2 H a layer, each keeping its input; ours has the model's own norms, H each where they "
        "are RMS norms, with their statistics"
    ),
    "residual_add": (
        "the seed keeps 2 T H for each addition; an addition keeps nothing, and what it hands on is the next norm's input, "
        "which is counted there"
    ),
    "self_attention": (
        "the seed counts softmax statistics as wide as the queries, but 4 bytes a head in its 0.51 GB example; flash "
        "attention keeps the latter (4 T A), and ours counts that, the projections' biases and latent attention's own shapes"
    ),
    "mlp": (
        "the seed keeps gate, up, their product and the output for every framework; ours keeps what each framework's kernels "
        "do (eager torch one tensor more, and the input, but no output)"
    ),
    "moe_mlp": (
        "the seed takes a shared expert to be as wide as a routed one and the rows of a rank to be T · topk; ours has the "
        "shared width, the expert-tensor ranks and the skew of tokens over experts"
    ),
    "output_layer": (
        "the seed keeps one tensor of two-byte logits and nothing for the loss; ours adds the fp32 logits of a loss that is "
        "not fused, and its working set"
    ),
    "optimizer": (
        "the seed takes 10 bytes a parameter, 2 for the master weights; fp32 masters and two moments are 12, which is ours, "
        "and gradients that are added up in fp32 are 4 bytes and not 2"
    ),
    "data_parallel": (
        "the seed shards every parameter's optimizer state over world / (ep · pp) ranks, as if a distributed optimizer were "
        "always on; ours shards as plan.zero says, dense weights over dp · cp and experts over their own group"
    ),
    "in_flight": (
        "the seed multiplies by pp · [1 + (pp − 1)/(pp · vpp)] · min(1, ga/pp) on every stage, embedding included, and so by "
        "up to 1.75 pp without virtual chunks; ours counts the microbatches that the schedule's order holds on that rank "
        "(1F1B: min(m, pp − rank))"
    ),
    "recompute": (
        "the seed knows full recomputation only; selective repetition changes nothing in it, and ours drops what the named "
        "modules keep"
    ),
    "transient": (
        "the seed's formulas have no buffers of collectives, allocator or kernels; ours adds working sets, and a memory "
        "benchmark the rest"
    ),
}

LAYERS_WITHOUT_FORMULA = "the seed has no formula for {what}; {instead}"


def notes_for(run: TrainingRun) -> dict[str, str]:
    """The differences that any run has, and what of this one the seed's formulas do not know."""
    model = run.model
    notes = dict(NOTES)
    if any(kind.mixer == "linear" for kind in model.kinds()):
        notes["linear_attention"] = LAYERS_WITHOUT_FORMULA.format(
            what="linear attention", instead="these layers are counted as its standard attention"
        )
    if model.mtp_layers:
        notes["multi_token_prediction"] = LAYERS_WITHOUT_FORMULA.format(
            what="multi-token prediction", instead="those layers are left out"
        )
    if model.latent is not None:
        notes["latent_attention"] = LAYERS_WITHOUT_FORMULA.format(
            what="the activations of latent attention",
            instead="they are those of standard attention with its query heads",
        )
    if run.precision not in ("bf16", "fp16"):
        notes["precision"] = (
            f"the seed has two bytes for weights, gradients and activations; this run is in {run.precision}"
        )
    return notes
