"""DeepSpeed's JSON, beside the arguments of Megatron-DeepSpeed or the file of a trainer.

Names: DeepSpeed, runtime/config.py and runtime/zero/config.py.
"""

from __future__ import annotations

from typing import Any

from predict.convert import deepspeed
from predict.convert.offload import offload_of
from predict.convert.tool import AUTO, NO_VALUES, Cost, Reading, Sections, Tool, without, written

FRAMEWORK = "deepspeed"
WRITTEN = (
    written("plan.zero", lambda stage: {"zero_optimization.stage": stage}),
    written("batch.micro", lambda size: {deepspeed.MICRO: size}),
    written("batch.accumulation", lambda steps: {deepspeed.STEPS: steps}),
    written("precision", lambda name: {f"{name}.enabled": True} if name in deepspeed.HALVES else None),
    written("execution.overlap_gradients", lambda overlaps: {"zero_optimization.overlap_comm": overlaps}),
)
DTYPES = tuple(f"{name}.enabled" for name in deepspeed.HALVES)


def _read(reading: Reading) -> Sections:
    """The sections that the file settles; values that are "auto" are left to the trainer's file, and asked for where none says them."""
    given = without(reading.given, values=(AUTO, "Auto"))
    reading.given.passed_over(*(name for name, value in reading.given.values.items() if value in (AUTO, "Auto")))
    found: dict[str, Any] = dict(deepspeed.read_sections(given))
    if any(reading.given.values.get(name) == AUTO for name in DTYPES) and not any(map(given.switch, DTYPES)):
        del found["precision"]
        for key in ("gradient_dtype", "loss_scaling"):
            found["execution"].pop(key, None)
    elif deepspeed.ACCUMULATED not in given.values and found["precision"] == "bf16":
        # engine.py, get_data_types: fp32 without ZeRO, else the model's dtype
        found["execution"]["gradient_dtype"] = "bf16" if found["plan"].get("zero") else "fp32"
    # zero/config.py, overlap_comm_valid: stage 3 overlaps unless it is told otherwise, the others do not
    found["execution"].setdefault("overlap_gradients", found["plan"].get("zero") == 3)
    steps = given.values.get(deepspeed.STEPS)
    if steps not in NO_VALUES:
        found["batch"]["accumulation"] = given.count(deepspeed.STEPS)
    # the arguments of Megatron-DeepSpeed, or a trainer's file, name another framework where they stand beside this file
    return {**found, **offload_of(given), "usual": {"execution": {"framework": FRAMEWORK}}}


TOOLS = (
    Tool(
        name="DeepSpeed",
        marks=(
            "zero_optimization",
            "train_micro_batch_size_per_gpu",
            "train_batch_size gradient_accumulation_steps",
            "train_batch_size bf16.enabled",
            "train_batch_size fp16.enabled",
        ),
        read=_read,
        table=WRITTEN,
        harmless="""
            zero_allow_untested_optimizer zero_force_ds* *.loss_scale *loss_scale_window *initial_scale_power *hysteresis *min_loss_scale
            *auto_cast *consecutive_hysteresis bf16.immediate_grad_update zero_optimization.contiguous_gradients
            zero_optimization.*bucket_size zero_optimization.sub_group_size zero_optimization.stage3_max_* *param_persistence*
            zero_optimization.stage3_gather* zero_optimization.*on_model_save zero_optimization.allgather_partitions
            zero_optimization.round_robin* zero_optimization.ignore_unused* zero_optimization.memory_efficient* comms_config* comms_logger*
            monitor_config* tensorboard* wandb* csv_monitor* steps_per_print wall_clock_breakdown flops_profiler* dump_state prescale_gradients
            gradient_predivide_factor optimizer.params* scheduler* checkpoint* elasticity* data_efficiency* curriculum* disable_allgather
            *use_multi_rank_bucket_allreduce zero_optimization.legacy* gradient_accumulation_dtype load_from* memory_breakdown seed
            data_types* dataloader_drop_last aio* zero_optimization.elastic_checkpoint autotuning* timers* *fp32_allreduce
            activation_checkpointing.partition* activation_checkpointing.contiguous* activation_checkpointing.number*
            activation_checkpointing.synchronize* activation_checkpointing.profile zero_optimization.use_all_reduce*
            zero_optimization.mics_hierarchical* graph_harvesting
        """,
        costs={
            "*offload*": Cost(
                why="what lies in the host's memory, and how long it takes to move, is not modelled", neutral=("none",)
            ),
            "optimizer.type": Cost(
                why="keeps other state than AdamW, which is not modelled",
                neutral=("AdamW", "Adam", "adam", "adamw", "FusedAdam", "CPUAdam"),
            ),
            "zero_optimization.zero_quantized*": "ZeRO++'s quantized communication is not modelled",
            "zero_optimization.zero_hpz_partition_size": Cost(
                why="ZeRO++'s hierarchical partitions are not modelled", neutral=(1,)
            ),
            "zero_optimization.zenflow*": "ZenFlow is not modelled",
            "zero_optimization.use_muon*": "Muon under DeepSpeed is not read",
            "amp*": Cost(why="Apex is not modelled"),
            "sparse_gradients": "sparse gradients are not modelled",
            "sparse_attention*": "sparse attention is not modelled",
            "communication_data_type": Cost(
                why="another dtype of communication is not read", neutral=("bf16", "fp16", "bfp16")
            ),
            "seq_parallel_communication_data_type": Cost(why="is not read", neutral=("bf16", "fp16", "bfp16")),
            "tensor_parallel*": "AutoTP's degree is not read; give --set plan.tp=N and accept it",
            "sequence_parallel_size": Cost(why="the degree of Ulysses is not read; give --set plan.cp=N", neutral=(1,)),
            "compression_training*": "compression is not modelled",
            "compile*": Cost(why="compiled layers under DeepSpeed are not modelled"),
            "hybrid_engine*": "DeepSpeed's hybrid engine is not modelled",
            "pipeline*": Cost(why="the pipeline's degree is not read; give --set plan.pp=N", neutral=("auto",)),
            "fp8*": "fp8 under DeepSpeed is not modelled",
            "torch_autocast*": Cost(why="autocast under DeepSpeed is not modelled"),
        },
    ),
)
