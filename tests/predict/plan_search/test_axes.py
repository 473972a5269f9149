"""Keys that vary: how a sweep's values are written, what is refused, and the space around a run."""

from typing import Any

import pytest

import predict
from predict.kinds import TRAINING, kind
from predict.plan_search.axes import LEFT_OUT, question_of
from predict.plan_search.sweep import MOST_ROWS, combinations, parse_vary
from predict.run.training_run import settings_of
from sampling.errors import UserError
from sampling.files.places import CONFIGS

RUNS = kind(TRAINING)
WRITTEN: dict[str, tuple[str, tuple[Any, ...]]] = {
    "batch.seq_len=2k..16k": ("batch.seq_len", (2048, 4096, 8192, 16384)),
    "batch.micro=1,2,4": ("batch.micro", (1, 2, 4)),
    "batch.micro=1..5..2": ("batch.micro", (1, 3, 5)),
    "batch.seq_len=4k,6000": ("batch.seq_len", (4096, 6000)),
    "plan.sp=true,false": ("plan.sp", (True, False)),
    "plan.tp=[2, 4]": ("plan.tp", (2, 4)),
    "tensor_model_parallel_size=8": ("plan.tp", (8,)),
    "plan.schedule=1f1b,zb-h1": ("plan.schedule", ("1f1b", "zb-h1")),
    "plan.recompute_modules=core_attn,mlp": ("plan.recompute_modules", ("core_attn,mlp",)),
    "model=llama3-8b,llama2-7b": ("model", ("llama3-8b", "llama2-7b")),
    "model.num_layers=16,32": ("model.num_layers", (16, 32)),
    "precision=bf16,fp8": ("precision", ("bf16", "fp8")),
    "execution.dispatch=alltoall,deepep": ("execution.dispatch", ("alltoall", "deepep")),
    "execution.gemm_efficiency=0.5,0.75": ("execution.gemm_efficiency", (0.5, 0.75)),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_values(text: str) -> None:
    (varied,) = parse_vary([text], RUNS)
    assert (varied.path, varied.values) == WRITTEN[text]


REFUSED = {
    "plan.tpp=1,2": r"'plan\.tpp' is not a key of a training config; did you mean 'plan\.tp'",
    "tp=1,2": r"did you mean 'plan\.tp'",
    "hello=1": "'hello' is not a key of a training config",
    "batch.seq_len=8k..2k": r"batch\.seq_len: '8k\.\.2k' holds no value",
    "batch.micro=": "holds no value",
    "batch.micro": "is not KEY=VALUES",
    "batch.micro=two": "'two' is not a whole number",
    "plan.schedule=1f1b,zb-h9": "'zb-h9' is not known",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_wrong_is_one_clear_error(text: str) -> None:
    with pytest.raises(UserError, match=REFUSED[text]) as error:
        parse_vary([text], RUNS)
    assert "\n" not in str(error.value)


def test_a_key_is_given_once_and_combinations_are_bounded() -> None:
    with pytest.raises(UserError, match=r"batch\.micro is given twice"):
        parse_vary(["batch.micro=1", "micro_batch_size=2"], RUNS)
    with pytest.raises(UserError, match=f"combinations are more than {MOST_ROWS:,}"):
        parse_vary(["batch.global=1..900..1", "batch.seq_len=1..900..1"], RUNS)


def test_the_last_key_changes_fastest() -> None:
    varied = parse_vary(["batch.micro=1,2", "plan.tp=4,8"], RUNS)
    assert [tuple(each.values()) for each in combinations(varied)] == [(1, 4), (1, 8), (2, 4), (2, 8)]


def test_the_space_around_a_run_has_its_own_value_of_every_key() -> None:
    changes = [
        "plan.recompute=selective",
        "plan.recompute_modules=layernorm,mlp",
        "plan.count_loss=1",
        "plan.count_embedding=1",
    ]
    run = predict.load(CONFIGS / "runs" / "llama3-70b-64xh100.yml", changes)
    own, question = settings_of(run), question_of(run)
    assert {axis.path for axis in question.axes} >= {*LEFT_OUT, "plan.recompute_modules", "plan.count_loss"}
    assert all(own[axis.path] in axis.values for axis in question.axes)
