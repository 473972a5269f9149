"""Physics of single operators."""

import math
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from sampling.call import make_call
from sampling.cells.data_parallel import GradientCell
from sampling.cells.head import OutputHead
from sampling.cells.layer import DenseLayer
from sampling.collectives.kinds import AllGather, AllReduce, Collective
from sampling.hardware.cluster import Cluster, load_cluster
from sampling.operators.attention import Attention
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import ResidualAdd
from sampling.torch_work.build import build
from sampling.torch_work.cells.layer import make_layer, random_hidden
from sampling.torch_work.module_workload import ModuleWorkload
from tests.sampling.cells.layer_shapes import DENSE_LAYER

CPU = torch.device("cpu")


@pytest.mark.parametrize("phase", ["backward", "backward_input", "backward_weight"])
def test_gemm_backward_flops_are_those_that_torch_counts(phase: str) -> None:
    call = Gemm(dtype="fp32", m=24, n=40, k=56)
    workload = build(call, CPU)
    workload.prepare("forward")
    workload.prepare(phase)  # type: ignore[arg-type]
    with FlopCounterMode(display=False) as counter:
        workload.run(phase)  # type: ignore[arg-type]
    assert counter.get_total_flops() == call.flops(phase)  # type: ignore[arg-type]


def layer(**changes: object) -> DenseLayer:
    return replace(DENSE_LAYER, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes", [{}, {"gated": False, "norm": "layer", "rope": False, "qkv_bias": True, "bias": True}]
)
def test_a_layers_weight_shapes_are_those_of_the_module_it_builds(changes: dict[str, object]) -> None:
    shape = layer(**changes)
    built = sorted(tuple(weight.shape) for weight in make_layer(shape, CPU).parameters())
    assert built == sorted(shape.weight_shapes())


def test_tensor_parallelism_divides_matrices_and_leaves_norms_whole() -> None:
    whole, half = layer(), layer(tp=2)
    for before, after in zip(whole.weight_shapes(), half.weight_shapes(), strict=True):
        assert math.prod(after) == math.prod(before) // (1 if before == (64,) else 2)


def test_backward_halves_leave_the_gradients_of_a_whole_backward() -> None:
    shape = layer()
    torch.manual_seed(0)
    module = make_layer(shape, CPU)
    (hidden,) = random_hidden(shape, CPU)
    workload = ModuleWorkload([module], lambda: (hidden,))
    workload.prepare("backward")
    workload.run("backward")
    whole = [weight.grad.clone() for weight in module.parameters() if weight.grad is not None]
    workload.prepare("backward_weight")
    workload.run("backward_weight")
    halves = [weight.grad for weight in module.parameters() if weight.grad is not None]
    assert len(whole) == len(halves) == len(shape.weight_shapes())
    for one, other in zip(whole, halves, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_accumulating_adds_to_the_gradients_that_are_there() -> None:
    shape = layer()
    module = make_layer(shape, CPU)
    workload = ModuleWorkload([module], lambda: random_hidden(shape, CPU))
    workload.prepare("backward")
    workload.run("backward")
    once = next(module.parameters()).grad
    once = once.clone()
    workload.prepare("backward_accumulate")
    workload.run("backward_accumulate")
    twice = next(module.parameters()).grad
    torch.testing.assert_close(twice, 2 * once)


def test_causal_attention_executes_half_the_products(two_ranks: Cluster) -> None:
    shape = Attention(dtype="fp32", batch=1, seq_len=1024, heads=4, kv_heads=4, head_dim=64, causal=True)
    assert shape.executed_flops("forward") / replace(shape, causal=False).executed_flops("forward") == pytest.approx(
        0.5, rel=1e-2
    )


def test_waking_threads_counts_from_the_size_at_which_torch_shares_a_kernel(two_ranks: Cluster) -> None:
    alone = load_cluster(hardware="cpu", nodes=1, gpus_per_node=1, profile="test", cores=2)
    small, large = (ResidualAdd(dtype="fp32", tokens=tokens, hidden=512) for tokens in (64, 65))
    assert [add.terms("forward", alone)["fork_join"] for add in (small, large)] == [0, 1]
    assert "fork_join" not in large.terms("forward", two_ranks)


def test_doubling_the_tokens_doubles_a_layers_products_and_quadruples_long_attention(two_ranks: Cluster) -> None:
    short, long = layer(seq_len=512), layer(seq_len=1024)
    terms = [shape.terms("forward", two_ranks) for shape in (short, long)]
    assert terms[1]["gemm_compute"] / terms[0]["gemm_compute"] == pytest.approx(2)
    assert terms[1]["attention_compute"] / terms[0]["attention_compute"] == pytest.approx(4, rel=1e-2)


def test_sequence_parallelism_moves_as_much_over_the_wire_as_plain_tensor_parallelism(two_ranks: Cluster) -> None:
    plain, sequence = (layer(tp=2, sp=sp).terms("forward", two_ranks)["wire"] for sp in (False, True))
    assert plain == pytest.approx(sequence)


def test_the_gradient_cell_reduces_every_weight_of_its_layers() -> None:
    cell = GradientCell(**layer().fields(), layers=3, dp=2)
    reduce = next(part.call for part in cell.parts("backward") if isinstance(part.call, AllReduce))
    assert reduce.size_bytes == 3 * 4 * sum(math.prod(shape) for shape in layer().weight_shapes())


@pytest.mark.parametrize("kind", [AllReduce, AllGather])
def test_wire_bytes_follow_the_ring(kind: type[Collective]) -> None:
    call = kind(size_bytes=1000, ranks=4, ranks_per_node=4)
    assert call.bytes_on_wire() == 1000 * (1.5 if kind is AllReduce else 0.75)


def test_a_group_across_nodes_pays_the_slower_link(two_ranks: Cluster) -> None:
    near, far = (AllReduce(size_bytes=2**20, ranks=4, ranks_per_node=local) for local in (4, 2))
    assert far.terms("forward", two_ranks)["wire"] > near.terms("forward", two_ranks)["wire"]


def test_the_head_spreads_its_vocabulary() -> None:
    head = OutputHead(dtype="fp32", batch=2, seq_len=16, hidden=64, vocab=256, norm="rms", tp=2, sp=False)
    assert head.flops("forward") == replace(head, tp=1).flops("forward") / 2


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("output_bias", "own"), [("", None), ("with", True), ("without", False)])
def test_attentions_output_projection_may_have_a_bias_of_its_own(
    bias: bool, output_bias: str, own: bool | None
) -> None:
    shape = layer(bias=bias, output_bias=output_bias)
    built = make_layer(shape, CPU)
    assert sorted(tuple(weight.shape) for weight in built.parameters()) == sorted(shape.weight_shapes())
    names = {name for name, _ in built.named_parameters()}
    assert ("attend.output.bias" in names) == (bias if own is None else own)
    assert ("mlp.down.bias" in names) == bias


def test_rows_from_before_a_field_are_the_calls_that_leave_it_empty() -> None:
    row = {name: value for name, value in layer().fields().items() if name != "output_bias"}
    assert make_call("dense_layer", row) == layer()
