"""LoRA of a real step (lora.py): it starts from its base, and what it adds is the product of two small matrices."""

from dataclasses import replace

import torch
from torch import nn

from predict.measurement.decoder import random_batch
from predict.measurement.lora import LowRank
from predict.measurement.training import build_training
from predict.run.adapters import Adapters
from predict.run.plan import Plan
from tests.predict.measurement.train_variants import run_of

ADAPTERS = Adapters(kind="lora", rank=3, alpha=12.0)


def test_the_update_is_a_product_of_small_rank() -> None:
    torch.manual_seed(0)
    base = nn.Linear(8, 5)
    adapted = LowRank(base, ADAPTERS)
    nn.init.normal_(adapted.b.weight)
    x = torch.randn(4, 8)
    expected = x @ (base.weight + 4.0 * adapted.b.weight @ adapted.a.weight).T + base.bias
    torch.testing.assert_close(adapted(x), expected)


def test_adapters_start_from_the_base_and_leave_it_as_it_is() -> None:
    run = run_of(Plan())
    base, adapted = build_training(run).module, build_training(replace(run, adapters=ADAPTERS))
    tokens, _ = random_batch(run, replica=0)
    with torch.no_grad():
        torch.testing.assert_close(adapted.module(tokens), base(tokens))
    for _ in range(2):
        adapted.step()
    own = {name.replace(".base.", "."): weight for name, weight in adapted.module.named_parameters()}
    for name, weight in base.named_parameters():
        assert torch.equal(own[name], weight), name
