"""Other tools' files as run configs: what real files look like, what is left unread, and what is wrong."""

from pathlib import Path
from typing import Any

import pytest

import predict
from predict import kinds
from predict.kinds import KINDS, unknown_settings
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS

EXAMPLES = CONFIGS.parent / "docs" / "examples" / "other_tools"
H100 = ["cluster.hardware=h100-sxm"]
NODE = [*H100, "cluster.nodes=1", "cluster.gpus_per_node=8"]
SIZES = "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention \
--num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \
--position-embedding-type rope --vocab-size 128256"


def imported(tmp_path: Path, text: str, *settings: str, name: str = "run.sh") -> dict[str, Any]:
    (tmp_path / name).write_text(text)
    return dict(predict.import_config([tmp_path / name], [*H100, *settings]).document.content)


def test_a_launch_script_with_variables_and_arrays() -> None:
    read = predict.import_config([EXAMPLES / "pretrain.sh"], H100)
    run = predict.load(read.document)
    plan = run.plan
    assert (run.model.name, run.cluster.world_size, run.precision) == ("llama3-70b", 64, "bf16")
    assert (plan.tp, plan.sp, plan.pp, plan.vpp, plan.cp, plan.dp, plan.zero) == (4, True, 4, 4, 2, 2, 1)
    assert set(read.not_read) == {"tokenizer_type", "lr", "train_iters", "data_path"}
    assert predict.load(read.document).batch.global_ == 128


def test_torchtitan_shards_over_the_ranks_that_are_left() -> None:
    run = predict.load(predict.import_config([EXAMPLES / "llama3_70b.toml"], [*H100, "cluster.nodes=8"]).document)
    assert (run.plan.tp, run.plan.dp, run.plan.zero, run.plan.recompute) == (8, 8, 3, "full")
    assert (run.batch.micro, run.batch.global_, run.execution.framework) == (2, 16, "torchtitan")


def test_primus_presets_and_variables() -> None:
    read = predict.import_config([EXAMPLES / "primus.yaml"], ["cluster.hardware=mi300x", "cluster.nodes=1"])
    run = predict.load(read.document)
    assert (run.model.name, run.plan.ep, run.batch.global_, run.batch.micro) == ("mixtral-8x7b", 8, 256, 2)
    assert run.execution.fuse_gradients is False
    assert {name.rpartition(".")[2] for name in read.not_read} == {"enable_primus_turbo", "lr"}
    assert "presets" in read.notes[0]


def test_primus_changes_sizes_of_its_preset(tmp_path: Path) -> None:
    text = (
        (EXAMPLES / "primus.yaml")
        .read_text()
        .replace("micro_batch_size: 2", "micro_batch_size: 2\n      num_layers: 4")
    )
    content = imported(tmp_path, text, "cluster.nodes=1", name="primus.yaml")
    assert content["model"]["num_hidden_layers"] == 4


def test_megatron_yaml_flat_or_in_sections(tmp_path: Path) -> None:
    flat = "num_layers: 32\nhidden_size: 4096\nnum_attention_heads: 32\n"
    rest = "micro_batch_size: 1\nglobal_batch_size: 8\nseq_length: 4096\nbf16: true\n"
    sections = "model:\n  num_layers: 32\n  hidden_size: 4096\n  num_attention_heads: 32\ntraining:\n" + "".join(
        f"  {line}\n" for line in rest.splitlines()
    )
    settings = ("model=llama3-8b", "cluster.nodes=1")
    first, second = (imported(tmp_path, text, *settings, name="run.yaml") for text in (flat + rest, sections))
    assert first == second
    assert first["plan"]["dp"] == 8


def test_deepspeed_json_alone_needs_what_it_does_not_say(tmp_path: Path) -> None:
    text = '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, \
"zero_optimization": {"stage": 2, "overlap_comm": false}, "bf16": {"enabled": true}, "steps_per_print": 10}'
    with pytest.raises(ConfigError, match=r"model: no file says it(.|\n)*batch\.seq_len: no file says it"):
        imported(tmp_path, text, name="ds.json")
    content = imported(tmp_path, text, "model=llama3-8b", "batch.seq_len=2048", name="ds.json")
    assert content["plan"] == {"zero": 2, "dp": 8}
    assert content["batch"] == {"global": 32, "micro": 2, "seq_len": 2048}
    assert content["execution"]["framework"] == "deepspeed"
    assert content["cluster"] == {"hardware": "h100-sxm", "nodes": 1, "gpus_per_node": 8}


def test_two_files_of_one_run_must_agree(tmp_path: Path) -> None:
    (tmp_path / "args.sh").write_text(f"x.py --deepspeed {SIZES} --micro-batch-size 1 --seq-length 2048 --bf16")
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}}')
    with pytest.raises(ConfigError, match=r"batch\.micro: 1 in one file and 2 in another"):
        predict.import_config([tmp_path / "args.sh", tmp_path / "ds.json"], H100)


def test_older_arguments_of_megatron_deepspeed(tmp_path: Path) -> None:
    sizes = (
        "--num-layers 40 --hidden-size 5120 --num-attention-heads 40 --vocab-size 50304 --max-position-embeddings 2048"
    )
    older = "--num-experts 1 --moe-expert-parallel-size 1 --checkpoint-activations --deepspeed-activation-checkpointing"
    rest = "--micro-batch-size 4 --seq-length 2048 --fp16 --tensor-model-parallel-size 8"
    content = imported(tmp_path, f"x.py --deepspeed {sizes} {older} {rest}", "cluster.nodes=2")
    assert (content["plan"]["recompute"], content["plan"]["dp"], content["precision"]) == ("full", 2, "fp16")
    assert content["execution"]["framework"] == "megatron-deepspeed"
    assert "experts" not in str(content["model"])


@pytest.mark.parametrize(
    ("arguments", "model", "notes", "not_read"),
    [
        ("--rotary-base 500000 --norm-epsilon 1e-5", "llama3-8b", (), {}),
        (
            "--rotary-base 1000000",
            "llama3-8b",
            ("rotary_base: 1000000, and 500000 in llama3-8b; it changes no cost",),
            {},
        ),
        ("--rotary-base $BASE", "llama3-8b", (), {"rotary_base": "'$BASE'"}),
        ("--num-layers 30 --rotary-base 1000000 --norm-epsilon 1e-6", (1_000_000, 1e-6), (), {}),
    ],
)
def test_the_angles_and_the_epsilon_are_kept(
    arguments: str, model: Any, notes: tuple[str, ...], not_read: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "run.sh").write_text(f"{SIZES} --micro-batch-size 1 --seq-length 4096 {arguments}")
    read = predict.import_config([tmp_path / "run.sh"], NODE)
    found = read.document.content["model"]
    assert (found if isinstance(found, str) else (found["rope_theta"], found["rms_norm_eps"])) == model
    assert (read.notes, read.not_read) == (notes, not_read)


def test_a_vocabulary_left_to_a_tokenizer_is_not_guessed(tmp_path: Path) -> None:
    rest = "--micro-batch-size 1 --seq-length 4096"
    sizes = SIZES.replace(" --vocab-size 128256", f" {rest}")
    for size, larger in (
        ("32 --hidden-size 4096", "126 --hidden-size 16384"),
        ("14336", "53248"),
        ("heads 32", "heads 128"),
    ):
        sizes = sizes.replace(size, larger)
    (tmp_path / "run.sh").write_text(sizes)
    read = predict.import_config([tmp_path / "run.sh"], NODE)
    assert read.notes == ("vocab_size: not given; taken from llama3.1-405b, the shipped model with the other sizes",)
    text = (EXAMPLES / "pretrain.sh").read_text().replace(" --vocab-size 128256", "")
    with pytest.raises(ConfigError, match=r"vocab_size: missing, and llama2-70b and llama3-70b and llama3\.1-70b and"):
        imported(tmp_path, text)


VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 data.max_prompt_length=512 \\
  data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.actor.ppo_mini_batch_size=32 \\
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.rollout.n=8 \\
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32 trainer.n_gpus_per_node=8 trainer.nnodes=1 \\
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu="""
OF_DATA = ("rl.prompt=constant:200", "rl.response=lognormal:mean=700,p90=900")


def test_what_adapters_leave_out_is_said(tmp_path: Path) -> None:
    text = "base_model: meta-llama/Meta-Llama-3-8B\nadapter: lora\nlora_dropout: 0.05\nmicro_batch_size: 1\nsequence_len: 2048\nbf16: true\n"
    (tmp_path / "lora.yml").write_text(text)
    gpus = [*H100, "cluster.nodes=1", "cluster.gpus_per_node=8"]
    assert any(
        note.startswith("lora_dropout: 0.05") for note in predict.import_config([tmp_path / "lora.yml"], gpus).notes
    )
    (tmp_path / "lora.yml").write_text(f"{text}lora_modules_to_save: [embed_tokens]\n")
    with pytest.raises(
        ConfigError, match="beside adapters are not modelled; --accept lora_modules_to_save reads the rest"
    ):
        predict.import_config([tmp_path / "lora.yml"], gpus)


FSDP = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_machines: 1
num_processes: 8
mixed_precision: bf16
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_activation_checkpointing: true}
"""
LAUNCHED = "accelerate launch --config_file conf/fsdp.yaml --num_processes 4 {} sft.py --per_device_train_batch_size 2 \
--gradient_accumulation_steps 2 --model_name_or_path meta-llama/Meta-Llama-3-8B --learning_rate 1e-5 --bf16 True --max_length 2048"


def read_together(tmp_path: Path, files: dict[str, str], *settings: str) -> Any:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return predict.import_config([tmp_path / name for name in files], [*H100, *settings])


def test_options_of_accelerate_launch_hold_over_the_file_that_they_name(tmp_path: Path) -> None:
    def plan(*options: str) -> tuple[Any, ...]:
        files = {"run.sh": LAUNCHED.format(" ".join(options)), "fsdp.yaml": FSDP}
        content = read_together(tmp_path, files).document.content
        return (
            content["plan"].get("zero", 0),
            content["plan"].get("recompute", "none"),
            content["cluster"]["gpus_per_node"],
        )

    assert plan() == (3, "full", 4)
    assert plan("--fsdp_sharding_strategy", "SHARD_GRAD_OP", "--num_processes", "2") == (2, "full", 2)
    assert plan("--multi_gpu", "--fsdp_activation_checkpointing", "false") == (0, "none", 4)
    assert plan("--use_deepspeed", "--zero_stage", "3")[0] == 3


def test_a_file_of_arguments_that_is_not_there_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"config_file: names 'conf/fsdp\.yaml', which decides .*; give that file as well"
    ):
        imported(tmp_path, LAUNCHED.format(""))


def test_a_server_reads_its_file_of_arguments(tmp_path: Path) -> None:
    files = {
        "serve.sh": "vllm serve Qwen/Qwen2.5-7B --config conf/vllm.yaml --max-num-seqs 64",
        "vllm.yaml": "tensor-parallel-size: 2\nmax-num-seqs: 256\nno-enable-prefix-caching: true\nport: 8000\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    load = ["hardware=h100-sxm", "load.rate=4", "load.prompt=500", "load.output=200"]
    content = predict.import_config([tmp_path / name for name in files], load).document.content
    assert (content["model"], content["placement"]["tp"]) == ("qwen2.5-7b", 2)
    assert content["engine"] == {"max_num_seqs": 64, "prefix_caching": False, "name": "vllm-v1"}
    (tmp_path / "serve.sh").write_text(f"{files['serve.sh']} -tp 4 --enable-prefix-caching")
    content = predict.import_config([tmp_path / name for name in files], load).document.content
    assert (content["placement"]["tp"], content["engine"].get("prefix_caching", True)) == (4, True)
    sglang = {"serve.sh": "sglang serve --config c.yaml --tp 4", "c.yaml": "model-path: Qwen/Qwen2.5-7B\ntp-size: 2\n"}
    for name, text in sglang.items():
        (tmp_path / name).write_text(text)
    content = predict.import_config([tmp_path / name for name in sglang], load).document.content
    assert (content["model"], content["placement"]["tp"]) == ("qwen2.5-7b", 4)


SFT = "model_name_or_path: Qwen/Qwen2.5-7B\nbf16: true\nlearning_rate: 1e-5\nmax_seq_length: 2048\nper_device_train_batch_size: 2\n"
AXOLOTL = "base_model: NousResearch/Meta-Llama-3-8B\nmicro_batch_size: 1\nsequence_len: 2048\nbf16: true\n"


def test_a_script_writes_the_file_that_it_names(tmp_path: Path) -> None:
    text = (
        f"cat > c/sft.yaml <<EOF\n{SFT}EOF\ntorchrun --nproc_per_node 4 sft.py --config c/sft.yaml --max_length 1024\n"
    )
    assert imported(tmp_path, text, "cluster.nodes=1")["batch"] == {"micro": 2, "seq_len": 1024, "global": 8}


def test_a_script_of_ones_own_beside_others(tmp_path: Path) -> None:
    """Beside a known trainer, scripts of its file or of none are other steps of the work; without one, each is asked about."""
    text = "python -m axolotl.cli.preprocess ax.yml --debug\naxolotl train ax.yml --micro_batch_size 4\ntorchrun eval.py --tasks 3\n"
    read = read_together(tmp_path, {"run.sh": text, "ax.yml": AXOLOTL}, "cluster.nodes=1")
    assert read.document.content["batch"]["micro"] == 4
    text = "torchrun -m pretrain_gpt --x 1\ntorchrun --nproc_per_node 4 sft.py --config sft.yaml --max_length 1024\n"
    with pytest.raises(ConfigError, match=r"x: '1': is not a key of pretrain_gpt"):
        read_together(tmp_path, {"run.sh": text, "sft.yaml": SFT}, "cluster.nodes=1")


def test_a_script_of_ones_own_in_grpo(tmp_path: Path) -> None:
    command = "accelerate launch --multi_gpu --num_processes 8 src/grpo.py --config conf/grpo.yaml --num_generations 8"
    files = {"run.sh": command, "grpo.yaml": GRPO.format(mode="colocate", more="")}
    assert read_together(tmp_path, files, *OF_STEP[2:]).document.content["rl"]["n"] == 8


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for folder, text in (("a", FSDP), ("b", FSDP.replace("FULL_SHARD", "SHARD_GRAD_OP"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "fsdp.yaml").write_text(text)

    def read(named: str, *folders: str) -> Any:
        (tmp_path / "run.sh").write_text(LAUNCHED.format("").replace("conf/fsdp.yaml", named))
        files = [tmp_path / "run.sh", *(tmp_path / folder / "fsdp.yaml" for folder in folders)]
        return predict.import_config(files, H100).document.content["plan"]["zero"]

    assert (read("x/fsdp.yaml", "a"), read("x/fsdp.yaml", "b")) == (3, 2)
    with pytest.raises(ConfigError, match=r"config_file: 'x/fsdp\.yaml' fits .*a/fsdp\.yaml and .*b/fsdp\.yaml alike"):
        read("x/fsdp.yaml", "a", "b")
    with pytest.raises(ConfigError, match=r"plan\.zero: .* in one file and .* in another"):
        read("b/fsdp.yaml", "a", "b")


def test_a_folder_of_scripts_is_no_program(tmp_path: Path) -> None:
    text = LAUNCHED.format("").replace("accelerate launch", "torchrun --log-dir ${SCRIPT_DIR}/logs --nproc-per-node 2")
    read = read_together(
        tmp_path, {"run.sh": text.replace("--config_file conf/fsdp.yaml --num_processes 4", "")}, "cluster.nodes=1"
    )
    assert read.document.content["cluster"]["gpus_per_node"] == 2


def test_an_assumed_number_of_gpus_is_noted(tmp_path: Path) -> None:
    text = LAUNCHED.format("").replace("accelerate launch --config_file conf/fsdp.yaml --num_processes 4", "python")
    read = read_together(tmp_path, {"run.sh": text}, "cluster.nodes=1")
    assert any(note.startswith("cluster.gpus_per_node: no file says it; 8 are taken") for note in read.notes)
    read = read_together(tmp_path, {"run.sh": text}, "plan.dp=4")
    assert any("4 are taken, as the plan has ranks" in note for note in read.notes)
    read = read_together(tmp_path, {"run.sh": text}, "cluster.nodes=1", "cluster.gpus_per_node=4")
    assert not any("gpus_per_node" in note for note in read.notes)


GRPO = """model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
bf16: true
use_vllm: true
vllm_mode: {mode}
gradient_accumulation_steps: 4
per_device_train_batch_size: 8
num_generations: 16
max_prompt_length: 512
max_completion_length: 1024
beta: 0.04
vllm_gpu_memory_utilization: 0.4
{more}"""
OF_STEP = (
    "cluster.nodes=1",
    "cluster.gpus_per_node=8",
    "rl.prompt=constant:200",
    "rl.response=lognormal:mean=700,p90=900",
)


def test_trls_grpo_is_a_step_of_rl(tmp_path: Path) -> None:
    """8 samples · 4 microbatches · 8 replicas are 16 prompts of an optimizer step; engines run as many as a rank brings."""

    def step(mode: str, more: str = "", *settings: str) -> dict[str, Any]:
        return dict(imported(tmp_path, GRPO.format(mode=mode, more=more), *OF_STEP, *settings, name="grpo.yaml")["rl"])

    found = step("colocate")
    assert (found["prompts"], found["n"], found["micro"], found.get("mini_batch")) == (16, 16, 8, None)
    assert (found["prompt_max"], found["response_max"], found["reference"], found["padding"]) == (
        512,
        1024,
        True,
        "kept",
    )
    assert found["rollout"] == {"engine": "vllm-v1", "tp": 1, "memory_share": 0.4, "max_num_seqs": 32}
    several = step("colocate", "steps_per_generation: 8\nnum_iterations: 2\n")
    assert (several["prompts"], several["mini_batch"], several["epochs"]) == (32, 16, 2)
    assert step("colocate", "generation_batch_size: 512\n")["prompts"] == 32
    with pytest.raises(ConfigError, match=r"rl\.rollout\.gpus: no file says it"):
        step("server")
    assert step("server", "", "rl.rollout.gpus=4")["placement"] == "async"
    with pytest.raises(
        ConfigError,
        match=r"rl\.n: 16 to each prompt: 8 replicas generate 72 responses at once, which is not a multiple",
    ):
        step("colocate", "generation_batch_size: 72\n")
    with pytest.raises(ConfigError, match="vllm_mode: missing, and its usual value depends on TRL's version"):
        step("")


@pytest.mark.parametrize("settings", [(), ("rl.n=8", "rl.micro=4", "rl.rollout.tp=2")])
@pytest.mark.parametrize("more", ["", "vllm_importance_sampling_correction: false\n"])
def test_the_two_names_of_a_generation_of_grpo_mean_the_same(
    more: str, settings: tuple[str, ...], tmp_path: Path
) -> None:
    """TRL: steps_per_generation = generation_batch_size // (per_device_train_batch_size · processes)."""

    def step(key: str) -> dict[str, Any]:
        return dict(
            imported(tmp_path, GRPO.format(mode="colocate", more=more + key), *OF_STEP, *settings, name="grpo.yaml")[
                "rl"
            ]
        )

    responses = 8 * 8 * (4 if settings else 8)
    by_size, by_steps = step(f"generation_batch_size: {responses}\n"), step("steps_per_generation: 8\n")
    assert by_size == by_steps
    sizes = (by_size["prompts"], by_size["mini_batch"], by_size["rollout"]["max_num_seqs"], by_size["old_log_prob"])
    assert sizes == (32, 16, 64, True)
    with pytest.raises(ConfigError, match="generation_batch_size: is another way to give steps_per_generation"):
        step("generation_batch_size: 512\nsteps_per_generation: 8\n")


def test_a_step_of_grpo_that_is_not_modelled_is_said_to_be_so(tmp_path: Path) -> None:
    text = GRPO.format(mode="colocate", more="steps_per_generation: 2\n")
    with pytest.raises(
        ConfigError, match=r"are not modelled; give a step that is near, for example --set rl\.prompts=16"
    ):
        imported(tmp_path, text, *OF_STEP, name="grpo.yaml")
    assert imported(tmp_path, text, *OF_STEP, "rl.prompts=16", name="grpo.yaml")["rl"]["prompts"] == 16
    notes = predict.import_config([tmp_path / "grpo.yaml"], [*H100, *OF_STEP, "rl.prompts=16"]).notes
    assert any(note.startswith("padding: predicted to the longest") for note in notes)


NAMED = f"cluster={CONFIGS}/clusters/one-node-8xh100.yml"


@pytest.mark.parametrize("cluster", [NAMED, "cluster=one-node-8xh100"])
def test_a_cluster_that_is_named_counts_the_replicas(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "grpo.yaml").write_text(GRPO.format(mode="colocate", more=""))
    (tmp_path / "sft.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B\nbf16: true\nlearning_rate: 1e-5\nmax_length: 2048\n"
        "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\ngradient_checkpointing: false\n"
    )
    step = predict.import_config([tmp_path / "grpo.yaml"], [cluster, *OF_STEP[2:]]).document.content
    assert (step["rl"]["prompts"], step["plan"]["dp"]) == (16, 8)
    trained = predict.import_config([tmp_path / "sft.yaml"], [cluster]).document.content
    assert (trained["batch"]["global"], trained["plan"]) == (64, {"dp": 8})
    with pytest.raises(ConfigError, match=r"cluster\.nodes: 2, but cluster=one-node-8xh100 has 1; omit one of the two"):
        predict.import_config([tmp_path / "sft.yaml"], ["cluster=one-node-8xh100", "cluster.nodes=2"])
    with pytest.raises(ConfigError, match=r"--set: plan\.dp: 'four' is not a whole number"):
        predict.import_config([tmp_path / "sft.yaml"], [cluster, "plan.dp=four"])
    with pytest.raises(ConfigError, match="cluster: 'one-node-9xh100' is not the name of a shipped cluster"):
        predict.import_config([tmp_path / "sft.yaml"], ["cluster=one-node-9xh100"])


def test_an_rl_step_takes_an_optimizer_on_the_host(tmp_path: Path) -> None:
    """As verl's scripts of large mixtures have it, by Megatron's names."""
    prefix = "+actor_rollout_ref.actor.optim.override_optimizer_config."
    text = (
        f"{VERL}32 actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 {prefix}optimizer_cpu_offload=True "
        f"{prefix}optimizer_offload_fraction=0.5 {prefix}overlap_cpu_optimizer_d2h_h2d=True {prefix}use_precision_aware_optimizer=True"
    )
    read = read_together(tmp_path, {"run.sh": text}, *OF_DATA)
    content = read.document.content
    assert content["offload"] == {"optimizer_share": 0.5, "overlap_optimizer": True}
    assert content["execution"]["master_dtype"] == "remainder"
    of_gpu, half = (
        predict.rl_step(read.document, [f"offload.optimizer_share={share}", f"offload.overlap_optimizer={share > 0}"])
        for share in (0.0, 0.5)
    )
    assert half.memory.updating.terms["optimizer"] == pytest.approx(of_gpu.memory.updating.terms["optimizer"] / 2)
    assert half.time.median_us > of_gpu.time.median_us


def test_faults_of_several_files_name_the_first_and_how_many_more(tmp_path: Path) -> None:
    paths = [tmp_path / "train.sh", tmp_path / "ds.json"]
    paths[0].write_text("deepspeed train.py --deepspeed ds.json\n")
    paths[1].write_text('{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}')
    with pytest.raises(ConfigError) as refused:
        predict.import_config(paths)
    assert "train.sh and 1 more file: cluster.hardware: no file says it" in str(refused.value)
    assert "ds.json" not in str(refused.value)


def test_a_model_is_no_run(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096}')
    with pytest.raises(ConfigError, match=r"is the config\.json of a model.*--model .*config\.json --gpus"):
        predict.import_config([path])


@pytest.mark.parametrize(
    ("name", "misspelt", "meant"),
    [
        ("pretrain.sh", "plan.schedul=1f1b", "plan.schedule"),
        ("pretrain.sh", "cluster.hardwre=h100", "cluster.hardware"),
    ],
)
def test_a_misspelt_setting_is_reported_beside_what_is_missing(name: str, misspelt: str, meant: str) -> None:
    with pytest.raises(ConfigError) as raised:
        predict.import_config([EXAMPLES / name], [misspelt])
    missing, unknown = str(raised.value).splitlines()
    assert "cluster.hardware: no file says it" in missing
    assert unknown.startswith("--set: ") and f"unknown key; did you mean '{meant}'?" in unknown


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_of_a_kind_is_a_known_setting(kind: str) -> None:
    assert unknown_settings(kind, [*kinds.kind(kind).paths(), "model.vocab_size", "model"]) == []
    (fault,) = unknown_settings(kind, ["nonsense.key"])
    assert fault.path == "nonsense.key"
