"""A real RL step in plain torch, and its prediction beside it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from predict import rl_step
from predict.measurement.grpo import Generator, Grpo, log_probs_of
from predict.measurement.requirements import require_measurable_rl
from predict.rl.config import load_rl
from predict.rl.phases import NAMES
from predict.rl.plain_torch import requests_of_rl
from sampling.errors import UserError
from sampling.files.places import CONFIGS

CONFIG = CONFIGS / "rl" / "this-machine" / "two-epochs.yml"
SMALL = (
    "rl.prompts=2",
    "rl.n=2",
    "rl.mini_batch=1",
    "rl.micro=2",
    "rl.passes.micro=2",
    "rl.prompt=constant:4",
    "rl.prompt_max=4",
    "rl.response=uniform:1..6",
    "rl.response_max=6",
)


def test_a_cache_changes_no_token() -> None:
    """Generation with a cache draws from the same distribution as a pass over the whole sequence."""
    grpo = Grpo(load_rl(CONFIG, SMALL))
    tokens = grpo._generate()
    assert tokens.shape == (4, 10)
    assert torch.equal(tokens[:, :4], grpo.prompts)
    seen: list[torch.Tensor] = []
    engine = grpo.engine
    engine._next = lambda new, first: seen.append(new) or Generator._next(engine, new, first)  # type: ignore[method-assign]
    lengths = grpo.lengths[grpo.order].tolist()
    engine.generate(grpo.prompts[grpo.order], lengths)
    assert [len(new) for new in seen] == [
        4,
        *(sum(length > made for length in lengths) for made in range(1, lengths[0])),
    ]
    with torch.no_grad():
        whole = engine.model(tokens)
        torch.manual_seed(1)
        one_by_one = Generator._next(engine, tokens[:, :7], 0)
        torch.manual_seed(1)
        in_one = torch.multinomial(whole[:, 6].softmax(dim=-1), 1)
    assert torch.equal(one_by_one, in_one)


def test_log_probabilities_are_those_of_the_tokens() -> None:
    grpo = Grpo(load_rl(CONFIG, SMALL))
    tokens = grpo._generate()
    with torch.no_grad():
        found = log_probs_of(grpo.actor, tokens)
        expected = grpo.actor(tokens).log_softmax(dim=-1)[:, 2].gather(1, tokens[:, 3:4])[:, 0]
    assert torch.allclose(found[:, 3], expected)
    assert found[:, 0].abs().max() == 0


def test_a_step_trains_and_hands_its_weights_to_the_engine() -> None:
    torch.manual_seed(0)
    grpo = Grpo(load_rl(CONFIG, SMALL))
    before = grpo.actor.head.weight.detach().clone()  # type: ignore[union-attr]
    times, reward = grpo.step()
    assert [name for name in NAMES if name in times] == [*times]
    assert 0 <= reward <= 1
    assert not torch.equal(before, grpo.actor.head.weight)  # type: ignore[union-attr]
    assert torch.equal(grpo.engine.model.head.weight, grpo.actor.head.weight)  # type: ignore[union-attr]
    assert torch.equal(grpo.reference.head.weight, before)  # type: ignore[union-attr]


def test_the_prediction_has_the_phases_that_run_and_the_sampler_its_calls() -> None:
    rl = load_rl(CONFIG, SMALL)
    step = rl_step(CONFIG, SMALL)
    assert {phase.name for phase in step.phases} == set(Grpo(rl).step()[0])
    assert step.rollout.served.steps == int(np.max(rl.samples.response))
    (requests,) = requests_of_rl(rl).values()
    names = {request.call.NAME for request in requests}
    assert names >= {
        "dense_layer",
        "decode_layer",
        "next_token",
        "group_reward",
        "parameter_copy",
        "adamw",
        "output_head",
    }


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("rl.padding=removed", "rl.padding"),
        ("rl.reward.latency_s=1", "rl.reward.latency_s"),
        ("rl.offload=[optimizer]", "rl.offload"),
        ("rl.algorithm=ppo", "critic"),
        ("rl.prompt=uniform:1..4", "rl.prompt:"),
        ("rl.rollout.max_num_seqs=2", "rl.rollout.max_num_seqs"),
        ("rl.micro=3", "rl.micro"),
        ("plan.recompute=selective", "plan.recompute"),
    ],
)
def test_what_cannot_run_is_refused(setting: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        require_measurable_rl(load_rl(CONFIG, [*SMALL, setting]))
