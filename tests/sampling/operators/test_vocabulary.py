"""The choice of the next token: its arithmetic and its torch work."""

import pytest
import torch

from sampling.call import make_call
from sampling.operators.vocabulary import RankedLogits, TokenDraw
from sampling.torch_work.build import build
from sampling.torch_work.operators.vocabulary import TOP_P, within_top_p


@pytest.mark.parametrize("kind, logit_bytes", [(TokenDraw, 42), (RankedLogits, 202)])
def test_it_moves_so_many_bytes_for_each_logit_and_runs(kind: type[TokenDraw | RankedLogits], logit_bytes: int) -> None:
    call = kind(dtype="fp32", requests=3, vocab=50)
    assert call.bytes_moved("forward") == logit_bytes * 3 * 50
    assert make_call(call.NAME, call.fields()) == call
    assert call.NAME in ("token_draw", "ranked_logits")
    workload = build(call, torch.device("cpu"))
    workload.prepare("forward")
    workload.run("forward")


def test_the_fewest_likely_tokens_that_have_the_probability_are_kept_in_place() -> None:
    chances = torch.tensor([[0.02, 0.5, 0.06, 0.12, 0.3], [0.96, 0.01, 0.01, 0.01, 0.01]])
    kept = within_top_p(chances.log())
    assert kept.isfinite().tolist() == [[False, True, False, True, True], [True, False, False, False, False]]
    assert kept[0, 1] == chances[0, 1].log()
    assert all(row[keep].sum() >= TOP_P for row, keep in zip(chances, kept.isfinite(), strict=True))
