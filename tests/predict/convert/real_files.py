"""Settings of public files of other tools, restated: what each file sets, its comments and what changes nothing mostly left out. Each is
read as the table says, or refused for the reason that it says; the expected values are counted by hand from the tool's own rules.

Only settings are restated, never text. Where one differs from the file, `source` says so; what is made up here says that too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class RealFile:
    tool: str
    source: str
    """Repository, path, and the commit's first letters."""
    name: str
    """Name of the file, whose ending decides how it is read."""
    text: str
    settings: tuple[str, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)
    """Other files of the run: name → text."""
    accept: tuple[str, ...] = ()
    reads: Mapping[str, Any] = field(default_factory=dict)
    """Key path → value of the config."""
    refused: tuple[str, ...] = ()
    """Patterns that the refusal holds."""


H100 = ("cluster.hardware=h100-sxm",)
NODE = (*H100, "cluster.nodes=1")
SFT = (*H100, "model=llama3-8b", "batch.micro=2", "batch.seq_len=2048")
SERVED = ("hardware=h100-sxm", "load.rate=4", "load.prompt=500", "load.output=200")
RL_DATA = (*H100, "rl.prompt=constant:200", "rl.response=lognormal:mean=400,p90=900")
ACCELERATE = "compute_environment: LOCAL_MACHINE\ndebug: false\ndowncast_bf16: 'no'\nmachine_rank: 0\nmain_training_function: main\n\
rdzv_backend: static\nsame_network: true\ntpu_env: []\ntpu_use_cluster: false\ntpu_use_sudo: false\nuse_cpu: false\nnum_machines: 1\n"
FSDP1 = (
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_backward_prefetch: BACKWARD_PRE\n  fsdp_cpu_ram_efficient_loading: true\n\
  fsdp_forward_prefetch: false\n  fsdp_offload_params: true\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_sync_module_states: true\n\
  fsdp_use_orig_params: false\n"
)
FSDP2 = "  fsdp_activation_checkpointing: false\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_cpu_ram_efficient_loading: true\n\
  fsdp_offload_params: false\n  fsdp_reshard_after_forward: true\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_version: 2\n"
TRL = (
    RealFile(
        tool="accelerate",
        source="huggingface/trl examples/accelerate_configs/fsdp2.yaml a91c73c6",
        name="fsdp2.yaml",
        text=f"{ACCELERATE}distributed_type: FSDP\nenable_cpu_affinity: false\nfsdp_config:\n{FSDP2}mixed_precision: bf16\nnum_processes: 8\n",
        settings=SFT,
        reads={
            "plan": {"zero": 3, "dp": 8},
            "precision": "bf16",
            "batch.global": 16,
            "execution.framework": "transformers",
            "cluster.gpus_per_node": 8,
        },
    ),
    RealFile(
        tool="accelerate",
        source="huggingface/trl examples/accelerate_configs/deepspeed_zero3.yaml 7d75884a",
        name="deepspeed_zero3.yaml",
        text=f"{ACCELERATE}distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_multinode_launcher: standard\n\
  gradient_accumulation_steps: 1\n  offload_optimizer_device: none\n  offload_param_device: none\n  zero3_init_flag: true\n\
  zero3_save_16bit_model: true\n  zero_stage: 3\nmixed_precision: 'fp16'\nnum_processes: 8\n",
        settings=SFT,
        reads={
            "plan": {"zero": 3, "dp": 8},
            "precision": "fp16",
            "batch.global": 16,
            "execution.framework": "deepspeed",
            "execution.loss_scaling": True,
        },
    ),
    RealFile(
        tool="accelerate",
        source="huggingface/trl examples/accelerate_configs/context_parallel_2gpu.yaml 39662df3",
        name="context_parallel_2gpu.yaml",
        text=f"{ACCELERATE}distributed_type: FSDP\nfsdp_config:\n{FSDP2}mixed_precision: bf16\nnum_processes: 2\nparallelism_config:\n\
  parallelism_config_dp_replicate_size: 1\n  parallelism_config_dp_shard_size: 1\n  parallelism_config_tp_size: 1\n\
  parallelism_config_cp_size: 2\n",
        settings=SFT,
        reads={"plan": {"zero": 3, "cp": 2, "cp_method": "all_gather", "dp": 1}, "batch.global": 2},
    ),
    RealFile(
        tool="accelerate",
        source="huggingface/trl examples/accelerate_configs/alst_ulysses_4gpu.yaml 0b1bb590",
        name="alst_ulysses_4gpu.yaml",
        text=f"{ACCELERATE}distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n  seq_parallel_communication_data_type: bf16\n\
  offload_optimizer_device: none\n  offload_param_device: none\n  zero3_init_flag: false\nmixed_precision: bf16\nnum_processes: 4\n\
parallelism_config:\n  parallelism_config_dp_replicate_size: 1\n  parallelism_config_dp_shard_size: 2\n  parallelism_config_tp_size: 1\n\
  parallelism_config_cp_size: 2\n  parallelism_config_cp_backend: deepspeed\n  parallelism_config_cp_seq_length_is_variable: true\n\
  parallelism_config_cp_attn_implementation: flash_attention_2\n",
        settings=SFT,
        reads={"plan": {"zero": 3, "cp": 2, "cp_method": "all_to_all", "dp": 2}, "batch.global": 4},
    ),
    RealFile(
        tool="accelerate",
        source="huggingface/trl examples/accelerate_configs/fsdp_qlora.yaml e0c3b15c",
        name="fsdp_qlora.yaml",
        text=f"{ACCELERATE}distributed_type: FSDP\nfsdp_config:\n{FSDP1}mixed_precision: 'bf16'\nnum_processes: 8\n",
        settings=SFT,
        reads={
            "plan": {"zero": 3, "dp": 8},
            "offload": {"optimizer_share": 1.0, "gradients_on_host": True, "shards_on": "host"},
        },
    ),
    RealFile(
        tool="accelerate",
        source="hiyouga/LLaMA-Factory examples/accelerate/fsdp_config.yaml 300437a5",
        name="fsdp_config.yaml",
        text=f"{ACCELERATE}distributed_type: FSDP\nfsdp_config:\n{FSDP1}mixed_precision: fp16\nnum_processes: 2\n",
        settings=SFT,
        reads={
            "plan": {"zero": 3, "dp": 2},
            "precision": "fp16",
            "batch.global": 4,
            "offload": {"optimizer_share": 1.0, "gradients_on_host": True, "shards_on": "host"},
        },
    ),
)
OLYMPIC = "model_name_or_path: Qwen/Qwen2.5-Coder-7B-Instruct\nmodel_revision: main\ntorch_dtype: bfloat16\n\
attn_implementation: flash_attention_2\ndataset_name: open-r1/codeforces-cots\ndataset_num_proc: 48\nbf16: true\ndo_eval: false\n\
eval_strategy: 'no'\ngradient_accumulation_steps: 8\ngradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n\
hub_strategy: every_save\nlearning_rate: 1.0e-05\nlog_level: info\nlogging_steps: 1\nlr_scheduler_type: cosine_with_min_lr\n\
lr_scheduler_kwargs:\n  min_lr_rate: 0.1\npacking: false\nmax_grad_norm: 0.2\nmax_length: 32768\nmax_steps: -1\nnum_train_epochs: 10\n\
output_dir: data\noverwrite_output_dir: true\nper_device_eval_batch_size: 1\nper_device_train_batch_size: 2\npush_to_hub: true\n\
report_to:\n- wandb\nsave_strategy: steps\nsave_total_limit: 1\nseed: 42\nuse_liger: true\nwarmup_ratio: 0.03\n"
TRAINERS = (
    RealFile(
        tool="Hugging Face TrainingArguments",
        source="huggingface/open-r1 recipes/OlympicCoder-7B/sft/config_v00.00.yaml c72fda3a, with trl's deepspeed_zero3.yaml in bf16",
        name="sft.yaml",
        text=OLYMPIC,
        beside={"zero3.yaml": TRL[1].text.replace("'fp16'", "bf16").replace("  gradient_accumulation_steps: 1\n", "")},
        settings=H100,
        reads={
            "model": "qwen2.5-7b",
            "plan": {"zero": 3, "recompute": "full", "dp": 8},
            "precision": "bf16",
            "batch": {"micro": 2, "seq_len": 32768, "global": 128},
            "execution.framework": "deepspeed",
            "execution.fuse_rms_norm": True,
            "execution.fuse_loss": True,
        },
    ),
    RealFile(
        tool="Hugging Face TrainingArguments",
        source="huggingface/open-r1 recipes/OlympicCoder-7B/sft/config_v00.00.yaml c72fda3a, of a model that is not shipped",
        name="sft.yaml",
        text=OLYMPIC.replace("Qwen/Qwen2.5-Coder-7B-Instruct", "bigcode/starcoder2-7b"),
        settings=NODE,
        refused=("model_name_or_path: 'bigcode/starcoder2-7b' is not a shipped model", "--set model="),
    ),
    RealFile(
        tool="TRL's GRPO",
        source="huggingface/open-r1 recipes/Qwen2.5-1.5B-Instruct/grpo/config_demo.yaml 1b6fcacd",
        name="grpo.yaml",
        text="model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct\ntorch_dtype: bfloat16\nnum_processes: 7\nbf16: true\nuse_vllm: true\n\
vllm_device: auto\nvllm_gpu_memory_utilization: 0.7\ngradient_accumulation_steps: 16\nmax_prompt_length: 512\n\
max_completion_length: 1024\nnum_generations: 7\nper_device_train_batch_size: 16\n",
        settings=NODE,
        refused=("vllm_device: 'auto': is of an older TRL", "vllm_mode: missing", "num_processes"),
    ),
    RealFile(
        tool="Hugging Face TrainingArguments",
        source="made up here: a call of TrainingArguments",
        name="train.py",
        text='MODEL = "meta-llama/Meta-Llama-3-8B"\nmodel = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)\n\
args = TrainingArguments(output_dir="out", per_device_train_batch_size=1, gradient_accumulation_steps=4, bf16=True,\n\
    gradient_checkpointing=True, optim="adamw_torch", learning_rate=2e-5, num_train_epochs=1)\n',
        settings=(*NODE, "batch.seq_len=4096"),
        reads={
            "plan": {"recompute": "full", "dp": 8},
            "batch": {"micro": 1, "seq_len": 4096, "global": 32},
            "precision": "bf16",
            "execution.master_weights": False,
            "execution.gradient_dtype": "bf16",
        },
    ),
    RealFile(
        tool="Hugging Face TrainingArguments",
        source="made up here: the same with bitsandbytes' optimizer and LoRA",
        name="train.py",
        text='model = AutoModelForCausalLM.from_pretrained("meta-llama/Meta-Llama-3-8B")\nconfig = LoraConfig(r=16)\n\
args = TrainingArguments(output_dir="out", per_device_train_batch_size=1, bf16=True, optim="paged_adamw_8bit", learning_rate=2e-5)\n',
        settings=(*NODE, "batch.seq_len=4096"),
        reads={
            "adapters": {"kind": "lora", "rank": 16, "targets": "q_proj,v_proj"},
            "execution.moment_dtype": "fp8",
        },
    ),
    RealFile(
        tool="Hugging Face TrainingArguments",
        source="made up here: trl's DPOTrainer, its reference computed before",
        name="dpo.py",
        text='model = AutoModelForCausalLM.from_pretrained("meta-llama/Meta-Llama-3-8B")\nargs = DPOConfig(output_dir="out", beta=0.1,\n\
    per_device_train_batch_size=2, max_length=1024, bf16=True, precompute_ref_log_probs=True, learning_rate=5e-7)\n\
trainer = DPOTrainer(model=model, args=args, train_dataset=dataset)\n',
        settings=NODE,
        reads={
            "tuning": {"task": "dpo", "reference": "precomputed"},
            "batch": {"micro": 4, "seq_len": 1024, "global": 32},
        },
    ),
    RealFile(
        tool="Hugging Face TrainingArguments",
        source="made up here: QLoRA as bitsandbytes' and peft's documentation write it",
        name="qlora.py",
        text='model = AutoModelForCausalLM.from_pretrained("meta-llama/Meta-Llama-3-8B", quantization_config=BitsAndBytesConfig(\n\
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16))\n\
config = LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM")\n\
args = SFTConfig(output_dir="out", per_device_train_batch_size=1, max_length=2048, bf16=True, optim="adamw_torch", learning_rate=2e-4)\n',
        settings=NODE,
        reads={
            "adapters": {"kind": "lora", "rank": 8, "targets": "all", "base": "nf4", "double_quantised": True},
            "batch.seq_len": 2048,
        },
    ),
)
LF = (
    "stage: sft\ndo_train: true\ntemplate: llama3\nmax_samples: 1000\noverwrite_cache: true\npreprocessing_num_workers: 16\n\
output_dir: saves\nlogging_steps: 10\nsave_steps: 500\nplot_loss: true\noverwrite_output_dir: true\nnum_train_epochs: 3.0\n\
lr_scheduler_type: cosine\nlearning_rate: 1.0e-5\nddp_timeout: 180000000\n"
)
ZERO3 = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", \
"gradient_clipping": "auto", "zero_allow_untested_optimizer": true, "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, \
"initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1}, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, \
"overlap_comm": false, "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto", \
"stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9, \
"stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true}, "comms_config": {"verbose": false}, \
"monitor_config": {"enabled": true, "tag": "DeepSpeedMonitor", "csv_monitor": {"enabled": false}}}'
LF_SFT = f"model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\ntrust_remote_code: true\nfinetuning_type: full\n\
deepspeed: examples/deepspeed/ds_z3_config.json\ndataset: identity,alpaca_en_demo\ncutoff_len: 2048\nbf16: true\nwarmup_ratio: 0.1\n\
per_device_train_batch_size: 1\ngradient_accumulation_steps: 2\n{LF}"
FACTORY = (
    RealFile(
        tool="LLaMA-Factory",
        source="hiyouga/LLaMA-Factory examples/train_full/llama3_full_sft.yaml 03da9a79 with examples/deepspeed/ds_z3_config.json 1d6e8b21",
        name="llama3_full_sft.yaml",
        text=LF_SFT,
        beside={"ds_z3_config.json": ZERO3},
        settings=NODE,
        reads={
            "model": "llama3-8b",
            "plan": {"zero": 3, "recompute": "full", "dp": 8},
            "batch": {"micro": 1, "seq_len": 2048, "global": 16},
            "precision": "bf16",
            "execution.framework": "deepspeed",
            "execution.overlap_gradients": False,
        },
    ),
    RealFile(
        tool="LLaMA-Factory",
        source="hiyouga/LLaMA-Factory examples/extras/muon/qwen2_full_sft.yaml 1765d0e6",
        name="qwen2_full_sft.yaml",
        text=f"model_name_or_path: Qwen/Qwen2-1.5B-Instruct\nstage: sft\ndo_train: true\nfinetuning_type: full\nuse_muon: true\n\
template: qwen\ncutoff_len: 2048\nbf16: true\nwarmup_ratio: 0.1\nper_device_train_batch_size: 1\n\
gradient_accumulation_steps: 8\n{LF}",
        settings=NODE,
        reads={
            "model": "qwen2.5-1.5b",
            "execution.optimizer": "muon",
            "batch.global": 64,
            "plan.recompute": "full",
            "precision": "bf16",
        },
    ),
    RealFile(
        tool="LLaMA-Factory",
        source="the same file alone",
        name="llama3_full_sft.yaml",
        text=LF_SFT,
        settings=NODE,
        refused=(
            "deepspeed: names 'examples/deepspeed/ds_z3_config.json', which decides sharding",
            "give that file as well",
        ),
    ),
    RealFile(
        tool="DeepSpeed",
        source="hiyouga/LLaMA-Factory examples/deepspeed/ds_z3_config.json 1d6e8b21, alone",
        name="ds_z3_config.json",
        text=ZERO3,
        settings=(*NODE, "model=llama3-8b", "batch.seq_len=2048"),
        refused=(r"batch\.micro: no file says it",),
    ),
    RealFile(
        tool="DeepSpeed",
        source="the same with the microbatch given: the dtype is asked for, never fp32",
        name="ds_z3_config.json",
        text=ZERO3,
        settings=(*NODE, "model=llama3-8b", "batch.seq_len=2048", "batch.micro=1"),
        refused=("precision: no file says it",),
    ),
    RealFile(
        tool="DeepSpeed",
        source="hiyouga/LLaMA-Factory examples/deepspeed/ds_z2_offload_config.json 1d6e8b21",
        name="ds_z2_offload_config.json",
        text='{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "offload_optimizer": \
{"device": "cpu", "pin_memory": true}, "allgather_partitions": true, "allgather_bucket_size": 5e8, "overlap_comm": false, \
"reduce_scatter": true, "reduce_bucket_size": 5e8, "contiguous_gradients": true, "round_robin_gradients": true}}',
        settings=(*NODE, "model=llama3-8b", "batch.seq_len=2048", "batch.micro=1", "precision=bf16"),
        reads={"plan.zero": 2, "offload": {"optimizer_share": 1.0, "optimizer_on": "host", "gradients_on_host": True}},
    ),
    RealFile(
        tool="DeepSpeed",
        source="deepspeedai/DeepSpeedExamples claude_tutorials/model_configs/llama/llama_70b_multi_node.json d6b8036e",
        name="llama_70b_multi_node.json",
        text='{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8, "gradient_clipping": 1.0, \
"steps_per_print": 50, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true, \
"reduce_bucket_size": 500000000, "stage3_max_live_parameters": 1000000000}, "optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-5}}, \
"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0}}, "communication_data_type": "fp16"}',
        settings=(*H100, "model=llama2-70b", "batch.seq_len=4096"),
        refused=(r"optimizer\.type: 'OneBitAdam'",),
    ),
    RealFile(
        tool="DeepSpeed",
        source="the same, its optimizer accepted: 32 GPUs by DeepSpeed's arithmetic",
        name="llama_70b_multi_node.json",
        text='{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8, "gradient_clipping": 1.0, \
"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "overlap_comm": true}, "optimizer": {"type": "OneBitAdam"}}',
        settings=(*H100, "model=llama2-70b", "batch.seq_len=4096"),
        accept=("optimizer.type",),
        reads={
            "plan": {"zero": 3, "dp": 32},
            "batch": {"global": 256, "micro": 1, "seq_len": 4096},
            "cluster.nodes": 4,
            "precision": "bf16",
        },
    ),
    RealFile(
        tool="LLaMA-Factory",
        source="hiyouga/LLaMA-Factory examples/train_full/qwen3_full_sft_fsdp2.yaml 064f012c with its FSDP2 file (trl's)",
        name="qwen3_full_sft_fsdp2.yaml",
        text=f"model_name_or_path: Qwen/Qwen3-8B\nattn: fa2\nenable_liger_kernel: true\ntorch_compile: false\n\
torch_compile_backend: inductor\nfinetuning_type: full\ninclude_mfu: true\ndataset: traces\nmask_history: true\ncutoff_len: 32768\n\
dataloader_num_workers: 2\ndataloader_pin_memory: false\nsave_only_model: false\nreport_to: wandb\nper_device_train_batch_size: 1\n\
gradient_accumulation_steps: 2\nwarmup_ratio: 0.05\nweight_decay: 0.01\nmax_grad_norm: 1.0e-3\nbf16: true\npure_bf16: false\n\
gradient_checkpointing: true\n{LF}",
        beside={"fsdp2.yaml": TRL[0].text},
        settings=H100,
        reads={
            "model": "qwen3-8b",
            "plan": {"zero": 3, "recompute": "full", "dp": 8},
            "batch": {"micro": 1, "seq_len": 32768, "global": 16},
            "execution.fuse_loss": True,
        },
    ),
    RealFile(
        tool="LLaMA-Factory",
        source="hiyouga/LLaMA-Factory examples/extras/fsdp_qlora/llama3_lora_sft.yaml 00b3fb4d",
        name="llama3_lora_sft.yaml",
        text=f"model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nquantization_bit: 4\nfinetuning_type: lora\nlora_target: q_proj,v_proj\n\
dataset: identity\ncutoff_len: 1024\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nfp16: true\n{LF}",
        settings=NODE,
        reads={
            "adapters": {
                "kind": "lora",
                "rank": 8,
                "targets": "q_proj,v_proj",
                "base": "nf4",
                "double_quantised": True,
            },
        },
    ),
    RealFile(
        tool="LLaMA-Factory",
        source="hiyouga/LLaMA-Factory examples/train_lora/llama3_lora_dpo.yaml, its template and data left as they are",
        name="llama3_lora_dpo.yaml",
        text="model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nstage: dpo\ndo_train: true\nfinetuning_type: lora\nlora_rank: 8\n\
lora_target: all\npref_beta: 0.1\npref_loss: sigmoid\ndataset: dpo_en_demo\ntemplate: llama3\ncutoff_len: 2048\nmax_samples: 1000\n\
output_dir: saves/llama3-8b/lora/dpo\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nlearning_rate: 5.0e-6\nbf16: true\n",
        settings=NODE,
        reads={
            "tuning": {"task": "dpo"},
            "adapters": {"kind": "lora", "rank": 8, "targets": "all"},
            "batch": {"micro": 2, "seq_len": 2048, "global": 128},
        },
    ),
    RealFile(
        tool="LLaMA-Factory",
        source="hiyouga/LLaMA-Factory examples/extras/galore/llama3_full_sft.yaml 3075df15",
        name="llama3_full_sft.yaml",
        text=f"model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nfinetuning_type: full\nuse_galore: true\ngalore_layerwise: true\n\
galore_target: mlp,self_attn\ngalore_rank: 128\ngalore_scale: 2.0\ndataset: identity\ncutoff_len: 1024\nper_device_train_batch_size: 1\n\
gradient_accumulation_steps: 1\npure_bf16: true\n{LF}",
        settings=NODE,
        refused=("use_galore: true: GaLore's projections are not modelled",),
    ),
)
AXOLOTL = (
    "datasets:\n  - path: tatsu-lab/alpaca\n    type: alpaca\ndataset_prepared_path: prepared\nval_set_size: 0.05\noutput_dir: ./out\n\
wandb_project:\nwandb_entity:\nnum_epochs: 1\nlr_scheduler: cosine\nlearning_rate: 2e-5\ntrain_on_inputs: false\ngroup_by_length: false\n\
tf32: false\nlogging_steps: 1\nwarmup_steps: 100\nevals_per_epoch: 2\nsaves_per_epoch: 1\ndebug:\ndeepspeed:\nweight_decay: 0.0\n\
special_tokens:\n  pad_token: <|end_of_text|>\n"
)
LORA = (
    f"base_model: NousResearch/Meta-Llama-3-8B\nload_in_8bit: true\nload_in_4bit: false\nsequence_len: 4096\nsample_packing: true\n\
adapter: lora\nlora_model_dir:\nlora_r: 32\nlora_alpha: 16\nlora_dropout: 0.05\nlora_target_linear: true\nlora_modules_to_save:\n\
  - embed_tokens\n  - lm_head\ngradient_accumulation_steps: 4\nmicro_batch_size: 2\noptimizer: adamw_bnb_8bit\nbf16: auto\n\
gradient_checkpointing: true\nflash_attention: true\n{AXOLOTL}"
)
AXOLOTLS = (
    RealFile(
        tool="Axolotl",
        source="axolotl-ai-cloud/axolotl examples/llama-3/fft-8b.yaml 15f7910d",
        name="fft-8b.yaml",
        text=f"base_model: meta-llama/Meta-Llama-3-8B\nmodel_type: LlamaForCausalLM\ntokenizer_type: AutoTokenizer\nload_in_8bit: false\n\
load_in_4bit: false\nstrict: false\nsequence_len: 8192\nsample_packing: true\npad_to_sequence_len: true\ngradient_accumulation_steps: 8\n\
micro_batch_size: 1\noptimizer: paged_adamw_8bit\nbf16: auto\nfp16:\ngradient_checkpointing: true\nflash_attention: true\nfsdp:\n\
fsdp_config:\n{AXOLOTL}",
        settings=NODE,
        reads={
            "model": "llama3-8b",
            "plan": {"recompute": "full", "dp": 8},
            "batch": {"micro": 1, "seq_len": 8192, "global": 64},
            "precision": "bf16",
            "execution.master_weights": False,
            "execution.moment_dtype": "fp8",
        },
    ),
    RealFile(
        tool="Axolotl",
        source="axolotl-ai-cloud/axolotl examples/llama-2/fft_optimized.yml 013495e1",
        name="fft_optimized.yml",
        text=f"base_model: NousResearch/Llama-2-7b-hf\nmodel_type: LlamaForCausalLM\nis_llama_derived_model: true\nload_in_4bit: false\n\
sequence_len: 4096\nsample_packing: true\nadapter:\nlora_r:\ngradient_accumulation_steps: 1\nmicro_batch_size: 1\n\
optimizer: adamw_bnb_8bit\nbf16: auto\nfp16: false\ntf32: false\ngradient_checkpointing: true\nflash_attention: true\n\
flash_attn_cross_entropy: false\nflash_attn_rms_norm: true\nflash_attn_fuse_mlp: true\ndeepspeed:\nfsdp:\n{AXOLOTL}",
        settings=NODE,
        reads={
            "model": "llama2-7b",
            "plan": {"recompute": "full", "dp": 8},
            "batch": {"micro": 1, "seq_len": 4096, "global": 8},
            "precision": "bf16",
            "execution.fuse_rms_norm": True,
            "execution.elementwise": "fused",
        },
    ),
    RealFile(
        tool="Axolotl",
        source="made up here: preferences over pairs by Axolotl's `rl`",
        name="dpo.yml",
        text=f"base_model: meta-llama/Meta-Llama-3-8B\nsequence_len: 2048\nrl: dpo\nrl_beta: 0.1\ngradient_accumulation_steps: 4\n\
micro_batch_size: 2\noptimizer: adamw_torch\nbf16: true\ngradient_checkpointing: offload\nflash_attention: true\n{AXOLOTL}",
        settings=NODE,
        reads={
            "tuning": {"task": "dpo"},
            "offload": {"activation_share": 1.0},
            "plan": {"recompute": "full", "dp": 8},
            "batch": {"micro": 4, "seq_len": 2048, "global": 128},
        },
    ),
    RealFile(
        tool="Axolotl",
        source="axolotl-ai-cloud/axolotl examples/llama-3/qlora.yml 20d0427a",
        name="qlora.yml",
        text=f"base_model: NousResearch/Meta-Llama-3-8B\nload_in_8bit: false\nload_in_4bit: true\nadapter: qlora\nlora_model_dir:\n\
sequence_len: 4096\nsample_packing: true\nlora_r: 32\nlora_alpha: 16\nlora_dropout: 0.05\nlora_target_linear: true\n\
gradient_accumulation_steps: 4\nmicro_batch_size: 2\noptimizer: paged_adamw_32bit\nbf16: auto\ngradient_checkpointing: true\n\
flash_attention: true\n{AXOLOTL}",
        settings=NODE,
        reads={
            "adapters": {"kind": "lora", "rank": 32, "targets": "all", "base": "nf4", "double_quantised": True},
            "batch": {"micro": 2, "seq_len": 4096, "global": 64},
        },
    ),
    RealFile(
        tool="Axolotl",
        source="axolotl-ai-cloud/axolotl examples/llama-3/lora-8b.yml 107c67ae",
        name="lora-8b.yml",
        text=LORA,
        settings=NODE,
        refused=(
            "load_in_8bit: true: frozen weights in 8 bits",
            "lora_modules_to_save: .*: weights trained whole beside adapters",
        ),
    ),
    RealFile(
        tool="Axolotl",
        source="the same in 16 bits, without the weights trained whole, and with torch's optimizer",
        name="lora-8b.yml",
        text=LORA.replace("8bit: true", "8bit: false")
        .replace("\n  - embed_tokens\n  - lm_head", "")
        .replace("bnb_8bit", "torch"),
        settings=NODE,
        reads={
            "model": "llama3-8b",
            "adapters": {"kind": "lora", "rank": 32, "targets": "all"},
            "batch": {"micro": 2, "seq_len": 4096, "global": 64},
            "plan": {"recompute": "full", "dp": 8},
            "precision": "bf16",
        },
    ),
    RealFile(
        tool="Axolotl",
        source="axolotl-ai-cloud/axolotl examples/llama-3/fft-8b-liger-fsdp.yaml 16a69469",
        name="fft-8b-liger-fsdp.yaml",
        text=f"base_model: NousResearch/Meta-Llama-3.1-8B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\nliger_rope: true\n\
liger_rms_norm: true\nliger_glu_activation: true\nliger_fused_linear_cross_entropy: true\nchat_template: llama3\nsequence_len: 4096\n\
sample_packing: true\ngradient_accumulation_steps: 4\nmicro_batch_size: 2\noptimizer: adamw_torch_fused\nbf16: auto\n\
gradient_checkpointing: true\nattention: flash\nfsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_limit_all_gathers: true\n\
{FSDP1}  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n{AXOLOTL}",
        settings=NODE,
        reads={
            "plan": {"zero": 3, "recompute": "full", "dp": 8},
            "offload": {"optimizer_share": 1.0, "gradients_on_host": True, "shards_on": "host"},
            "batch": {"micro": 2, "seq_len": 4096, "global": 64},
            "execution.fuse_rms_norm": True,
            "execution.fuse_loss": True,
        },
    ),
    RealFile(
        tool="Axolotl",
        source="axolotl-ai-cloud/axolotl examples/llama-3/3b-fp8-fsdp2.yaml 015d9de3, on a shipped model",
        name="3b-fp8-fsdp2.yaml",
        text=f"base_model: meta-llama/Llama-3.2-3B\nload_in_8bit: false\nliger_rms_norm: true\nsample_packing: true\nsequence_len: 512\n\
flex_attention: true\ntorch_compile: true\ngradient_accumulation_steps: 1\nmicro_batch_size: 16\noptimizer: adamw_torch_fused\nfp8: true\n\
fp8_enable_fsdp_float8_all_gather: true\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: false\n\
  fsdp_reshard_after_forward: true\n  fsdp_activation_checkpointing: true\n{AXOLOTL}",
        settings=(*NODE, "model=llama3-8b"),
        refused=("flex_attention: true: FlexAttention is not modelled", "fp8: true: fp8 by torchao"),
    ),
)
TUNE = (
    "tokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n  path: /tmp/tokenizer.model\n  max_seq_len: null\ndataset:\n\
  _component_: torchtune.datasets.alpaca_dataset\nseed: null\nshuffle: True\ncheckpointer:\n  _component_: torchtune.Checkpointer\n\
  checkpoint_dir: /tmp\nresume_from_checkpoint: False\nepochs: 3\nmax_steps_per_epoch: null\ndevice: cuda\noutput_dir: /tmp/out\n\
log_every_n_steps: 1\nlog_peak_memory_stats: False\n"
)
TORCHTUNE = (
    RealFile(
        tool="torchtune",
        source="pytorch/torchtune recipes/configs/llama3_1/8B_full.yaml 04781656",
        name="8B_full.yaml",
        text=f"{TUNE}model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\nbatch_size: 2\noptimizer:\n\
  _component_: torch.optim.AdamW\n  lr: 2e-5\n  foreach: False\nloss:\n  _component_: torch.nn.CrossEntropyLoss\n\
gradient_accumulation_steps: 1\nenable_activation_checkpointing: True\nmemory_efficient_fsdp_wrap: True\ndtype: bf16\n",
        settings=(*H100, "cluster.nodes=1", "cluster.gpus_per_node=4", "batch.seq_len=2048"),
        reads={
            "model": "llama3.1-8b",
            "plan": {"zero": 3, "recompute": "full", "dp": 4},
            "batch": {"micro": 2, "seq_len": 2048, "global": 8},
            "precision": "bf16",
            "execution.master_weights": False,
            "execution.framework": "fsdp",
        },
    ),
    RealFile(
        tool="torchtune",
        source="pytorch/torchtune recipes/configs/llama3_1/70B_full.yaml 0031bfb0",
        name="70B_full.yaml",
        text=f"{TUNE}model:\n  _component_: torchtune.models.llama3_1.llama3_1_70b\nbatch_size: 2\noptimizer:\n\
  _component_: torch.optim.AdamW\n  lr: 2e-5\n  fused: True\nloss:\n  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss\n\
gradient_accumulation_steps: 1\nenable_activation_checkpointing: True\ncustom_sharded_layers: ['tok_embeddings', 'output']\n\
fsdp_cpu_offload: True\ncompile: False\ndtype: bf16\n",
        settings=(*NODE, "batch.seq_len=2048"),
        reads={
            "model": "llama3.1-70b",
            "offload": {"optimizer_share": 1.0, "gradients_on_host": True, "shards_on": "host"},
        },
    ),
    RealFile(
        tool="torchtune",
        source="pytorch/torchtune recipes/configs/llama3/8B_full_single_device.yaml 03317787",
        name="8B_full_single_device.yaml",
        text=f"{TUNE}model:\n  _component_: torchtune.models.llama3.llama3_8b\nbatch_size: 2\noptimizer:\n\
  _component_: bitsandbytes.optim.PagedAdamW8bit\n  lr: 1e-5\ngradient_accumulation_steps: 1\noptimizer_in_bwd: True\ncompile: False\n\
enable_activation_checkpointing: True\nenable_activation_offloading: False\ndtype: bf16\n",
        settings=(*NODE, "batch.seq_len=2048"),
        refused=(
            "optimizer_in_bwd: true: an optimizer's step in the backward",
            r"optimizer\._component_: .*PagedAdamW8bit",
        ),
    ),
    RealFile(
        tool="torchtune",
        source="pytorch/torchtune recipes/configs/llama3_1/8B_lora.yaml 0031bfb0",
        name="8B_lora.yaml",
        text=f"{TUNE}model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n  lora_attn_modules: ['q_proj', 'v_proj']\n  apply_lora_to_mlp: False\n\
  apply_lora_to_output: False\n  lora_rank: 8\n  lora_alpha: 16\nbatch_size: 2\n\
gradient_accumulation_steps: 32\nenable_activation_checkpointing: False\ndtype: bf16\n",
        settings=(*NODE, "batch.seq_len=2048"),
        reads={"adapters": {"kind": "lora", "rank": 8, "targets": "q_proj,v_proj"}, "plan": {"dp": 8, "zero": 3}},
    ),
    RealFile(
        tool="torchtune",
        source="pytorch/torchtune recipes/configs/llama3_1/8B_qlora_single_device.yaml, without compilation",
        name="8B_qlora_single_device.yaml",
        text=f"{TUNE}model:\n  _component_: torchtune.models.llama3_1.qlora_llama3_1_8b\n  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']\n\
  apply_lora_to_mlp: True\n  apply_lora_to_output: False\n  lora_rank: 8\n  lora_alpha: 16\n  lora_dropout: 0.0\nbatch_size: 2\n\
gradient_accumulation_steps: 8\nenable_activation_checkpointing: True\nenable_activation_offloading: False\ndtype: bf16\n",
        settings=(*H100, "cluster.nodes=1", "cluster.gpus_per_node=1", "batch.seq_len=2048"),
        reads={
            "model": "llama3.1-8b",
            "adapters": {
                "kind": "lora",
                "rank": 8,
                "targets": "q_proj,v_proj,o_proj,mlp",
                "base": "nf4",
                "double_quantised": True,
            },
        },
    ),
)
TITAN = (
    '[job]\ndump_folder = "./outputs"\n[profiling]\nenable_profiling = true\n[metrics]\nlog_freq = 10\n[lr_scheduler]\nwarmup_steps = 200\n\
[checkpoint]\nenable_checkpoint = false\ninterval = 500\n'
)
TORCHTITAN = (
    RealFile(
        tool="torchtitan",
        source="pytorch/torchtitan torchtitan/models/llama3/train_configs/llama3_8b.toml f3534d77",
        name="llama3_8b.toml",
        text=f'{TITAN}[model]\nname = "llama3"\nflavor = "8B"\ntokenizer_path = "x"\n[optimizer]\nname = "AdamW"\nlr = 3e-4\neps = 1e-8\n\
[training]\nbatch_size = 1\nseq_len = 8192\nmax_norm = 1.0\nsteps = 1000\ncompile = false\ndataset = "c4"\n[parallelism]\n\
data_parallel_replicate_degree = 1\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 1\npipeline_parallel_degree = 1\n\
context_parallel_degree = 1\n[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op"\n[float8]\n\
enable_fsdp_float8_all_gather = false\nprecompute_float8_dynamic_scale_for_fsdp = false\nfilter_fqns = ["output"]\n',
        settings=(*H100, "cluster.nodes=8"),
        reads={
            "model": "llama3-8b",
            "plan": {"zero": 3, "recompute": "ops", "dp": 64},
            "batch": {"micro": 1, "seq_len": 8192, "global": 64},
            "precision": "bf16",
            "execution.framework": "fsdp",
        },
    ),
    RealFile(
        tool="torchtitan",
        source="pytorch/torchtitan torchtitan/models/llama3/train_configs/llama3_405b.toml 01424cb2",
        name="llama3_405b.toml",
        text=f'{TITAN}[model]\nname = "llama3"\nflavor = "405B"\nconverters = "float8"\n[optimizer]\nname = "AdamW"\nlr = 8e-5\n[training]\n\
batch_size = 2\nseq_len = 8192\nsteps = 3000\ncompile = true\ndataset = "c4"\n[parallelism]\ndata_parallel_replicate_degree = 1\n\
data_parallel_shard_degree = -1\ntensor_parallel_degree = 8\nenable_async_tensor_parallel = true\n[activation_checkpoint]\nmode = "full"\n\
[float8]\nenable_fsdp_float8_all_gather = true\nprecompute_float8_dynamic_scale_for_fsdp = true\nfilter_fqns = "output"\n',
        settings=(*H100, "cluster.nodes=16"),
        reads={
            "model": "llama3.1-405b",
            "plan": {"tp": 8, "sp": True, "zero": 3, "recompute": "full", "dp": 16},
            "batch": {"micro": 2, "seq_len": 8192, "global": 32},
            "precision": "fp8",
            "execution.framework": "torchtitan",
            "execution.overlap_tp": "pipelined",
        },
    ),
    RealFile(
        tool="torchtitan",
        source="pytorch/torchtitan (a fork's history) configs/llama3_8b-8xb200-8k.toml 25079f11",
        name="llama3_8b-8xb200-8k.toml",
        text=f'{TITAN}[model]\nname = "llama3"\nflavor = "8B"\nhf_assets_path = "x"\nconverters = []\n[training]\nlocal_batch_size = 3\n\
seq_len = 8192\ndtype = "bfloat16"\nmixed_precision_reduce = "bfloat16"\n[parallelism]\ndata_parallel_replicate_degree = 1\n\
data_parallel_shard_degree = 8\n[activation_checkpoint]\nmode = "none"\nselective_ac_option = "op"\n[optimizer]\nname = "AdamW"\n\
implementation = "fused"\nearly_step_in_backward = true\n[compile]\nenable = true\ncomponents = ["model", "loss"]\n',
        settings=("cluster.hardware=b200",),
        refused=(r"optimizer\.early_step_in_backward: true: an optimizer's step in the backward",),
    ),
)
LLAMA3 = (
    "--num-layers 32\n    --hidden-size 4096\n    --ffn-hidden-size 14336\n    --num-attention-heads 32\n    --group-query-attention\n\
    --num-query-groups 8\n    --kv-channels 128\n    --position-embedding-type rope\n    --swiglu\n    --untie-embeddings-and-output-weights\n\
    --disable-bias-linear\n    --attention-dropout 0.0\n    --hidden-dropout 0.0"
)
MEGATRON_H100 = f"""#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=${{CUDA_DEVICE_MAX_CONNECTIONS:-1}}
TOKENIZER_ARG=${{3:-"MOCK"}} # Path to tokenizer model, or "MOCK"
mkdir -p "$(dirname "$CHECKPOINT_PATH")"
GPUS_PER_NODE=8
NUM_NODES=1
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
PRETRAIN_SCRIPT_PATH="pretrain_gpt.py"
TP_SIZE=1; CP_SIZE=1
DTYPE="fp8"
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
)
MODEL_ARGS=(
    --use-mcore-models
    {LLAMA3}
    NORMALIZATION
    --seq-length 8192
    --max-position-embeddings 8192
    --rotary-base 1000000
    --attention-backend fused
    --apply-layernorm-1p
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 128
    --train-samples 1953125000
    --lr 0.00015
    --clip-grad 1.0
    --bf16
    --grad-reduce-in-bf16
    --cross-entropy-loss-fusion
    --calculate-per-token-loss
    --manual-gc
    --empty-unused-memory-level 1
)
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
        "--fp8-amax-history-len 1024"
        "--fp8-param-gather"
    )
fi
DDP_ARGS=(
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
)
TRAINING_ARGS+=("${{DDP_ARGS[@]}}")
DATA_ARGS_LIST=()
if [[ "$TOKENIZER_ARG" == "MOCK" ]] || [[ -z "$TOKENIZER_ARG" ]]; then
    DATA_ARGS_LIST+=(
        "--mock-data"
        "--tokenizer-type NullTokenizer"
        "--vocab-size 128256"
    )
else
    DATA_ARGS_LIST+=(
        "--data-path $DATA_ARG"
    )
fi
if [ ! -f "$PRETRAIN_SCRIPT_PATH" ]; then
    echo "Error: not found"
    exit 1
fi
if [ ! -f "$PRETRAIN_SCRIPT_PATH" ]; then
    echo "not found at $PRETRAIN_SCRIPT_PATH"
    exit 1
fi
torchrun ${{DISTRIBUTED_ARGS[@]}} \\
    "$PRETRAIN_SCRIPT_PATH" \\
    ${{MODEL_ARGS[@]}} \\
    ${{TRAINING_ARGS[@]}} \\
    ${{DTYPE_ARGS[@]}} \\
    --tensor-model-parallel-size $TP_SIZE --context-parallel-size $CP_SIZE --sequence-parallel \\
    ${{DATA_ARGS_LIST[@]}}
"""
BIGSCIENCE = """#!/bin/bash
#SBATCH --nodes=16
#SBATCH --gres=gpu:4                 # number of gpus
MYENV=stas
if   [[ ${MYENV} == stas ]];    then
    cd ~/stas/code
else
    cd ~/base/code
fi
NNODES=16
PP_SIZE=16 # NLAYERS must be a multiple of PP_SIZE here
MICRO_BATCH_SIZE=4; PP_CHUNKS=256 # GAS
USE_DEEPSPEED=1
MSIZE=52
if   [[ ${MSIZE} == 7 ]];    then NHIDDEN=4096;  NLAYERS=36
elif [[ ${MSIZE} == 52 ]];   then NHIDDEN=8192;  NLAYERS=64
elif [[ ${MSIZE} == 65 ]];   then NHIDDEN=9216;  NLAYERS=64
else echo "invalid MSIZE: $MSIZE"
fi
GPUS_PER_NODE=4
NHEADS=32
SEQ_LEN=1024
DP_SIZE=1
TP_SIZE=4
GLOBAL_BATCH_SIZE=$(($MICRO_BATCH_SIZE*$PP_CHUNKS*$DP_SIZE))
GPT_ARGS=" \\
    --num-layers $NLAYERS \\
    --hidden-size $NHIDDEN \\
    --num-attention-heads $NHEADS \\
    --seq-length $SEQ_LEN \\
    --max-position-embeddings $SEQ_LEN \\
    --micro-batch-size $MICRO_BATCH_SIZE \\
    --global-batch-size $GLOBAL_BATCH_SIZE \\
    --vocab-size 50257 \\
    --fp16 \\
    --checkpoint-activations \\
    "
ZERO_STAGE=0
config_json="./ds_config.json"
cat <<EOT > $config_json
{
  "train_micro_batch_size_per_gpu": $MICRO_BATCH_SIZE,
  "gradient_accumulation_steps": $PP_CHUNKS,
  "gradient_clipping": 1.0,
  "prescale_gradients": true,
  "zero_optimization": {
    "stage": $ZERO_STAGE
  },
  "fp16": {
    "enabled": true,
    "loss_scale": 0
  },
  "steps_per_print": 2000
}
EOT
if [[ ${USE_DEEPSPEED} == 1 ]]; then
    DEEPSPEED_ARGS=" \\
    --deepspeed \\
    --deepspeed_config ${config_json} \\
    --zero-stage ${ZERO_STAGE} \\
    --deepspeed-activation-checkpointing \\
    "
else
    DEEPSPEED_ARGS=""
fi
export LAUNCHER="python -u -m torch.distributed.launch \\
    --nproc_per_node $GPUS_PER_NODE \\
    --nnodes $NNODES \\
    --master_addr $MASTER_ADDR \\
    "
export CMD=" \\
    `pwd`/pretrain_gpt.py \\
    --tensor-model-parallel-size $TP_SIZE \\
    --pipeline-model-parallel-size $PP_SIZE \\
    $GPT_ARGS \\
    --data-impl mmap \\
    --split 949,50,1 \\
    --distributed-backend nccl \\
     $DEEPSPEED_ARGS \\
    "
echo $CMD
clear; srun --jobid $SLURM_JOBID bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD' 2>&1 | tee out.txt
"""
MEGATRON = (
    RealFile(
        tool="Megatron-LM",
        source="NVIDIA/Megatron-LM examples/llama/train_llama3_8b_h100_fp8.sh 157006d6, which has no --normalization",
        name="train_llama3_8b_h100_fp8.sh",
        text=MEGATRON_H100.replace("    NORMALIZATION\n", ""),
        settings=H100,
        refused=(r"LayerNorm where llama3-8b and llama3\.1-8b have RMSNorm",),
    ),
    RealFile(
        tool="Megatron-LM",
        source="the same with --normalization RMSNorm",
        name="train_llama3_8b_h100_fp8.sh",
        text=MEGATRON_H100.replace("NORMALIZATION", "--normalization RMSNorm"),
        settings=H100,
        reads={
            "model": "llama3-8b",
            "plan": {"zero": 1, "dp": 8},
            "batch": {"global": 128, "micro": 1, "seq_len": 8192},
            "precision": "fp8",
            "execution.gradient_dtype": "bf16",
            "execution.fp8_weights": "primary",
            "execution.attention": "cudnn",
            "cluster": {"nodes": 1, "gpus_per_node": 8, "hardware": "h100-sxm"},
        },
    ),
    RealFile(
        tool="Megatron-LM",
        source="NVIDIA/Megatron-LM examples/gpt3/train_gpt3_175b_distributed.sh 157006d6, on the 16 nodes that its degrees need",
        name="train_gpt3_175b_distributed.sh",
        text="GPUS_PER_NODE=8\nNUM_NODES=1\nCHECKPOINT_PATH=$1 #<Specify path>\nDISTRIBUTED_ARGS=(\n    --nproc_per_node $GPUS_PER_NODE \n\
    --nnodes $NUM_NODES \n)\nGPT_MODEL_ARGS=(\n    --num-layers 96 \n    --hidden-size 12288 \n    --num-attention-heads 96 \n\
    --seq-length 2048 \n    --max-position-embeddings 2048 \n    --attention-backend auto # Can use (flash/fused/unfused/local)\n)\n\
TRAINING_ARGS=(\n    --micro-batch-size 1 \n    --global-batch-size 1536 \n    --rampup-batch-size 16 16 5859375 \n    --init-method-std 0.006 \n\
    --fp16\n)\nMODEL_PARALLEL_ARGS=(\n\t--tensor-model-parallel-size 8 \n\t--pipeline-model-parallel-size 16 \n)\n\
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\\n    ${GPT_MODEL_ARGS[@]} \\\n    ${TRAINING_ARGS[@]} \\\n    ${MODEL_PARALLEL_ARGS[@]} \\\n\
    --save $CHECKPOINT_PATH\n",
        settings=(*H100, "cluster.nodes=16", "model=gpt3-175b"),
        reads={
            "plan": {"tp": 8, "pp": 16, "dp": 1},
            "batch": {"global": 1536, "micro": 1, "seq_len": 2048},
            "precision": "fp16",
            "execution.dropout": True,
        },
    ),
    RealFile(
        tool="Megatron-DeepSpeed",
        source="bigscience-workshop/bigscience experiments/gpt2-meg-ds-3d/meg_ds_3d_gpt2_perf_n16.slurm 0b3d1d5a, with the size of its vocabulary file",
        name="meg_ds_3d_gpt2_perf_n16.slurm",
        text=BIGSCIENCE,
        settings=("cluster.hardware=a100-40gb",),
        reads={
            "plan": {"tp": 4, "pp": 16, "recompute": "full", "dp": 1},
            "batch": {"global": 1024, "micro": 4, "seq_len": 1024},
            "precision": "fp16",
            "cluster.nodes": 16,
            "cluster.gpus_per_node": 4,
            "execution.framework": "megatron-deepspeed",
        },
    ),
    RealFile(
        tool="Primus",
        source="AMD-AGI/Primus examples/megatron/configs/MI300X/llama3.1_8B-BF16-pretrain.yaml 711b97cf",
        name="llama3.1_8B-BF16-pretrain.yaml",
        text="work_group: ${PRIMUS_TEAM:amd}\nmodules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n\
    model: llama3.1_8B.yaml\n    overrides:\n      stderr_sink_level: DEBUG\n      train_iters: 50\n      micro_batch_size: 2\n\
      global_batch_size: 128\n      seq_length: 8192\n      max_position_embeddings: 8192\n      lr: 1.0e-5\n      eod_mask_loss: true\n\
      norm_epsilon: 1.0e-6\n      tensor_model_parallel_size: 1\n      pipeline_model_parallel_size: 1\n      expert_model_parallel_size: 1\n\
      overlap_grad_reduce: true\n      overlap_param_gather: true\n      gradient_accumulation_fusion: false\n      mock_data: true\n\
      auto_continue_train: false\n      disable_last_saving: true\n      enable_primus_turbo: true\n      use_turbo_attention: false\n",
        settings=("cluster.hardware=mi300x", "cluster.nodes=1"),
        reads={
            "model": "llama3.1-8b",
            "plan": {"dp": 8},
            "batch": {"global": 128, "micro": 2, "seq_len": 8192},
            "precision": "bf16",
            "execution.fuse_gradients": False,
        },
    ),
    RealFile(
        tool="Megatron-Bridge",
        source="NVIDIA-NeMo/Megatron-Bridge examples/recipes/qwen3_moe/conf/qwen3_moe_30b_a3b_pretrain_override_example.yaml 2d06bc32",
        name="qwen3_moe.yaml",
        text="model:\n  tensor_model_parallel_size: 4\n  pipeline_model_parallel_size: 2\n  seq_length: 4096\n  sequence_parallel: true\n\
  expert_model_parallel_size: 4\n  expert_tensor_parallel_size: 1\ntrain:\n  train_iters: 100000\n  global_batch_size: 256\n\
  micro_batch_size: 2\noptimizer:\n  lr: 0.0003\nlogger:\n  log_interval: 10\nddp:\n  grad_reduce_in_fp32: true\nmixed_precision:\n  dtype: bf16\n",
        settings=(*H100, "cluster.nodes=2", "model=qwen3-30b-a3b", "precision=bf16"),
        refused=(r"model\.context_parallel_size: not stated, and the recipe's own is in its Python",),
    ),
    RealFile(
        tool="Megatron-Bridge",
        source="NVIDIA-NeMo/Megatron-Bridge examples/llm/llama3_8b/conf/llama3_8b_pretrain_override_example.yaml c7761623",
        name="llama3_8b.yaml",
        text="model_config:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 2\n  context_parallel_size: 1\ntrain_config:\n\
  train_iters: 500000\n  global_batch_size: 256\n  micro_batch_size: 4\n  eval_interval: 1000\noptimizer_config:\n  lr: 0.00025\n\
scheduler_config:\n  lr_warmup_iters: 1000\ncheckpoint_config:\n  save_interval: 1000\ndataset_config:\n  num_workers: 4\nrng_config:\n  seed: 42\n\
ddp_config:\n  grad_reduce_in_fp32: true\nprofiling_config:\n  use_nsys_profiler: false\n",
        settings=(*H100, "cluster.nodes=2", "model=llama3-8b", "precision=bf16", "batch.seq_len=8192"),
        reads={
            "plan": {"tp": 2, "pp": 2, "zero": 1, "dp": 4},
            "batch": {"global": 256, "micro": 4, "seq_len": 8192},
            "precision": "bf16",
            "execution.framework": "nemo",
        },
    ),
    RealFile(
        tool="Megatron-Bridge",
        source="NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs/llama3/llama3_70b_llm_pretrain.yaml 0aa7db37",
        name="llama3_70b_llm_pretrain.yaml",
        text="ConfigContainer:\n  model:\n    cross_entropy_fusion_impl: te\n  train:\n    train_iters: 25\nperf_matrix:\n  h100:\n\
    num_gpus_64:\n      common:\n        seq_length: 8192\n        mbs: 1\n        gbs: 128\n        tp: 4\n",
        settings=(*H100, "cluster.nodes=8", "model=llama3-70b"),
        refused=("is a matrix of several runs; write the overrides of one of them",),
    ),
)
VERL = "data.train_files=$HOME/train.parquet data.filter_overlong_prompts=True data.truncation='error' \
actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.kl_loss_coef=0.001 actor_rollout_ref.actor.entropy_coeff=0 \
trainer.critic_warmup=0 trainer.logger=['console','wandb'] trainer.project_name='x' trainer.save_freq=-1 trainer.total_epochs=15"
REINFORCED = (
    RealFile(
        tool="verl",
        source="volcengine/verl examples/grpo_trainer/run_qwen2_5-7b_math_megatron.sh d01c2688, on two nodes of 8",
        name="run_qwen2_5-7b_math_megatron.sh",
        text=f"set -x\nexport VLLM_ATTENTION_BACKEND=XFORMERS\npython3 -m verl.trainer.main_ppo --config-path=config \\\n\
    --config-name='ppo_megatron_trainer.yaml'\\\n    algorithm.adv_estimator=grpo \\\n    data.train_batch_size=1024 \\\n\
    data.max_prompt_length=1024 \\\n    data.max_response_length=1024 \\\n    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct \\\n\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\\n    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\\n\
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 \\\n\
    actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=2 \\\n\
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 \\\n    actor_rollout_ref.actor.use_kl_loss=True \\\n\
    actor_rollout_ref.model.enable_gradient_checkpointing=True \\\n    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 \\\n\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\\n    actor_rollout_ref.rollout.name=vllm \\\n\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\\n    actor_rollout_ref.rollout.n=5 \\\n    algorithm.use_kl_in_reward=False \\\n\
    trainer.n_gpus_per_node=8 trainer.nnodes=2 {VERL} $@\n",
        settings=RL_DATA,
        reads={
            "model": "qwen2.5-7b",
            "plan": {"tp": 4, "sp": True, "pp": 2, "vpp": 2, "schedule": "interleaved-1f1b", "zero": 1, "dp": 2},
            "precision": "bf16",
            "rl.prompts": 1024,
            "rl.n": 5,
            "rl.mini_batch": 256,
            "rl.micro": 4,
            "rl.reference": True,
            "rl.rollout.tp": 2,
            "rl.rollout.memory_share": 0.6,
            "cluster.nodes": 2,
        },
    ),
    RealFile(
        tool="verl",
        source="volcengine/verl examples/grpo_trainer/run_qwen3moe-30b_megatron_96gb.sh 6e7fdc2e, without its optimizer on the host",
        name="run_qwen3moe-30b_megatron_96gb.sh",
        text='NNODES=${NNODES:-1}\nmax_prompt_length=$((1024 * 2))\nmax_response_length=$((1024 * 8))\nuse_dynamic_bsz=True\n\
actor_ppo_max_token_len=$(((max_prompt_length + max_response_length)))\noffload=True\nCOMMON_VPP=${COMMON_VPP:-null}\n\
COMMON_EP=${COMMON_EP:-8}\nTRAIN_TP=${TRAIN_TP:-1}\nACTOR_VPP=${ACTOR_VPP:-$COMMON_VPP}\nACTOR_EP=${ACTOR_EP:-$COMMON_EP}\n\
ACTOR_TP=${ACTOR_TP:-$TRAIN_TP}\n\
python3 -m verl.trainer.main_ppo --config-path=./config --config-name=\'ppo_megatron_trainer\'\\\n    data.train_batch_size=512 \\\n\
    data.max_prompt_length=${max_prompt_length} \\\n    data.max_response_length=${max_response_length} \\\n\
    actor_rollout_ref.rollout.n=16 \\\n    algorithm.adv_estimator=grpo \\\n    algorithm.use_kl_in_reward=False \\\n\
    actor_rollout_ref.model.path="Qwen/Qwen3-30B-A3B-Base" \\\n    actor_rollout_ref.actor.use_kl_loss=False \\\n\
    +actor_rollout_ref.model.override_config.model_config.max_position_embeddings=$((max_prompt_length + max_response_length)) \\\n\
    actor_rollout_ref.actor.use_dynamic_bsz=${use_dynamic_bsz} \\\n    actor_rollout_ref.actor.ppo_mini_batch_size=128 \\\n\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\\n\
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=${actor_ppo_max_token_len} \\\n\
    actor_rollout_ref.actor.megatron.param_offload=${offload} \\\n    actor_rollout_ref.actor.megatron.grad_offload=${offload} \\\n\
    actor_rollout_ref.actor.megatron.optimizer_offload=${offload} \\\n\
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=${ACTOR_TP} \\\n\
    actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=${ACTOR_VPP} \\\n\
    actor_rollout_ref.actor.megatron.expert_model_parallel_size=${ACTOR_EP} \\\n\
    +actor_rollout_ref.actor.megatron.override_transformer_config.moe_token_dispatcher_type="flex" \\\n\
    +actor_rollout_ref.actor.megatron.override_transformer_config.moe_enable_deepep=True \\\n\
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2 \\\n    actor_rollout_ref.rollout.gpu_memory_utilization=0.7 \\\n\
    actor_rollout_ref.rollout.tensor_model_parallel_size=4 \\\n    actor_rollout_ref.rollout.enforce_eager=True \\\n\
    trainer.n_gpus_per_node=8 \\\n    trainer.nnodes="${NNODES}"\n',
        settings=RL_DATA,
        reads={
            "model": "qwen3-30b-a3b",
            "plan": {"ep": 8, "zero": 1, "dp": 8},
            "rl.max_tokens": 10240,
            "rl.micro": None,
            "rl.passes": {"max_tokens": 10240},
            "rl.prompts": 512,
            "rl.mini_batch": 128,
            "rl.offload": ["parameters", "optimizer"],
            "execution.dispatch": "deepep",
        },
    ),
    RealFile(
        tool="verl",
        source="volcengine/verl examples/grpo_trainer/run_qwen3-8b_npu.sh 00ff1579, whose device is no GPU",
        name="run_qwen3-8b_npu.sh",
        text=f'gen_tp=2\nRAY_DATA_HOME=${{RAY_DATA_HOME:-"${{HOME}}/verl"}}\nMODEL_PATH=${{MODEL_PATH:-"${{RAY_DATA_HOME}}/models/Qwen3-8B"}}\n\
ray job submit --no-wait --runtime-env="${{RUNTIME_ENV}}" \\\n    --address "${{RAY_ADDRESS}}" \\\n    -- python3 -m verl.trainer.main_ppo \\\n\
    algorithm.adv_estimator=grpo \\\n    data.train_batch_size=256 \\\n    data.max_prompt_length=512 \\\n    data.max_response_length=1024 \\\n\
    actor_rollout_ref.model.path=${{MODEL_PATH}} \\\n    actor_rollout_ref.model.use_remove_padding=True \\\n\
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \\\n    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=10 \\\n\
    actor_rollout_ref.actor.use_kl_loss=True \\\n    actor_rollout_ref.model.enable_gradient_checkpointing=True \\\n\
    actor_rollout_ref.actor.fsdp_config.param_offload=False \\\n    actor_rollout_ref.actor.fsdp_config.optimizer_offload=False \\\n\
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32 \\\n    actor_rollout_ref.rollout.tensor_model_parallel_size=${{gen_tp}} \\\n\
    actor_rollout_ref.rollout.name=vllm \\\n    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\\n    actor_rollout_ref.rollout.n=5 \\\n\
    actor_rollout_ref.ref.fsdp_config.param_offload=True \\\n    trainer.n_gpus_per_node=8 \\\n    trainer.nnodes=1 \\\n    trainer.device=npu \\\n\
    ++actor_rollout_ref.actor.entropy_from_logits_with_chunking=True {VERL}\n',
        settings=RL_DATA,
        refused=(r"trainer\.device: 'npu'",),
    ),
    RealFile(
        tool="verl",
        source="volcengine/verl examples/grpo_trainer/run_qwen2-7b.sh 03aefba4, with adv_estimator grpo",
        name="run_qwen2-7b.sh",
        text=f"python3 -m verl.trainer.main_ppo \\\n    data.train_batch_size=1024 data.val_batch_size=1312 \\\n    data.max_prompt_length=512 \\\n\
    data.max_response_length=512 \\\n    algorithm.adv_estimator=grpo \\\n    actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct \\\n\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\\n    actor_rollout_ref.actor.ppo_micro_batch_size=128 \\\n\
    actor_rollout_ref.actor.use_kl_loss=True \\\n    actor_rollout_ref.model.enable_gradient_checkpointing=True \\\n\
    actor_rollout_ref.rollout.log_prob_micro_batch_size=128 \\\n    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\\n\
    actor_rollout_ref.rollout.name=vllm \\\n    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\\n    actor_rollout_ref.rollout.n=5 \\\n\
    actor_rollout_ref.ref.fsdp_config.param_offload=True \\\n    trainer.n_gpus_per_node=8 trainer.nnodes=1 {VERL}\n",
        settings=RL_DATA,
        reads={
            "model": "qwen2.5-7b",
            "plan": {"zero": 3, "recompute": "full", "dp": 8},
            "rl.prompts": 1024,
            "rl.micro": 16,
            "rl.passes.micro": 16,
            "rl.offload": ["reference"],
            "execution.framework": "transformers",
        },
    ),
    RealFile(
        tool="slime",
        source="THUDM/slime scripts/run-llama3.1-8B.sh c14d5398",
        name="run-llama3.1-8B.sh",
        text='pkill -9 sglang\nNVLINK_COUNT=$(nvidia-smi | grep -o "NVLink" | wc -l)\nif [ "$NVLINK_COUNT" -gt 0 ]; then\n    HAS_NVLINK=1\nelse\n\
    HAS_NVLINK=0\nfi\nsource "${SCRIPT_DIR}/models/llama3.1-8B-Instruct.sh"\nCKPT_ARGS=(\n   --hf-checkpoint /data/Llama-3.1-8B-Instruct\n\
   --save-interval 100\n)\nROLLOUT_ARGS=(\n   --prompt-data /data/gsm8k.jsonl  # huggingface-cli download --local-dir /data\n\
   --apply-chat-template\n   --rollout-shuffle\n   --rm-type math\n   --num-rollout 3000\n   --rollout-batch-size 64\n\
   --n-samples-per-prompt 8\n   --rollout-max-prompt-len 256\n   --rollout-max-response-len 1792\n   --rollout-temperature 0.8\n\n\
   --global-batch-size 512\n   --balance-data\n)\nEVAL_ARGS=(\n   # --eval-interval 20\n)\nPERF_ARGS=(\n   --tensor-model-parallel-size 2\n\
   --sequence-parallel\n   --pipeline-model-parallel-size 1\n   --context-parallel-size 1\n   --expert-model-parallel-size 1\n\
   --expert-tensor-parallel-size 1\n   --recompute-granularity full\n   --recompute-method uniform\n   --recompute-num-layers 1\n\
   # --micro-batch-size 1\n   --use-dynamic-batch-size\n   --max-tokens-per-gpu 9216\n)\nGRPO_ARGS=(\n   --advantage-estimator grpo\n\
   --use-kl-loss\n   --kl-loss-coef 0.00\n)\nOPTIMIZER_ARGS=(\n   --optimizer adam\n   --lr 1e-6\n)\nSGLANG_ARGS=(\n\
   --rollout-num-gpus-per-engine 1\n   --sglang-mem-fraction-static 0.8\n   --sglang-max-running-requests 48\n   --sglang-dtype float16\n\
   --sglang-context-length 2048\n   --sglang-attention-backend fa3\n)\nMISC_ARGS=(\n   --attention-dropout 0.0\n   --hidden-dropout 0.0\n\
   --accumulate-allreduce-grads-in-fp32\n   --attention-softmax-in-fp32\n   --attention-backend flash\n)\n\
ray start --head --node-ip-address ${MASTER_ADDR} --num-gpus 4\nRUNTIME_ENV_JSON="{\n  \\"env_vars\\": {\n    \\"NCCL_NVLS_ENABLE\\": \\"${HAS_NVLINK}\\"\n\
  }\n}"\nray job submit --address="http://127.0.0.1:8265" \\\n   --runtime-env-json="${RUNTIME_ENV_JSON}" \\\n   -- python3 train.py \\\n\
   --actor-num-nodes 1 \\\n   --actor-num-gpus-per-node 4 \\\n   --rollout-num-gpus-per-node 4 \\\n   --colocate \\\n   ${MODEL_ARGS[@]} \\\n\
   ${CKPT_ARGS[@]} \\\n   ${ROLLOUT_ARGS[@]} \\\n   ${OPTIMIZER_ARGS[@]} \\\n   ${GRPO_ARGS[@]} \\\n   ${PERF_ARGS[@]} \\\n   ${EVAL_ARGS[@]} \\\n\
   ${SGLANG_ARGS[@]} \\\n   ${MISC_ARGS[@]}\n',
        settings=RL_DATA,
        reads={
            "model": "llama3.1-8b",
            "plan": {"tp": 2, "sp": True, "recompute": "full", "dp": 2},
            "cluster": {"nodes": 1, "gpus_per_node": 4, "hardware": "h100-sxm"},
            "rl.prompts": 64,
            "rl.n": 8,
            "rl.mini_batch": 64,
            "rl.max_tokens": 9216,
            "rl.prompt_max": 256,
            "rl.response_max": 1792,
            "rl.rollout.tp": 1,
            "rl.rollout.max_num_seqs": 48,
            "rl.reference": True,
        },
    ),
    RealFile(
        tool="slime",
        source="THUDM/slime scripts/run-qwen3-30B-A3B.sh 128cb0e7",
        name="run-qwen3-30B-A3B.sh",
        text="A=(\n --hf-checkpoint /data/Qwen3-30B-A3B\n --rollout-batch-size 8\n --n-samples-per-prompt 4\n --rollout-max-response-len 8192\n\
 --global-batch-size 32\n --num-rollout 3000\n --tensor-model-parallel-size 4\n --sequence-parallel\n --expert-model-parallel-size 8\n\
 --expert-tensor-parallel-size 1\n --recompute-granularity full\n --use-dynamic-batch-size\n --max-tokens-per-gpu 20480\n --optimizer adam\n\
 --optimizer-cpu-offload\n --overlap-cpu-optimizer-d2h-h2d\n --use-precision-aware-optimizer\n --rollout-num-gpus-per-engine 8\n\
 --sglang-mem-fraction-static 0.7\n --sglang-cuda-graph-bs 1 2 4 8 $(seq 16 8 256)\n)\nray job submit -- python3 train.py --actor-num-nodes 1\
 --actor-num-gpus-per-node 8 --colocate ${A[@]}\n",
        settings=(*RL_DATA, "rl.prompt_max=1024"),
        reads={
            "model": "qwen3-30b-a3b",
            "plan.ep": 8,
            "offload": {"optimizer_share": 1.0, "overlap_optimizer": True},
            "execution.master_dtype": "remainder",
            "rl.prompts": 8,
            "rl.max_tokens": 20480,
        },
    ),
    RealFile(
        tool="prime-rl",
        source="PrimeIntellect-ai/prime-rl benchmarks/profiling/configs/qwen3-30b.toml a9db5d23",
        name="qwen3-30b.toml",
        text='max_steps = 8\ntrace_skip_steps = 2\ntrace_ranks = [0]\ndist_timeout_seconds = 600\n[model]\nname = "Qwen/Qwen3-30B-A3B"\nep = 8\n\
[model.debug]\nnum_layers = 12\n[data]\ntype = "sft"\nname = "allenai/tulu-3-sft-mixture"\nbatch_size = 8\nmicro_batch_size = 1\nseq_len = 8192\n\
[deployment]\nnum_gpus = 8\n',
        settings=H100,
        refused=(r"model\.debug\.num_layers: 12: a cut model is not shipped",),
    ),
    RealFile(
        tool="prime-rl",
        source="the same at full depth",
        name="qwen3-30b.toml",
        text='max_steps = 8\n[model]\nname = "Qwen/Qwen3-30B-A3B"\nep = 8\n[data]\ntype = "sft"\nbatch_size = 8\nmicro_batch_size = 1\nseq_len = 8192\n\
[deployment]\nnum_gpus = 8\n',
        settings=H100,
        reads={
            "model": "qwen3-30b-a3b",
            "plan": {"ep": 8, "zero": 3, "dp": 8},
            "batch": {"global": 8, "micro": 1, "seq_len": 8192},
            "precision": "bf16",
            "execution.framework": "prime-rl",
            "execution.elementwise": "eager",
        },
    ),
    RealFile(
        tool="prime-rl",
        source="PrimeIntellect-ai/prime-rl configs/advanced/models/qwen3-30b-a3b/rl/2-nodes-instruct.toml 89fe4684, its model by the name of its shape",
        name="2-nodes-instruct.toml",
        text='max_steps = 400\nseq_len = 32768\n[slurm]\n[deployment]\ntype = "multi_node"\nnum_train_nodes = 1\nnum_infer_nodes = 1\n[ckpt]\ninterval = 50\n\
[model]\nname = "Qwen/Qwen3-30B-A3B"\n[trainer.model]\ncp = 2\n[trainer.model.ac]\nfreq = 1\n[trainer.model.compile]\n[orchestrator]\n\
batch_size = 512\ngroup_size = 16\nmax_off_policy_steps = 32\n[inference]\n[inference.vllm]\nmax_model_len = 32768\ndata_parallel_size = 2\n\
tensor_parallel_size = 4\ngpu_memory_utilization = 0.85\n',
        settings=(*RL_DATA, "rl.prompt_max=1024", "rl.response_max=31744"),
        reads={
            "plan": {"cp": 2, "zero": 3, "recompute": "full", "dp": 4},
            "rl.prompts": 32,
            "rl.n": 16,
            "rl.staleness": 32,
            "rl.rollout.gpus": 8,
            "rl.rollout.tp": 4,
            "execution.framework": "prime-rl",
        },
    ),
)
SERVERS = (
    RealFile(
        tool="vLLM",
        source="vllm-project/vllm examples/online_serving/kv_events.sh 75a87227, with 1,000 tokens in place of 100",
        name="kv_events.sh",
        text='MODEL_NAME=${HF_MODEL_NAME:-meta-llama/Meta-Llama-3.1-8B-Instruct}\ntrap \'cleanup\' INT\ncleanup() {\n    echo "Caught"\n    exit 0\n}\n\
export VLLM_HOST_IP=$(hostname -I | awk \'{print $1}\')\nvllm serve $MODEL_NAME \\\n    --port 8100 \\\n    --max-model-len 1000 \\\n\
    --gpu-memory-utilization 0.8 \\\n    --trust-remote-code \\\n    --kv-events-config \\\n\
    \'{"enable_kv_cache_events": true, "publisher": "zmq", "topic": "kv-events"}\' &\npython3 ./kv_events_subscriber.py &\n',
        settings=SERVED,
        reads={
            "model": "llama3.1-8b",
            "placement": {"tp": 1, "precision": "bf16"},
            "engine.max_model_len": 1000,
            "engine.memory_utilization": 0.8,
        },
    ),
    RealFile(
        tool="vLLM",
        source="vllm-project/vllm examples/online_serving/elastic_ep/serve_deepseek_v2.sh 15d9f84a",
        name="serve_deepseek_v2.sh",
        text='DATA_PARALLEL_SIZE=4\nREDUNDANT_EXPERTS=0\nMODEL_NAME="deepseek-ai/DeepSeek-V2-Lite"\nwhile [[ $# -gt 0 ]]; do\n    case $1 in\n        --dp)\n\
            DATA_PARALLEL_SIZE="$2"\n            shift 2\n            ;;\n        *)\n            exit 1\n            ;;\n    esac\ndone\n\
vllm serve "$MODEL_NAME" \\\n    --data-parallel-size "$DATA_PARALLEL_SIZE" \\\n    --data-parallel-size-local "$DATA_PARALLEL_SIZE" \\\n\
    --data-parallel-backend ray \\\n    --enforce-eager \\\n    --enable-expert-parallel \\\n    --enable-eplb \\\n\
    --num-redundant-experts "$REDUNDANT_EXPERTS" \\\n    --trust-remote-code --host 0.0.0.0\n',
        settings=SERVED,
        reads={
            "model": "deepseek-v2-lite",
            "placement.dp": 4,
            "placement.expert_parallel": True,
            "engine.enforce_eager": True,
        },
    ),
    RealFile(
        tool="SGLang",
        source="made up here: a server of SGLang",
        name="serve.sh",
        text="python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --port 30000 --reasoning-parser qwen3 --mem-fraction-static 0.75 \\\n\
  --context-length 8192 --max-running-requests 32 --tp-size 1 --dtype bfloat16\n",
        settings=SERVED,
        reads={
            "model": "qwen3-8b",
            "engine.name": "sglang",
            "engine.max_num_seqs": 32,
            "engine.memory_utilization": 0.75,
            "engine.max_model_len": 8192,
        },
    ),
    RealFile(
        tool="SGLang",
        source="made up here: replicas of attention in SGLang",
        name="serve.sh",
        text="python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp-size 16 --dp-size 16 --enable-dp-attention \\\n\
  --moe-a2a-backend deepep --deepep-mode low_latency --enable-two-batch-overlap --ep-num-redundant-experts 32\n",
        settings=SERVED,
        reads={
            "model": "deepseek-v3",
            "placement.tp": 1,
            "placement.dp": 16,
            "placement.expert_parallel": True,
            "placement.redundant_experts": 32,
            "engine.dispatch": "deepep",
            "engine.two_batch_overlap": True,
        },
    ),
    RealFile(
        tool="SGLang",
        source="made up here: a server of SGLang with speculation",
        name="serve.sh",
        text="python -m sglang.launch_server \\\n  --model-path Qwen/Qwen3-30B-A3B \\\n  --speculative-algorithm DFLASH \\\n\
  --speculative-draft-model-path z-lab/Qwen3-Coder-30B-A3B-DFlash \\\n  --tp-size 1\n",
        settings=SERVED,
        refused=("speculative_algorithm: 'dflash': speculation of this kind",),
    ),
    RealFile(
        tool="vLLM",
        source="made up here: integers of four bits, two stages, and a draft model",
        name="serve.sh",
        text='vllm serve Qwen/Qwen2.5-72B-Instruct-AWQ --tensor-parallel-size 2 --quantization awq_marlin \\\n\
  --speculative-config \'{"model": "Qwen/Qwen2.5-7B-Instruct", "num_speculative_tokens": 4}\'\n',
        settings=SERVED,
        reads={
            "model": "qwen2.5-72b",
            "placement": {"tp": 2, "precision": "w4a16"},
            "speculation": {"kind": "draft", "tokens": 4, "draft": "qwen2.5-7b"},
        },
    ),
    RealFile(
        tool="vLLM",
        source="made up here: stages of a pipeline, and a checkpoint whose name says its format",
        name="serve.sh",
        text="vllm serve RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w8a8 --quantization compressed-tensors -pp 2 -tp 4\n",
        settings=SERVED,
        reads={"model": "llama3.1-70b", "placement": {"tp": 4, "pp": 2, "precision": "w8a8"}},
    ),
    RealFile(
        tool="vLLM",
        source="made up here: copies of busy experts, and the model's own layer of drafts",
        name="serve.sh",
        text='vllm serve deepseek-ai/DeepSeek-R1 --data-parallel-size 16 --data-parallel-size-local 16 --enable-expert-parallel \\\n\
  --enable-eplb --eplb-config \'{"num_redundant_experts": 32}\' \\\n\
  --speculative-config \'{"method": "deepseek_mtp", "num_speculative_tokens": 1}\'\n',
        settings=SERVED,
        reads={
            "model": "deepseek-v3",
            "placement.redundant_experts": 32,
            "placement.precision": "fp8_block",
            "speculation": {"kind": "mtp", "tokens": 1},
        },
    ),
    RealFile(
        tool="SGLang",
        source="made up here: the model's own layer drafts in a chain",
        name="serve.sh",
        text="python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1-0528 --tp 8 --speculative-algorithm EAGLE \\\n\
  --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4\n",
        settings=SERVED,
        reads={"model": "deepseek-v3", "speculation": {"kind": "mtp", "tokens": 3}},
    ),
    RealFile(
        tool="SGLang",
        source="made up here: a tree of drafts",
        name="serve.sh",
        text="python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm EAGLE3 \\\n\
  --speculative-draft-model-path some/EAGLE3-head --speculative-num-steps 3 --speculative-eagle-topk 4\n",
        settings=SERVED,
        refused=("speculative_eagle_topk: a tree of drafts is not modelled",),
    ),
    RealFile(
        tool="vLLM",
        source="made up here: a checkpoint whose format nothing says, and drafts of an unknown kind",
        name="serve.sh",
        text='vllm serve meta-llama/Llama-3.1-8B-Instruct -q compressed-tensors --eplb-config \'[1]\' \\\n\
  --speculative-config \'{"method": "medusa", "num_speculative_tokens": 4}\'\n',
        settings=SERVED,
        refused=(
            r"quantization: compressed-tensors: the checkpoint says its bits; give --set placement\.precision",
            r"eplb_config: '\[1\]' is no JSON object",
            "speculative_config: 'medusa': speculation of this kind is not modelled; ngram",
        ),
    ),
    RealFile(
        tool="vLLM",
        source="made up here: a container's tag is the version of its engine",
        name="serve.sh",
        text="docker run vllm/vllm-openai:v0.11.0 --model Qwen/Qwen3-30B-A3B-FP8\n",
        settings=SERVED,
        reads={"engine.version": "0.11.0", "placement.precision": "fp8_block"},
    ),
    RealFile(
        tool="vLLM",
        source="made up here: weights that were published in four bits, written out in sixteen",
        name="serve.sh",
        text="vllm serve unsloth/gpt-oss-20b-BF16\n",
        settings=SERVED,
        reads={"placement": {"tp": 1, "precision": "bf16"}},
    ),
    RealFile(
        tool="vLLM",
        source="made up here: four bits of a dense model",
        name="serve.sh",
        text="vllm serve nvidia/Llama-3.3-70B-Instruct-FP4 --tensor-parallel-size 4\n",
        settings=(*SERVED[1:], "hardware=b200"),
        reads={"placement": {"tp": 4, "precision": "nvfp4"}},
    ),
    RealFile(
        tool="vLLM",
        source="made up here: graphs that a dotted option switches off",
        name="serve.sh",
        text="vllm serve meta-llama/Llama-3.1-8B-Instruct --compilation-config.cudagraph_mode NONE\n",
        settings=SERVED,
        refused=("compilation_config: compilation or CUDA graphs switched off",),
    ),
    RealFile(
        tool="vLLM",
        source="made up here: bitsandbytes' weights in a server",
        name="serve.sh",
        text="vllm serve unsloth/llama-3-8b-Instruct-bnb-4bit\n",
        settings=SERVED,
        refused=("model: unsloth/llama-3-8b-Instruct-bnb-4bit: bitsandbytes",),
    ),
    RealFile(
        tool="SGLang",
        source="made up here: the model's own layer as a checkpoint, and steps between two looks for requests",
        name="serve.sh",
        text="python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --scheduler-recv-interval 10 --speculative-algorithm NEXTN --speculative-draft-model-path lmsys/DeepSeek-V3-NextN --speculative-num-steps 1 --speculative-eagle-topk 1\n",
        settings=SERVED,
        reads={"engine.recv_interval": 10, "speculation": {"kind": "mtp", "tokens": 1}},
    ),
    RealFile(
        tool="LLaMA-Factory",
        source="made up here: a checkpoint in four bits, whose base would be trained in sixteen",
        name="sft.yaml",
        text=LF_SFT.replace("meta-llama/Meta-Llama-3-8B-Instruct", "unsloth/llama-3-8b-Instruct-bnb-4bit"),
        beside={"ds_z3_config.json": ZERO3},
        settings=NODE,
        refused=("has weights in fewer bits; give --set model=llama3-8b, and adapters.base",),
    ),
)
RECIPE = (
    "uv run --no-sync python scripts/training/run_recipe.py --recipe gpt_oss_20b_pretrain_config model.seq_length=4096 \\\n\
  train.global_batch_size=128 train.micro_batch_size=1 dataset.sequence_length=4096 model.tensor_model_parallel_size=2 \\\n\
  model.pipeline_model_parallel_size=4 model.expert_model_parallel_size=4 model.sequence_parallel=True \\\n\
  model.context_parallel_size=1 mixed_precision=bf16_mixed\n"
)
RECIPES = (
    RealFile(
        tool="Megatron-Bridge",
        source="NVIDIA-NeMo/Megatron-Bridge examples/models/gpt_oss/slurm_pretrain.sh 13538f88, the first of its plans",
        name="pretrain.sh",
        text=RECIPE,
        settings=(*H100, "cluster.nodes=4", "model=gpt-oss-20b"),
        refused=("recipe: 'gpt_oss_20b_pretrain_config': sets in its Python what the overrides do not",),
    ),
    RealFile(
        tool="Megatron-Bridge",
        source="the same, with what its recipe sets left out",
        name="pretrain.sh",
        text=RECIPE,
        settings=(*H100, "cluster.nodes=4", "model=gpt-oss-20b"),
        accept=("recipe",),
        reads={
            "plan": {"tp": 2, "pp": 4, "ep": 4, "sp": True, "zero": 1, "dp": 4},
            "batch": {"global": 128, "micro": 1, "seq_len": 4096},
            "precision": "bf16",
        },
    ),
)
UNKNOWN = (
    RealFile(
        tool="no tool",
        source="made up here: a workflow of GitHub",
        name="ci.yaml",
        text="name: ci\non: [push]\njobs: {test: {runs-on: ubuntu-latest}}\n",
        settings=NODE,
        refused=(r"no tool that is read has its keys \(name, True, jobs",),
    ),
)
READ_WHOLE = (
    RealFile(
        tool="LLaMA-Factory",
        source="hiyouga/LLaMA-Factory README: a launch of a file, with the files that it names",
        name="run.sh",
        text="FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=0 llamafactory-cli train examples/train_full/llama3_full_sft.yaml\n",
        beside={"llama3_full_sft.yaml": LF_SFT, "ds_z3_config.json": ZERO3},
        settings=H100,
        reads={"plan": {"zero": 3, "recompute": "full", "dp": 16}, "batch.global": 32, "precision": "bf16"},
    ),
    RealFile(
        tool="LLaMA-Factory",
        source="made up here after its README: the environment of a launch of a file decides the GPUs",
        name="run.sh",
        text="CUDA_VISIBLE_DEVICES=0 python eval.py\n\
CUDA_VISIBLE_DEVICES=0,1 CUDA_LAUNCH_BLOCKING=1 llamafactory-cli train llama3_full_sft.yaml\n",
        beside={"llama3_full_sft.yaml": LF_SFT, "ds_z3_config.json": ZERO3},
        settings=NODE,
        reads={
            "plan.dp": 2,
            "batch.global": 4,
            "cluster.gpus_per_node": 2,
            "execution.synchronous_launches": True,
        },
    ),
    RealFile(
        tool="LLaMA-Factory",
        source="made up here after its README: torchrun's sizes by the environment",
        name="run.sh",
        text="NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train llama3_full_sft.yaml\n",
        beside={"llama3_full_sft.yaml": LF_SFT, "ds_z3_config.json": ZERO3},
        settings=H100,
        reads={"plan.dp": 8, "batch.global": 16, "cluster.nodes": 2, "cluster.gpus_per_node": 4},
    ),
    RealFile(
        tool="torchtitan",
        source="made up here after its run_train.sh: a launch that changes one key of a file",
        name="run.sh",
        text="#SBATCH -N 16\nsrun torchrun --nnodes=$SLURM_JOB_NUM_NODES --nproc_per_node=4 ./torchtitan/train.py \\\n\
    --job.config_file ./llama3_8b.toml --training.local_batch_size 2\n",
        settings=H100,
        refused=(
            r"job\.config_file: names './llama3_8b.toml', which decides further arguments; give that file as well",
        ),
    ),
    RealFile(
        tool="torchtitan",
        source="the same with its file, which sets another microbatch",
        name="run.sh",
        text="#SBATCH -N 16\nsrun torchrun --nnodes=$SLURM_JOB_NUM_NODES --nproc_per_node=4 ./torchtitan/train.py \\\n\
    --job.config_file ./llama3_8b.toml --training.local_batch_size 2\n",
        beside={
            "llama3_8b.toml": '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
        },
        settings=H100,
        reads={"model": "llama3-8b", "batch.micro": 2, "batch.seq_len": 8192, "plan.dp": 64},
    ),
    RealFile(
        tool="Axolotl",
        source="made up here after its README: a launch that changes one key of a file",
        name="run.sh",
        text="axolotl train conf/lora.yml --micro-batch-size 4\n",
        beside={
            "lora.yml": "base_model: meta-llama/Meta-Llama-3-8B\nadapter: lora\nlora_r: 8\nmicro_batch_size: 1\n\
gradient_accumulation_steps: 2\nsequence_len: 2048\nbf16: true\n"
        },
        settings=NODE,
        reads={"model": "llama3-8b", "batch.micro": 4, "batch.global": 64, "adapters.rank": 8},
    ),
    RealFile(
        tool="LLaMA-Factory",
        source="hiyouga/LLaMA-Factory examples/train_qlora/llama3_lora_sft_otfq.yaml, its data and output left out",
        name="llama3_lora_sft_otfq.yaml",
        text="model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nquantization_bit: 4\nquantization_method: bnb\ntrust_remote_code: true\n\
stage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 8\nlora_target: all\ntemplate: llama3\ncutoff_len: 2048\n\
per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nlearning_rate: 1.0e-4\nbf16: true\n",
        settings=NODE,
        reads={
            "adapters": {"kind": "lora", "rank": 8, "targets": "all", "base": "nf4", "double_quantised": True},
            "batch.global": 64,
        },
    ),
    RealFile(
        tool="DeepSpeed",
        source="made up here: both halves are stated, one of them off",
        name="zero2.json",
        text='{"bf16": {"enabled": true}, "fp16": {"enabled": false}, "zero_optimization": {"stage": 2, "overlap_comm": true}, \
"gradient_accumulation_steps": 4, "train_micro_batch_size_per_gpu": 2}',
        settings=(*NODE, "model=llama3-8b", "batch.seq_len=2048"),
        reads={"precision": "bf16", "plan.zero": 2, "batch.global": 64},
    ),
    RealFile(
        tool="Hugging Face TrainingArguments",
        source="made up here: FSDP's settings as a dictionary of a call",
        name="train.py",
        text='model = AutoModelForCausalLM.from_pretrained("meta-llama/Meta-Llama-3-8B", torch_dtype=torch.bfloat16)\n\
args = SFTConfig(output_dir="out", per_device_train_batch_size=2, gradient_accumulation_steps=4, bf16=True, max_length=4096, packing=True,\n\
    fsdp="full_shard auto_wrap", fsdp_config={"fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer", "activation_checkpointing": True},\n\
    gradient_checkpointing_kwargs={"use_reentrant": False}, use_liger_kernel=True)\n',
        settings=NODE,
        reads={"plan": {"zero": 3, "recompute": "full", "dp": 8}, "execution.fuse_loss": True, "batch.global": 64},
    ),
    RealFile(
        tool="vLLM",
        source="made up here after vLLM's documentation: its container image",
        name="run.sh",
        text="docker run --runtime nvidia --gpus all -v ~/models:/models -p 8000:8000 --ipc=host \\\n\
    vllm/vllm-openai:latest --model meta-llama/Meta-Llama-3-8B --max_model_len 1024 --gpu_memory_utilization 0.7\n",
        settings=SERVED,
        reads={"model": "llama3-8b", "engine": {"name": "vllm-v1", "max_model_len": 1024, "memory_utilization": 0.7}},
    ),
    RealFile(
        tool="Hugging Face TrainingArguments",
        source="made up here after a training of LLaVA: DeepSpeed's launcher counts the GPUs",
        name="finetune.sh",
        text="deepspeed --include=localhost:0,1,2,3 --master_port 29501 train/train_mem.py --deepspeed scripts/ds_z3_config.json \\\n\
    --model_name_or_path meta-llama/Meta-Llama-3-8B --per_device_train_batch_size 16 --gradient_accumulation_steps 2 \\\n\
    --model_max_length 2048 --gradient_checkpointing True --bf16 True --output_dir out\n",
        beside={"ds_z3_config.json": ZERO3},
        settings=H100,
        reads={"plan": {"zero": 3, "recompute": "full", "dp": 4}, "batch.global": 128, "cluster.gpus_per_node": 4},
    ),
    RealFile(
        tool="LLaMA-Factory",
        source="made up here after its README: the environment leaves one GPU",
        name="train.sh",
        text="CUDA_VISIBLE_DEVICES=0 llamafactory-cli train --stage sft --do_train --model_name_or_path meta-llama/Meta-Llama-3-8B \\\n\
    --dataset alpaca_gpt4_en --template default --finetuning_type lora --lora_target q_proj,v_proj --output_dir out \\\n\
    --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --cutoff_len 1024 --learning_rate 5e-5 --fp16\n\
CUDA_VISIBLE_DEVICES=0,1 python evaluate.py\n",
        settings=NODE,
        reads={"cluster.gpus_per_node": 1, "batch.global": 16, "precision": "fp16"},
    ),
    RealFile(
        tool="Axolotl",
        source="axolotl-ai-cloud/axolotl examples/distributed-parallel/llama-3_1-8b-hsdp-tp.yaml 254e2bec, whose plugin's switch is on by itself",
        name="hsdp-tp.yaml",
        text="base_model: meta-llama/Llama-3.1-8B\nplugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n\
dp_shard_size: 4\ndp_replicate_size: 2\ntensor_parallel_size: 2\nfsdp_version: 2\nfsdp_config:\n  offload_params: false\n\
  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  reshard_after_forward: true\ndatasets:\n  - path: tatsu-lab/alpaca\n    type: alpaca\n\
sequence_len: 2048\nsample_packing: true\nflash_attention: true\ngradient_accumulation_steps: 1\nmicro_batch_size: 1\nnum_epochs: 2\n\
optimizer: adamw_torch_fused\nbf16: true\ntf32: true\n",
        settings=(*H100, "cluster.nodes=2"),
        reads={"plan": {"tp": 2, "zero": 3, "shard": 4, "dp": 8}, "batch.global": 8, "execution.fuse_loss": True},
    ),
    RealFile(
        tool="torchtitan",
        source="pytorch/torchtitan torchtitan/models/deepseek_v3/train_configs/deepseek_v3_671b.toml 0a8d2b0a: the loss alone is compiled",
        name="deepseek_v3_671b.toml",
        text='[model]\nname = "deepseek_v3"\nflavor = "671B"\n[optimizer]\nname = "AdamW"\n[training]\nlocal_batch_size = 4\nseq_len = 4096\n\
[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 1\nenable_async_tensor_parallel = false\n\
pipeline_parallel_degree = 1\npipeline_parallel_schedule = "Interleaved1F1B"\nexpert_parallel_degree = 1\nexpert_tensor_parallel_degree = 1\n\
[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op"\n[compile]\nenable = true\ncomponents = ["loss"]\n\
[quantize.dense.float8]\nenable_fsdp_float8_all_gather = false\nfilter_fqns = ["output", "router.gate"]\n',
        settings=(*H100, "cluster.nodes=32"),
        reads={
            "plan": {"zero": 3, "recompute": "ops", "dp": 256},
            "precision": "bf16",
            "execution": {"framework": "fsdp", "fuse_loss": True},
        },
    ),
    RealFile(
        tool="verl",
        source="volcengine/verl examples/grpo_trainer/run_qwen3-235b_megatron_96gb.sh 144f58a5, without its offloaded optimizer: one replica",
        name="run_qwen3-235b.sh",
        text='max_prompt_length=$((1024 * 2))\nmax_response_length=$((1204 * 8))\ninfer_len=$(((max_prompt_length + max_response_length) * 1))\n\
NNODES=${NNODES:-4}\nRAY_DATA_HOME=${RAY_DATA_HOME:-"${HOME}/verl"}\nMODEL_PATH=$RAY_DATA_HOME/models/Qwen3-235B-A22B\nEP=${EP:-4}\n\
python3 -m verl.trainer.main_ppo --config-path=config --config-name=\'ppo_megatron_trainer.yaml\' \\\n\
 data.max_prompt_length=${max_prompt_length} data.max_response_length=${max_response_length} data.train_batch_size=32 \\\n\
 actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=8 \\\n\
 algorithm.adv_estimator=grpo actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.model.path="${MODEL_PATH}" \\\n\
 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 \\\n\
 actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True \\\n\
 actor_rollout_ref.actor.ppo_max_token_len_per_gpu=${infer_len} actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=${infer_len} \\\n\
 actor_rollout_ref.actor.ppo_mini_batch_size=16 actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=8 \\\n\
 actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 actor_rollout_ref.actor.megatron.expert_model_parallel_size=$EP \\\n\
 actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=1 \\\n\
 +actor_rollout_ref.actor.megatron.override_transformer_config.account_for_loss_in_pipeline_split=True \\\n\
 +actor_rollout_ref.actor.megatron.override_transformer_config.account_for_embedding_in_pipeline_split=True \\\n\
 trainer.n_gpus_per_node=8 trainer.nnodes="${NNODES}"\n',
        settings=RL_DATA,
        reads={
            "plan": {"tp": 4, "sp": True, "pp": 8, "ep": 4, "dp": 1, "zero": 0, "count_embedding": 1, "count_loss": 1},
            "rl.passes": {"max_tokens": 11680},
            "rl.response_max": 9632,
        },
    ),
    RealFile(
        tool="slime",
        source="THUDM/slime scripts/run-llama3.1-8B.sh c14d5398, whose launches wait for their kernels",
        name="run-llama3.1-8B.sh",
        text="export CUDA_LAUNCH_BLOCKING=1\nray job submit --address=http://127.0.0.1:8265 -- python3 train.py --actor-num-nodes 1 \\\n\
 --actor-num-gpus-per-node 4 --colocate --hf-checkpoint /models/Llama-3.1-8B-Instruct --num-rollout 3000 --rollout-batch-size 64 \\\n\
 --n-samples-per-prompt 8 --rollout-max-prompt-len 256 --rollout-max-response-len 1792 --global-batch-size 512 \\\n\
 --tensor-model-parallel-size 2 --sequence-parallel --use-dynamic-batch-size --max-tokens-per-gpu 9216 --rollout-num-gpus-per-engine 1\n",
        settings=RL_DATA,
        reads={"plan": {"tp": 2, "sp": True, "dp": 2}, "execution.synchronous_launches": True, "rl.mini_batch": 64},
    ),
    RealFile(
        tool="prime-rl",
        source="PrimeIntellect-ai/prime-rl examples/advanced/qwen3-30b-a3b/math.toml 0143423e, which leaves the size of its groups to its release",
        name="math.toml",
        text='seq_len = 32768\n[model]\nname = "Qwen/Qwen3-30B-A3B"\n[deployment]\ntype = "multi_node"\nnum_train_nodes = 2\nnum_infer_nodes = 2\n\
[trainer.model]\nep = 8\n[orchestrator]\nbatch_size = 512\nmax_off_policy_steps = 8\n[inference.parallel]\ntp = 8\n',
        settings=(*RL_DATA, "rl.prompt_max=1024", "rl.response_max=31744"),
        refused=("orchestrator.group_size: not stated",),
    ),
    RealFile(
        tool="SGLang",
        source="tutu329/server-install sh/ds-v3-671b-8.sh: a checkpoint in fp8, and a cache held small",
        name="ds-v3-671b-8.sh",
        text="python -m sglang.launch_server --served-model-name=ds-v3 --model-path=/models/DeepSeek-V3-0324 --trust-remote-code \\\n\
--mem-fraction-static=0.9 --tp=8 --max-total-tokens=65000 --max-running-requests=64\n",
        settings=SERVED,
        refused=("max_total_tokens: '65000': a cache that is held smaller",),
    ),
    RealFile(
        tool="SGLang",
        source="the same, its cache accepted as large as the memory has room for",
        name="ds-v3-671b-8.sh",
        text="python -m sglang.launch_server --model-path=/models/DeepSeek-V3-0324 --mem-fraction-static=0.9 --tp=8 --max-total-tokens=65000\n",
        settings=SERVED,
        accept=("max_total_tokens",),
        reads={"model": "deepseek-v3", "placement": {"tp": 8, "precision": "fp8_block"}},
    ),
    RealFile(
        tool="SGLang",
        source="made up here: replicas that share GPUs, by the short names of their options",
        name="serve.sh",
        text="python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V2-Lite --tp 8 --dp 4 --enable-dp-attention\n",
        settings=SERVED,
        reads={"placement": {"tp": 2, "dp": 4, "precision": "bf16"}},
    ),
    RealFile(
        tool="vLLM",
        source="made up here: a server without CUDA graphs, by its compilation config; and a loop over arguments of which there are none",
        name="serve.sh",
        text='DP=2\nwhile [[ $# -gt 0 ]]; do\n    case $1 in\n        --dp)\n            DP="$2"\n            shift 2\n            ;;\n    esac\ndone\n\
vllm serve meta-llama/Meta-Llama-3.1-8B-Instruct --data-parallel-size $DP --compilation-config \'{"cudagraph_mode": "NONE"}\'\n',
        settings=SERVED,
        refused=("compilation_config: compilation or CUDA graphs switched off",),
    ),
)
REAL_FILES = (
    *TRL,
    *TRAINERS,
    *FACTORY,
    *AXOLOTLS,
    *TORCHTUNE,
    *TORCHTITAN,
    *MEGATRON,
    *REINFORCED,
    *SERVERS,
    *RECIPES,
    *UNKNOWN,
    *READ_WHOLE,
)
