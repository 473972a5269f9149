"""The phrases that say what a row leaves open and what that is taken for, told with the row's result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from predict.run.training_run import TrainingRun
from predict.validation.published.completeness import NEVER_INTERLEAVED
from predict.validation.published.models import is_of_neox
from predict.validation.published.row import PublishedRow
from sampling.hardware.cluster import hardware_facts, known_hardware

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
    if unstated := [name for name in ("norm", "position", "linear_bias", "tied_embedding") if not row.text(name)]:
        usual = "Llama" if model.gated else "GPT-NeoX" if is_of_neox(row) else "GPT-2"
        yield f"{', '.join(unstated)}: {NOT_PUBLISHED} as in {usual}"


def _of_cluster(row: PublishedRow, run: TrainingRun) -> Iterator[str]:
    if not row.text("gpus_per_node"):
        yield f"gpus_per_node: {NOT_PUBLISHED} as {run.cluster.gpus_per_node}"
    kin = {
        hardware_facts(name).memory_gib for name in known_hardware() if name.startswith(row.text("gpu").lower() + "-")
    }
    if not row.text("gpu_mem_gb") and len(kin) > 1:
        yield f"gpu_mem_gb: {NOT_PUBLISHED} as {run.cluster.gpu.memory_gib:g}"


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
