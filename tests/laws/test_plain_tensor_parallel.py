"""Tensor parallelism without Megatron-Core's refinements: what each setting adds to the exchanges, the loss and the repeated forward."""

from typing import Any

import pytest

from predict.layers.head import GATHERED_COPIES
from predict.rank.blocks import Block, single
from predict.rank.share import RankShare
from predict.run.training_run import TrainingRun
from predict.workload.layer import LayerBlocks, head_blocks, layer_blocks
from sampling.operators.gemm import Gemm
from sampling.operators.memory_bound import Stream
from sampling.operators.vocabulary import CrossEntropy
from tests.predict.workload.parallel_runs import collectives, flops, how_often, made, ranks

TP = 4


def _run(*, sp: bool = False, **execution: Any) -> TrainingRun:
    settings = {f"execution__{name}": value for name, value in execution.items()}
    return made("llama3-8b", 4, plan__tp=TP, plan__sp=sp, plan__recompute="full", **settings)


def _layer(run: TrainingRun) -> LayerBlocks:
    return layer_blocks(RankShare(run=run), run.model.kinds()[0])


def _head(run: TrainingRun) -> LayerBlocks:
    return head_blocks(RankShare(run=run), shares_embedding=False)


def _often(block: Block) -> dict[str, float]:
    return how_often(single(block), "tp")


def _products(block: Block) -> list[Gemm]:
    return [one.call for one in block.calls if isinstance(one.call, Gemm) for _ in range(round(one.count))]


def test_a_gate_apart_is_two_products_that_each_reduce_the_gradient_of_their_input() -> None:
    joint, apart = _layer(_run()), _layer(_run(fuse_gate=False))
    assert len(_products(apart.forward)) == len(_products(joint.forward)) + 1
    assert sum(call.flops("forward") for call in _products(apart.forward)) == sum(
        call.flops("forward") for call in _products(joint.forward)
    )
    assert (_often(joint.backward), _often(apart.backward)) == ({"all_reduce": 2}, {"all_reduce": 3})
    assert _often(apart.forward) == _often(joint.forward)


def test_with_sequence_parallelism_gate_and_up_share_the_gathered_input() -> None:
    assert _often(_layer(_run(sp=True, fuse_gate=False)).backward) == _often(_layer(_run(sp=True)).backward)


def test_an_input_that_is_kept_whole_is_not_gathered_again() -> None:
    again, kept = (_often(_layer(_run(sp=True, gather_again=on)).backward) for on in (True, False))
    assert again["all_gather"] - kept["all_gather"] == 2  # of attention and feed-forward
    assert again["reduce_scatter"] == kept["reduce_scatter"]


def test_a_loss_over_all_logits_gathers_them_and_is_taken_on_every_rank() -> None:
    runs = [_run(split_loss=on) for on in (True, False)]
    split, whole = (_head(run).forward for run in runs)
    part, every = (
        next(one.call for one in block.calls if isinstance(one.call, CrossEntropy)) for block in (split, whole)
    )
    assert every.vocab == TP * part.vocab
    assert _often(split) == {"all_reduce": 3}
    logits_bytes = 2 * RankShare(run=runs[1]).tokens * every.vocab
    assert collectives(single(whole), "tp") == [("all_gather", logits_bytes, 1.0)]
    copied = [(one.call.size_bytes, one.count) for one in whole.calls if isinstance(one.call, Stream)]
    assert copied == [(2 * logits_bytes, GATHERED_COPIES)]
    assert not any(isinstance(one.call, Stream) for one in split.calls)


def test_full_recomputation_of_the_ends_repeats_their_forward() -> None:
    def repeated(run: TrainingRun) -> float:
        (rank,) = ranks(run)
        (chunk,) = rank.chunks
        return flops(chunk.backward)

    layers, ends = _run(), _run(recompute_ends=True)
    (chunk,) = next(iter(ranks(layers))).chunks
    head = sum(call.flops("forward") for call in _products(_head(layers).forward))
    assert repeated(ends) - repeated(layers) == pytest.approx(head)
    assert chunk.layers == 4


def test_gradients_are_cast_to_the_dtype_in_which_they_are_reduced() -> None:
    def reduction(**execution: Any) -> list[tuple[str, int]]:
        settings = {f"execution__{name}": value for name, value in execution.items()}
        (rank,) = ranks(made("llama3-8b", 4, plan__dp=8, execution__gradient_dtype="bf16", **settings))
        return [(one.call.NAME, one.call.size_bytes) for one in rank.end.gradient_reduction]

    ((name, size),) = reduction()
    assert reduction(reduction_dtype="bf16") == [(name, size)]
    # 2 bytes to 4, and back
    assert reduction(reduction_dtype="fp32") == [("stream", 6 * size), (name, 2 * size)]


def test_eager_autograd_adds_up_the_gradients_of_a_tensor_with_two_readers() -> None:
    def added(**execution: Any) -> int:
        calls = _layer(_run(**execution)).backward.calls
        return sum(one.call.size_bytes for one in calls if isinstance(one.call, Stream))

    tensor = RankShare(run=_run()).hidden_bytes
    assert added() == 0
    assert added(elementwise="eager") == 3 * 2 * tensor  # the residual stream before each norm
    assert added(elementwise="eager", fuse_gate=False) == 3 * 3 * tensor
    assert added(elementwise="eager", fuse_gate=False, sp=True) == 3 * tensor * (2 / TP + 1)
