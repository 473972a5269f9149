"""Run configs with one fault each, and the key that is blamed for it. The words of each are among the kept answers."""

from __future__ import annotations

MODEL = (
    "{model_type: llama, hidden_size: 64, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 96, "
    "num_hidden_layers: 4, vocab_size: 512}"
)

SECTIONS = {
    "model": MODEL,
    "cluster": "{hardware: cpu, nodes: 1, gpus_per_node: 2, profile: nowhere}",
    "plan": "{pp: 2}",
    "batch": "{global: 8, micro: 1, seq_len: 16}",
    "precision": "fp32",
}


def config(*, without: str = "", **sections: str) -> str:
    """A sound config with some sections replaced or left out."""
    lines = {**SECTIONS, **sections}
    return "".join(f"{name}: {text}\n" for name, text in lines.items() if name != without)


def model(**keys: str) -> str:
    """A config whose inline model has keys replaced or added."""
    plain = dict(part.split(": ") for part in MODEL.strip("{}").split(", "))
    return config(model="{" + ", ".join(f"{key}: {value}" for key, value in {**plain, **keys}.items()) + "}")


GPT2 = "{model_type: gpt2, n_layer: 2, n_embd: 64, n_head: 4, n_positions: 8, vocab_size: 512}"

NEOX = MODEL.replace("llama", "gpt_neox").replace("num_key_value_heads: 2, ", "")

ROWS: list[tuple[str, str]] = [
    (config(plan="{tp: two}"), "plan.tp"),
    (config(batch="{global: 8, micro: 1, seq_len: 999999999}"), "batch.seq_len"),
    (config(plan="{tp: 1.5}"), "plan.tp"),
    (config(plan="{tp: true}"), "plan.tp"),
    (config(plan="{tp: .nan}"), "plan.tp"),
    (config(plan="{tp: null}"), "plan.tp"),
    (config(plan="{tp: 0}"), "plan.tp"),
    (config(plan="{pp: 2, sp: 1}"), "plan.sp"),
    (config(plan="{ttp: 2, pp: 2}"), "plan.ttp"),
    (config(plan="{pp: 2, schedul: 1f1b}"), "plan.schedul"),
    (config(plan="{pp: 2, schedule: 1f1f}"), "plan.schedule"),
    (config(plan="{pp: 2, recompute: ful}"), "plan.recompute"),
    (config(plan="{pp: 2, recompute: selective}"), "plan.recompute"),
    (config(plan="{dp: 2, zero: 2}"), "plan.zero"),
    (config(plan="{pp: 2, zero: 4}"), "plan.zero"),
    (config(plan="{cp: 2}"), "plan.cp"),
    (config(plan="{pp: 2, ep: 2}"), "plan.ep"),
    (config(plan="{pp: 2, etp: 2}"), "plan.ep"),
    (config(plan="{pp: 2, vpp: 2}"), "plan.schedule"),
    (config(plan="{pp: 2, schedule: zbv}"), "plan.schedule"),
    (config(plan="{pp: 2, schedule: none.csv}"), "plan.schedule"),
    (config(plan="{pp: 2, schedule: zb-h1, recompute: full}"), "plan.recompute"),
    (config(plan="{pp: 2, memory_limit: -1}"), "plan.memory_limit"),
    (config(plan="{dp: 2, vpp: 2}"), "plan.vpp"),
    (config(plan="{pp: 2, sp: true}"), "plan.sp"),
    (config(plan="{pp: 2, zero: 1}"), "plan.zero"),
    (config(plan="{pp: 1, dp: 1}"), "plan.dp"),
    (config(plan="{pp: 3}"), "plan.dp"),
    (config(plan="3"), "plan"),
    (config(plan="[tp, 2]"), "plan"),
    (config(batch="{global: 8, micro: -4, seq_len: 16}"), "batch.micro"),
    (config(batch="{global: 8, seq_len: 16}"), "batch.micro"),
    (config(batch="{global: 7, micro: 2, seq_len: 16}"), "batch.global"),
    (config(batch="{global: 8, micro: 1, seq_len: 1" + "0" * 30 + "}"), "batch.seq_len"),
    (config(batch="{global: 8, micro: 1, seq_len: 0x" + "f" * 5000 + "}"), "batch.seq_len"),
    (config(plan="{tp: 2, sp: true}", batch="{global: 8, micro: 1, seq_len: 15}"), "batch.seq_len"),
    (config(model=GPT2), "batch.seq_len"),
    (config(precision="fp31"), "precision"),
    (config(precision="fp8"), "precision"),
    (config(without="precision"), "precision"),
    (config(without="model"), "model"),
    (config(without="batch"), "batch"),
    (config(without="cluster"), "cluster"),
    (config(tp="2"), "tp"),
    (config(bacth="2"), "bacth"),
    (config(cluster="{hardware: cpuu, nodes: 1, gpus_per_node: 2, profile: x}"), "cluster.hardware"),
    (config(cluster="{hardware: cpu, nodes: 1, gpus_per_node: 2, profile: ../x}"), "cluster.profile"),
    (config(cluster="{hardware: cpu, nodes: 1, gpus_per_node: 2, profile: x, cores: 1}"), "cluster.gpus_per_node"),
    (config(cluster="nowhere.yml"), "cluster"),
    (config(cluster="."), "cluster"),
    (config(cluster="7"), "cluster"),
    (config(model="nowhere.json"), "model"),
    (config(model="."), "model"),
    (config(model='"a\\0b"'), "model"),
    (config(plan="{tp: 2}").replace("size: 64", "size: 66"), "model.hidden_size"),
    (config(plan="{tp: 4}"), "plan.tp"),
    (config(plan="{tp: 3}"), "plan.tp"),
    (config(plan="{tp: 2}").replace("size: 96", "size: 97"), "plan.tp"),
    (config(plan="{tp: 2}").replace("size: 512", "size: 50257"), "model.vocab_size"),
    (model(num_key_value_heads="3"), "model.num_key_value_heads"),
    (model(num_hidden_layers="1"), "plan.pp"),
    (model(head_dim="15"), "model.head_dim"),
    (model(hidden_act="relu"), "model.hidden_act"),
    (model(num_hiden_layers="3"), "model.num_hiden_layers"),
    (model(num_layers="3"), "model.num_layers"),
    (model(num_local_experts="8"), "model.num_local_experts"),
    (model(n_routed_experts="8"), "model.n_routed_experts"),
    (model(kv_lora_rank="512"), "model.kv_lora_rank"),
    (model(sliding_window="4096"), "model.sliding_window"),
    (model(layer_types="[sliding_attention]"), "model.layer_types"),
    (model(model_type="mistral", sliding_window="-1"), "model.sliding_window"),
    (model(model_type="qwen4"), "model.model_type"),
    (model(model_type="mamba2"), "model.model_type"),
    (model(add_cross_attention="true"), "model.add_cross_attention"),
    (model(model_type="qwen3", layer_types="[full_attention]"), "model.layer_types"),
    (model(model_type="3"), "model.model_type"),
    (config(model=NEOX.replace("}", ", rotary_pct: 1.5}")), "model.rotary_pct"),
    (model(partial_rotary_factor="0.5"), "model.partial_rotary_factor"),
    (config(tensor_model_parallel_size="2", plan="{tp: 1, pp: 2}"), "tensor_model_parallel_size"),
    (config(plan="{pp: 2, tensor-model-parallel-size: 2, tp: 1}"), "plan.tensor-model-parallel-size"),
    (config(plan="{pp: 2, pp: 1}"), "plan.pp"),
    (config() + "precision: fp32\n", "precision"),
]
