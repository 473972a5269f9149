"""Which runs can be measured for real here, and why the others cannot."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from predict.layers.attention import Attention
from predict.model.spec import LayerKind, ModelSpec
from predict.rl.config import RlRun
from predict.rl.section import COLOCATED
from predict.run.execution import WHOLE_LAYERS
from predict.run.frameworks import framework_settings, refused_by_runtime
from predict.run.plan import BEST, Plan
from predict.run.training_run import TrainingRun
from predict.run.tuning import Tuning
from predict.schedules import registry
from predict.serving.config import ServingRun
from predict.serving.server import Server
from predict.serving.speculation import NGRAM
from predict.workload.whole_layers import are_priced_whole
from sampling.errors import UserError
from sampling.extras import require_library
from sampling.hardware.cluster import hardware_facts
from sampling.hardware.this_device import detect_hardware, entry_of
from sampling.number_text import plain

# Which runs can be measured on one GPU, and why the others cannot.

EAGER, COMPILED = "torch-eager", "torch-compiled"
GPU_PRECISIONS = ("bf16", "fp32")
GPU_ATTENTION = ("fa2", "cudnn")
GPU_RECOMPUTE = ("none", "full")
GPU_WORK = (
    "dropout",
    "elementwise",
    "expert_load",
    "fp8_recipe",
    "fuse_rms_norm",
    "fuse_gradients",
    "gradient_dtype",
    "optimizer",
    "master_weights",
    "clip_gradients",
    "loss_scaling",
)
"""Keys of `execution` that change what a single GPU computes, attention aside; the others change its price or its company."""
GPU_LAYERS = (LayerKind(), LayerKind(sparse=True))


def gpu_faults(run: TrainingRun) -> Iterator[str]:
    """Everything that keeps a run from being measured as a real step of one GPU, each with its fix."""
    yield from _spread_faults(run)
    yield from _work_faults(run)
    yield from _model_faults(run.model)
    if run.vision.images:
        yield f"vision.images: {run.vision.images}; text alone can be measured, use 0"
    if run.adapters.are_trained:
        yield f"adapters.kind: {run.adapters.kind}; adapters are measured on a CPU, use none"
    if run.offload.any:
        yield "offload: a real step keeps all on the GPU, remove it"
    if run.tuning != Tuning():
        yield f"tuning.task: {run.tuning.task}; the pass that trains alone can be measured, remove tuning"
    batch = run.batch
    if not batch.global_ or batch.global_ % batch.micro:
        yield f"batch.global: {batch.global_} is not a multiple of batch.micro = {batch.micro}"
    if run.model.learns_positions and batch.seq_len > run.model.max_positions:
        yield f"batch.seq_len: {batch.seq_len} is beyond the model's {run.model.max_positions} learnt positions"


def _spread_faults(run: TrainingRun) -> Iterator[str]:
    if run.cluster.world_size != 1:
        yield f"cluster: {run.cluster.world_size} GPUs; a real step runs on one GPU, use nodes: 1 and gpus_per_node: 1"
    for name in ("tp", "pp", "vpp", "cp", "dp", "ep", "etp"):
        if getattr(run.plan, name) != 1:
            yield f"plan.{name}: {getattr(run.plan, name)}; a real step runs on one GPU, use 1"
    if run.plan.zero:
        yield f"plan.zero: {run.plan.zero}; one GPU has nobody to share with, use 0"


def _work_faults(run: TrainingRun) -> Iterator[str]:
    execution = run.execution
    if run.precision not in GPU_PRECISIONS:
        yield f"precision: {run.precision}; use one of {', '.join(GPU_PRECISIONS)}"
    if run.plan.recompute not in GPU_RECOMPUTE:
        yield f"plan.recompute: {run.plan.recompute!r}; use one of {', '.join(GPU_RECOMPUTE)}"
    if run.plan.recompute == "full" and run.plan.recompute_method != "uniform":
        yield f"plan.recompute_method: {run.plan.recompute_method!r}; all layers are recomputed, use uniform"
    if execution.framework not in (EAGER, COMPILED):
        yield (
            f"execution.framework: {execution.framework}; a real step on a GPU is of this project's own modules, use {EAGER} or "
            f"{COMPILED}"
        )
        return
    if execution.attention not in GPU_ATTENTION:
        yield f"execution.attention: {execution.attention}; torch's kernel is pinned, use one of {', '.join(GPU_ATTENTION)}"
    settings = framework_settings(execution.framework, run.cluster.gpu.architecture)
    plain = type(execution)()
    for name in GPU_WORK:
        usual = settings.get(name, getattr(plain, name))
        if getattr(execution, name) != usual:
            yield f"execution.{name}: {getattr(execution, name)!r}; {execution.framework} runs {usual!r}, remove it"


def _model_faults(model: ModelSpec) -> Iterator[str]:
    if others := sorted({kind.name for kind in model.kinds() if kind not in GPU_LAYERS}):
        yield f"model: layers of kind {', '.join(others)}; full attention, dense or with experts, can be measured"
    special = {
        model.attention.TITLE: not model.attention.IS_PLAIN,
        "gated queries": model.query_gate,
        "attention sinks": model.sinks,
        "capped scores": model.attention_cap,
        "capped logits": model.logit_cap,
        "norms of outputs": model.norms_a_layer != 2,
        "partly rotated heads": model.rotary_dim not in (0, model.head_dim),
        "parallel residuals": model.parallel_residual,
        "multi-token prediction": model.mtp_layers,
    }
    if found := [name for name, there in special.items() if there]:
        yield f"model: {', '.join(found)}; plain pre-norm layers can be measured"
    experts = model.experts
    if experts and (experts.shared_ffn or experts.bias or experts.router_bias or not experts.gated):
        yield "model: shared, biased or ungated experts; gated experts without biases can be measured"


Implementation = Literal["torch", "transformers"]
CPU_PRECISIONS = ("fp32", "bf16")


def require_measurable(run: TrainingRun, implementation: Implementation) -> None:
    """Raise one UserError that lists everything that keeps the run from being measured."""
    if run.cluster.gpu.kind == "cpu":
        faults = [*machine_faults(run), *plan_faults(run), *shape_faults(run)]
        if implementation == "transformers":
            faults += transformers_faults(run)
    else:
        faults = list(gpu_faults(run))
        if implementation == "transformers":
            faults.append("implementation: transformers is measured on a CPU; use torch, or hardware: cpu")
    if run.real is not None:
        faults.append(f"batch.lengths: {run.batch.lengths}; a real step has sequences of one length, remove it")
    _refuse(f"{run.name} cannot be measured as a real step", faults)


def _refuse(what: str, faults: Sequence[str]) -> None:
    """Raise one UserError that lists the faults, where there are any."""
    if faults:
        listed = "\n".join(f"  - {fault}" for fault in faults)
        raise UserError(f"{what}:\n{listed}")


def machine_faults(run: TrainingRun) -> Iterator[str]:
    plan, cluster = run.plan, run.cluster
    if not Path("/proc/stat").exists():
        yield "this machine: there is no /proc/stat to account for other processes; measure on Linux"
    if cluster.nodes != 1:
        yield f"cluster.nodes: {cluster.nodes}; all ranks start on this machine, use 1"
    ranks = plan.tp * plan.pp * plan.cp * plan.dp
    if ranks != cluster.world_size:
        yield (
            f"plan: tp·pp·cp·dp = {ranks} ranks on a cluster of {cluster.world_size}; "
            f"set cluster.gpus_per_node to {ranks}, so that they share the cores as they will be timed"
        )
    if not run.execution.whole_layers:
        yield (
            f"execution.framework: {run.execution.framework}; a real step on a CPU is of this project's own plain modules, use "
            f"{WHOLE_LAYERS}"
        )
    if run.precision not in CPU_PRECISIONS:
        yield f"precision: {run.precision}; use one of {', '.join(CPU_PRECISIONS)}"


def _schedule_faults(plan: Plan) -> Iterator[str]:
    where = f"plan.schedule: {plan.schedule!r}"
    if plan.schedule == BEST:
        yield f"{where} is not a schedule to run; name the one that `predict one-batch` chooses"
        return
    schedule = registry.get(plan.schedule)
    if schedule.solver:
        yield f"{where} is solved for predicted times; write its order with `predict schedule … --order mine.csv`, and name that"
    elif schedule.placement(plan.pp, plan.vpp).chain_count > 1:
        yield f"{where} runs two copies of the model, which torch has no runtime for"
    elif plan.dp > 1 and plan.schedule not in ("afab", "1f1b"):
        yield f"{where} with plan.dp: {plan.dp} is not measured; use plan.dp of 1, or afab or 1f1b"


def plan_faults(run: TrainingRun) -> Iterator[str]:
    plan = run.plan
    for name in ("cp", "ep", "etp"):
        if getattr(plan, name) != 1:
            yield f"plan.{name}: {getattr(plan, name)} is not measured; use 1"
    if plan.tp > 1 and plan.dp > 1:
        yield f"plan.tp: {plan.tp} with plan.dp: {plan.dp}; torch's DDP refuses DTensor parameters, use one of the two"
    if plan.sp and plan.tp == 1:
        yield "plan.sp: true needs plan.tp above 1"
    if plan.zero not in (0, 1):
        yield f"plan.zero: {plan.zero}; use 0 or 1"
    if plan.recompute not in ("none", "full"):
        yield f"plan.recompute: {plan.recompute!r}; use none or full"
    if plan.pp > 1:
        yield from _schedule_faults(plan)
    if refusal := refused_by_runtime(run.execution.framework, plan, run.microbatches):
        yield refusal
    if plan.pp > 1 and run.model.tied:
        yield f"plan.pp: {plan.pp} with a tied head, whose weight would lie on two stages; use pp 1 or an untied model"


def shape_faults(run: TrainingRun) -> Iterator[str]:
    model, plan, batch = run.model, run.plan, run.batch
    for name in ("heads", "kv_heads", "ffn", "vocab"):
        if getattr(model, name) % plan.tp:
            yield f"model.{name}: {getattr(model, name)} is not a multiple of plan.tp = {plan.tp}"
    if plan.sp and batch.seq_len % plan.tp:
        yield f"batch.seq_len: {batch.seq_len} is not a multiple of plan.tp = {plan.tp}, which plan.sp needs"
    if plan.pp * plan.vpp > model.layers:
        yield f"plan.pp: {plan.pp * plan.vpp} stages for {model.layers} layers; use at most one stage per layer"
    if not batch.global_ or batch.global_ % (batch.micro * plan.dp):
        yield f"batch.global: {batch.global_} is not a multiple of micro · dp = {batch.micro} · {plan.dp}"
    if model.learns_positions and batch.seq_len > model.max_positions:
        yield f"batch.seq_len: {batch.seq_len} is beyond the model's {model.max_positions} learnt positions"


def transformers_faults(run: TrainingRun) -> Iterator[str]:
    model, plan = run.model, run.plan
    if find_spec("transformers") is None:
        yield "implementation: the transformers library is missing; pip install 'steptime[transformers]'"
    if plan.tp * plan.pp * plan.dp != 1:
        yield "implementation: transformers is measured on one process; use tp, pp and dp of 1"
    if plan.recompute != "none":
        yield "implementation: transformers is measured without recomputation; use plan.recompute: none"
    if not (model.gated and model.rope and model.norm == "rms" and are_priced_whole(run)):
        yield (
            "implementation: transformers is measured with Llama-like models (gated MLP, RMS norm, rotary positions), all of whose "
            "weights are trained"
        )


def trace_name(rank: int | str) -> str:
    """The file of a rank's trace in the folder of a run's; of all ranks' for the pattern `*`."""
    return f"rank{rank}.json.gz"


def require_no_other_traces(trace: Path, ranks: int) -> None:
    """UserError for a file in the folder's place, and where the folder holds traces of an earlier run with more ranks, which would be mixed
    with those of this one."""
    if trace.is_file():
        raise UserError(f"--trace: {trace} is a file; give a folder")
    own = {trace_name(rank) for rank in range(ranks)}
    if others := sorted(path.name for path in trace.glob(trace_name("*")) if path.name not in own):
        raise UserError(
            f"--trace: {trace} holds {', '.join(others)} of an earlier run with more ranks; remove them, or give another folder"
        )


# Which RL steps can be run for real here, and why the others cannot.


def require_measurable_rl(rl: RlRun) -> None:
    """Raise one UserError that lists everything that keeps the step from being run here."""
    _refuse(
        f"{rl.name} cannot be run as a real RL step",
        [*_rl_run_faults(rl), *_rl_section_faults(rl), *_generation_faults(rl)],
    )


def _rl_run_faults(rl: RlRun) -> Iterator[str]:
    run = rl.base
    if run.cluster.gpu.kind != "cpu":
        yield f"cluster.hardware: {run.cluster.gpu.name}; a real RL step runs on a CPU, use cpu"
        return
    yield from machine_faults(run)
    if run.cluster.world_size != 1:
        yield f"cluster.gpus_per_node: {run.cluster.world_size} ranks; a real RL step is one process, use 1"
    if run.plan.recompute not in ("none", "full"):
        yield f"plan.recompute: {run.plan.recompute!r}; use none or full"
    if not (_has_plain_layers(run.model) and run.model.rope) or run.model.qk_norm:
        yield f"model: {run.model.name}; a real RL step has a Llama-like dense model"


def _rl_section_faults(rl: RlRun) -> Iterator[str]:
    section = rl.section
    if section.placement != COLOCATED:
        yield f"rl.placement: {section.placement}; use {COLOCATED}"
    if section.has_critic:
        yield f"rl.algorithm: {section.algorithm} has a critic; use grpo, dapo or reinforce++"
    if section.padding != "kept":
        yield f"rl.padding: {section.padding}; the passes run over padded samples, use kept"
    if section.offload:
        yield f"rl.offload: {', '.join(section.offload)}; a CPU has nowhere to move it, omit it"
    if section.reward.latency_s:
        yield f"rl.reward.latency_s: {plain(section.reward.latency_s)}; the step scores by a rule of its own, omit it"
    if section.rollout.kept_share != 1:
        yield f"rl.rollout.kept_share: {plain(section.rollout.kept_share)}; every group is kept, omit it"
    of_step = section.samples // (section.optimizer_steps // section.epochs)
    for name, micro, rows in (
        ("rl.micro", section.micro, of_step),
        ("rl.passes.micro", section.passes.micro, section.samples),
    ):
        if micro and rows % micro:
            yield f"{name}: {micro} does not divide {rows} samples; give one that does"


def _generation_faults(rl: RlRun) -> Iterator[str]:
    section, prompts = rl.section, rl.samples.prompt
    if prompts.min() != section.prompt_max:
        yield f"rl.prompt: from {prompts.min()} tokens on; prompts have one length here, use constant:{section.prompt_max}"
    most = section.rollout.max_num_seqs
    if most and most < section.samples:
        yield f"rl.rollout.max_num_seqs: {most} for {section.samples} samples, which are generated at once; use {section.samples} or 0"


# Which serving configs can be served for real here, and why the others cannot.


def require_servable(run: ServingRun) -> None:
    """Raise one UserError that lists everything that keeps the config from being served for real here."""
    _refuse(f"{run.name} cannot be served for real", [*_server_faults(run.server), *_fleet_faults(run)])


def _server_faults(server: Server) -> Iterator[str]:
    model = server.model
    if server.cluster.gpu.kind != "cpu":
        yield f"hardware: {server.cluster.gpu.name}; a real server runs on this CPU alone, use cpu"
    if server.placement.gpus != 1:
        placed = server.placement
        yield f"placement: tp {placed.tp}, pp {placed.pp}, dp {placed.dp}; it runs on one process, use 1"
    if server.placement.precision not in CPU_PRECISIONS or server.placement.kv_precision != server.placement.precision:
        yield (
            f"placement.precision: {server.placement.precision} with kv_precision {server.placement.kv_precision}; "
            f"use one of {', '.join(CPU_PRECISIONS)} for both"
        )
    if server.speculation.drafts and server.speculation.kind != NGRAM:
        yield f"speculation.kind: {server.speculation.kind}; it writes drafts from a request's own text alone, use {NGRAM} or none"
    if server.engine.asynchronous:
        yield "engine.asynchronous: true; it schedules between steps, use false (or engine.name: torch-loop)"
    for name, only in (("recv_interval", 1), ("batch_wait_steps", 0)):
        if (given := getattr(server.engine, name)) != only:
            yield f"engine.{name}: {given}; it takes prompts as they come, use {only}"
    if server.engine.prompts_alone:
        yield "engine.prompts_alone: true; it computes prompts beside answers, use false"
    if server.engine.never_preempts:
        yield "engine.never_preempts: true; it preempts, use false"
    if not (_has_plain_layers(model) and model.gated and model.rope and model.norm == "rms" and not model.window):
        yield f"model: {model.name}; it runs Llama-like models (attention, gated MLP, RMS norm, rotary positions)"
    if model.attention_bias or model.mlp_bias or model.qk_norm:
        yield f"model: {model.name} has biases or norms of queries, which it does not run; take another model"
    if not model.max_positions:
        yield f"model: {model.name} does not say its max_position_embeddings; give it"


def _fleet_faults(run: ServingRun) -> Iterator[str]:
    fleet = run.fleet
    for name, most in (("replicas", 1), ("prefill_replicas", 1), ("prefill_tp", 1), ("gpus", 0), ("most_replicas", 0)):
        if (given := getattr(fleet, name)) > most:
            yield f"fleet.{name}: {given}; it runs one engine all the time, or one for prompts and one for answers, use {most}"
    if fleet.failures_s:
        yield f"fleet.failures_s: {', '.join(map(plain, fleet.failures_s))}; its engines do not fail, omit it"
    if run.tiers.used:
        yield f"tiers: {', '.join(run.tiers.used)}; it has no memory behind its cache, use none"
    if run.load.prefix.turns > 1:
        yield f"load.prefix.turns: {run.load.prefix.turns}; it knows no conversations, use 1"
    if fleet.prefill_replicas and fleet.layerwise:
        yield "fleet.layerwise: true; it sends the keys and values of a prompt once that is computed, use false"
    if fleet.prefill_replicas and run.load.concurrency:
        yield f"load.concurrency: {run.load.concurrency}; its two pools serve open loops alone, use load.rate"


def _has_plain_layers(model: ModelSpec) -> bool:
    """Whether every layer is softmax attention of what came before, and then a dense feed-forward."""
    kinds = model.kinds()
    whole = all(kind.has_mixer and kind.has_feed_forward and not kind.sparse for kind in kinds)
    return whole and not model.bidirectional and all(isinstance(model.mixer(kind), Attention) for kind in kinds)


# The GPU of this machine, and whether it is the one that a run names.

NO_GPU = (
    "torch finds no GPU on this machine; use one that has a CUDA or ROCm GPU, with a torch build for it, or predict and "
    "measure this machine's CPU with cluster.hardware: cpu"
)


def device_name() -> str:
    """The name that torch gives this machine's first GPU, "" without one. UserError without torch."""
    require_library("torch")
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def hardware_at_hand() -> str:
    """The hardware file of this machine's GPU. UserError without a GPU, SamplesError for one that no file describes."""
    if not device_name():
        raise UserError(
            f"this-gpu: {NO_GPU}; `predict validate this-machine` compares predictions with steps on the CPU, and "
            "`predict validate this-gpu --profile NAME` against those that GPU sessions brought to the profile"
        )
    return detect_hardware()


def require_gpu_of(run: TrainingRun) -> None:
    """UserError unless this machine has the run's GPU; one that no hardware file names is taken for what the run says."""
    name = device_name()
    if not name:
        raise UserError(f"cluster.hardware: {run.cluster.gpu.name}: {NO_GPU}")
    entry = entry_of(name)
    if entry and hardware_facts(entry).name != run.cluster.gpu.name:
        raise UserError(
            f"cluster.hardware: {run.cluster.gpu.name}, but this machine has a {name}; use --set cluster.hardware={entry}"
        )
