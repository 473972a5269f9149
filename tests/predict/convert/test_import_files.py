"""Other tools' files as run configs: what real files look like, what is left unread, and what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import predict
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS

EXAMPLES = CONFIGS.parent / "docs" / "examples" / "other_tools"
H100 = ["cluster.hardware=h100-sxm"]
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


@pytest.mark.parametrize(
    ("stage", "offloaded", "zero"),
    [
        (2, '"offload_optimizer": {"device": "cpu"}', 2),
        (3, '"offload_param": {"device": "cpu"}', 3),
        (1, '"offload_optimizer": {"device": "cpu"}', 0),
    ],
)
def test_one_gpu_keeps_the_sharding_by_which_its_state_leaves(
    stage: int, offloaded: str, zero: int, tmp_path: Path
) -> None:
    text = f'{{"zero_optimization": {{"stage": {stage}, {offloaded}}}, "bf16": {{"enabled": true}}}}'
    settings = ("model=llama3-8b", "cluster.nodes=1", "cluster.gpus_per_node=1", "cluster.hardware=h100-sxm")
    batch = ("batch.micro=1", "batch.seq_len=2048", "batch.global=4")
    content = imported(tmp_path, text, *settings, *batch, name="ds.json")
    assert content["plan"].get("zero", 0) == zero


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
    read = predict.import_config([tmp_path / "run.sh"], [*H100, "cluster.nodes=1"])
    found = read.document.content["model"]
    assert (found if isinstance(found, str) else (found["rope_theta"], found["rms_norm_eps"])) == model
    assert (read.notes, read.not_read) == (notes, not_read)


FAULTS = {
    "--micro-batch-size $MBS": r"micro_batch_size: '\$MBS' is set outside the file; write its value in its place",
    "--micro-batch-size nan": "micro_batch_size: 'nan' is not a number",
    "--micro-batch-size 1e400": "micro_batch_size: '1e400' is not a number",
    "--micro-batch-size 1.5": "micro_batch_size: '1.5' is not a whole number",
    "--micro-batch-size -2": "micro_batch_size: '-2' is below 0",
    "--micro-batch-size two": "micro_batch_size: 'two' is not a number",
    "--micro-batch-size 1 --num-experts 8 --moe-layer-freq ([0]*3+[1]*9)": "is not a pattern of 32 layers",
    "--micro-batch-size 1 --tensor-model-parallel-size 3": r"plan\.tp",
}


@pytest.mark.parametrize("arguments", FAULTS)
def test_what_is_wrong_is_one_clear_error(arguments: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=FAULTS[arguments]):
        imported(tmp_path, f"{SIZES} --seq-length 4096 {arguments}", "cluster.nodes=1")


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
    read = predict.import_config([tmp_path / "run.sh"], [*H100, "cluster.nodes=1"])
    assert read.notes == ("vocab_size: not given; taken from llama3.1-405b, the shipped model with the other sizes",)
    text = (EXAMPLES / "pretrain.sh").read_text().replace(" --vocab-size 128256", "")
    with pytest.raises(ConfigError, match=r"vocab_size: missing, and llama2-70b and llama3-70b and llama3\.1-70b and"):
        imported(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("run.toml", "[model\n", "not valid TOML"),
        ("run.sh", "echo hello\n", "launches nothing"),
        ("notes.md", "predict x --set a=1 --json\n", "it launches nothing that is read"),
        ("pyproject.toml", '[project]\nname = "x"\n', r"no tool that is read has its keys \(project\.name\)"),
        (
            "config.json",
            '{"hidden_size": 8, "model_type": "llama"}',
            r"no tool that is read has its keys \(hidden_size, model_type\)",
        ),
        ("serve.yml", "model: llama3-8b\nload: {rate: 1}\n", "is a serving config, not a file of another tool"),
        ("run.yml", "model: llama3-8b\ncluster: this-machine\nbatch: {}\n", "is a run config already"),
        ("run.toml", '[model]\nname = "flux"\nflavor = "dev"\n', "'flux-dev' is not a shipped model"),
    ],
)
def test_files_of_another_kind(name: str, text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        imported(tmp_path, text, name=name)


VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 data.max_prompt_length=512 \\
  data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.actor.ppo_mini_batch_size=32 \\
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.rollout.n=8 \\
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32 trainer.n_gpus_per_node=8 trainer.nnodes=1 \\
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu="""
OF_DATA = ("rl.prompt=constant:200", "rl.response=lognormal:mean=700,p90=900")


def test_a_reference_has_the_microbatches_of_the_actors_pass(tmp_path: Path) -> None:
    """An RL config has one size of both passes."""
    with pytest.raises(
        ConfigError, match=r"ref.log_prob_micro_batch_size_per_gpu: 4, and the reference's pass has the 32 of"
    ):
        imported(tmp_path, f"{VERL}4", *OF_DATA)
    accepted = predict.import_config(
        [tmp_path / "run.sh"], [*H100, *OF_DATA], accept=["actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"]
    )
    assert dict(accepted.document.content)["rl"]["passes"]["micro"] == 32
    assert imported(tmp_path, f"{VERL}32", *OF_DATA)["rl"]["passes"]["micro"] == 32


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
